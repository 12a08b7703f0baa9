package sqlitestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Decide implements driver.Store. If more has expired than one transaction handles, or
// a refusal's walk is longer, further transactions continue: what was decided remains,
// and other processes can work in between.
func (s *Store) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	d := &decider{s: s, batch: batch, began: time.Now(), walks: map[walkKey]*walk{}}
	for {
		err := s.write(bounded, d.transaction)
		if err == nil { // only committed decisions are an answer
			d.answer, d.ran = d.next, true
		}
		switch {
		case err == nil && d.lost:
			return driver.Decisions{}, s.explain(ctx, "decide on "+batch.Budget, driver.ErrLost)
		case err == nil && d.done:
			s.sweep(bounded, batch.Budget, d.answer.Now, batch.Now)
			return d.answer, nil
		case err == nil:
			err = s.pause(bounded)
		case errors.Is(err, errRedo):
			clear(d.walks) // they depend on what was undone
			err = nil
		}
		if isTimeUp(err) && d.ran {
			return d.rest(driver.Decision{Result: driver.Interrupted, Limit: -1}), nil
		}
		if err != nil {
			charged := errors.Is(err, errCommit) // it may have charged
			err = s.explain(ctx, "decide on "+batch.Budget, err)
			if len(d.answer.Items) > 0 { // committed decisions remain
				return d.rest(driver.Decision{Result: driver.OutcomeUnknown, Limit: -1, Err: err}), nil
			}
			if !charged {
				err = fmt.Errorf("%w; %w", err, driver.ErrNotCharged)
			}
			return driver.Decisions{}, err
		}
	}
}

// decider is one call of Decide.
type decider struct {
	s      *Store
	batch  driver.Batch
	began  time.Time
	answer driver.Decisions  // as committed so far
	walks  map[walkKey]*walk // for the current item
	ran    bool              // a transaction was committed
	done   bool
	lost   bool              // the ledger lacks something that the caller saw acknowledged
	head   driver.LedgerHead // of an import: a ledger that begins with it takes over its past

	// Within one transaction:
	next   driver.Decisions // the answer when it is committed
	when   moment
	l      *ledger
	limits []*counting
	steps  int
	ready  bool // everything due has been merged

	finished []driver.Finished // of the batch's Finishes
}

// caller is the caller's clock.
func (d *decider) caller() int64 { return d.batch.Now + time.Since(d.began).Microseconds() }

// rest gives every item without a decision the same answer.
func (d *decider) rest(answer driver.Decision) driver.Decisions {
	for len(d.answer.Items) < len(d.batch.Items) {
		d.answer.Items = append(d.answer.Items, answer)
	}
	return d.answer
}

// transaction continues with the batch until it is done or the steps run out.
func (d *decider) transaction(c *conn) error {
	answer, steps := d.answer, d.s.steps
	d.steps, d.done = steps, false
	clock, err := d.open(c)
	if err != nil {
		return err
	}
	answer.Now, answer.Finished = clock, d.finished
	current, err := d.advance(d.l.last)
	if err != nil {
		return err
	}
	if current {
		if d.lost, err = d.l.lost(d.batch.Mark, d.batch.Limits, d.l.last); err != nil {
			return err
		}
		missing, err := d.l.missing(d.batch.Others, d.batch.Limits, d.l.last)
		if err != nil {
			return err
		}
		d.lost = d.lost || len(missing) > 0
	}
	from := len(answer.Items)
	for current && !d.lost && len(answer.Items) < len(d.batch.Items) {
		decision, done, err := d.item(d.batch.Items[len(answer.Items)])
		if err != nil {
			return err
		}
		if !done {
			break
		}
		answer.Items = append(answer.Items, decision)
		clear(d.walks)
	}
	if len(answer.Items) == len(d.batch.Items) {
		if d.done, err = d.advance(d.l.last); err != nil {
			return err
		}
	}
	if d.done {
		answer.Mark, answer.AtWork = d.l.mark(d.l.last), d.l.hosts.atWork(d.l.last)
		answer.Seen, answer.Used = d.l.last, make([]int64, len(d.limits))
		for i, v := range d.limits {
			answer.Used[i] = v.used()
		}
	}
	if err := d.close(); err != nil {
		return err
	}
	if d.s.closing != nil {
		d.s.closing()
	}
	for i := from; i < len(answer.Items); i++ {
		if a := answer.Items[i]; a.Result == driver.Granted && !a.Replayed && !d.batch.Items[i].DryRun && late(d.batch.Items[i].Deadline, d.caller()) {
			answer.Items = answer.Items[:from]
			return errRedo
		}
	}
	d.next = answer
	return nil
}

// open reads the ledger, takes the time, makes the limits' windows and meters live, and
// merges entries.
func (d *decider) open(c *conn) (clock int64, err error) {
	if d.l, err = d.s.ledger(c, d.batch.Budget); err != nil {
		return 0, err
	}
	l := d.l
	clock, anchor, err := d.s.clocks.read(l.anchor)
	if err != nil {
		return 0, err
	}
	if d.when, err = l.enter(clock, d.batch.Now, d.s.clocks.oneBoot(l.anchor)); err != nil {
		return 0, err
	}
	now := d.when.now
	if l.b == 0 {
		if err := l.create(now); err != nil {
			return 0, err
		}
		if d.head.Born > 0 {
			l.born, l.gone = min(d.head.Born, now), min(d.head.Gone, now)
		}
	}
	if l.id == "" { // an older version made it
		l.id = rand.Text()
	}
	l.keep(clock, now, anchor)
	d.limits, d.ready = d.limits[:0], false
	d.finished, err = l.finishAll(d.batch.Finishes, d.answer.Finished, d.when, d.s.steps, d.caller)
	if err != nil || len(d.finished) < len(d.batch.Finishes) {
		return d.when.clock, err
	}
	l.note(d.batch.Host, now)
	l.tables = l.tables.Noted(d.batch.Table, now)
	d.batch.Limits = l.plans.Within(now).Of(d.batch.Limits)
	if err := l.use(d.batch.Limits, now); err != nil {
		return 0, err
	}
	if len(d.answer.Items) == 0 { // all transactions of a batch forget by the time of the first
		l.forget(d.batch.Limits, now)
	}
	if d.ready, err = l.merge(now, &d.steps); err != nil {
		return 0, err
	}
	if d.ready {
		if d.ready, err = l.splitFor(d.batch.Limits, &d.steps); err != nil {
			return 0, err
		}
	}
	if err := l.useMeters(d.batch.Limits, now); err != nil {
		return 0, err
	}
	for _, limit := range d.batch.Limits {
		d.limits = append(d.limits, newCounting(l, limit))
	}
	return d.when.clock, nil
}

// close prunes entries and writes the ledger.
func (d *decider) close() error {
	if err := d.l.tidy(d.s.pruning); err != nil {
		return err
	}
	d.l.postpone()
	return d.l.write()
}

// advance brings the totals of all limits to an instant.
func (d *decider) advance(at int64) (done bool, err error) {
	if !d.ready {
		return false, nil
	}
	for _, v := range d.limits {
		if v.m != nil {
			if done, err := d.l.replay(v.m, at, &d.steps); err != nil || !done {
				return false, err
			}
			continue
		}
		if done, err := d.l.advance(v.w, at, &d.steps); err != nil || !done {
			return false, err
		}
		if v.next == nil {
			continue
		}
		if done, err := d.l.advance(v.next, at, &d.steps); err != nil || !done {
			return false, err
		}
	}
	return true, nil
}

// item decides one item, and records it if it fits. done is false if the steps ran out
// before.
func (d *decider) item(item driver.Item) (decision driver.Decision, done bool, err error) {
	l := d.l
	now := l.last
	if late(item.Deadline, d.caller()) {
		return driver.Decision{Result: driver.Late, Limit: -1}, true, nil
	}
	if !item.Recorded && item.Fence != "" && l.locks[item.Fence].stands(now) {
		return driver.Decision{Result: driver.Fenced, Limit: -1}, true, nil
	}
	if done, err := d.advance(now); err != nil || !done {
		return driver.Decision{}, false, err
	}
	l.holds.end(now)
	old, decision, replayed, err := d.known(item, now)
	if err != nil || replayed {
		return decision, true, err
	}
	lives := l.holds.living(item, now)
	for i, v := range d.limits {
		if _, drawn := lives.amount(v.limit, item); !item.Recorded && !v.limit.Observe && item.CheckedBy(v.limit) && item.NeverFits(v.limit, drawn) {
			return driver.Decision{Result: driver.NeverFits, Limit: i, Remaining: d.remaining(i)}, true, nil
		}
	}
	observed := ""
	if !item.Recorded { // limits do not refuse recorded items
		refusal, done, err := d.refuse(item, now)
		if err != nil || !done || refusal.Result != driver.Granted {
			return refusal, done, err
		}
		observed = refusal.Observed
	}
	switch {
	case d.overflows(item):
		return driver.Decision{Result: driver.Overflow, Limit: -1}, true, nil
	case item.DryRun:
		decision = d.granted(item)
		decision.Observed = observed
		return decision, true, nil
	case item.IsHold():
		return d.hold(item, now, observed), true, nil
	}
	decision, err = d.grant(item, old, now, observed)
	return decision, true, err
}

// overflows reports whether a sum would be too large with the item.
func (d *decider) overflows(item driver.Item) bool {
	if item.IsHold() {
		return item.Units > limit.MaxUnits || len(d.l.holds.list) >= driver.MaxHolds
	}
	return slices.ContainsFunc(d.limits, func(v *counting) bool { return v.w != nil && v.charged()+item.Units > limit.MaxUnits })
}

// known is the entry with the item's id, held or not; nil if there is none. If the ledger has
// the item already, the decision replays it.
func (d *decider) known(item driver.Item, now int64) (old *entry, decision driver.Decision, replayed bool, err error) {
	if item.IsHold() {
		decision, replayed = d.holdAgain(item)
		return nil, decision, replayed, nil
	}
	if old, err = d.l.entryAt(item.ID); err != nil || item.DryRun || !d.l.held(old, now) {
		return old, driver.Decision{}, false, err
	}
	decision, err = d.replay(item, old, now)
	return old, decision, true, err
}

// late reports whether the deadline has passed, on the caller's clock.
func late(deadline time.Time, caller int64) bool {
	return !deadline.IsZero() && deadline.UnixMicro() < caller
}

// replay answers an item whose id the ledger holds.
func (d *decider) replay(item driver.Item, e *entry, now int64) (decision driver.Decision, err error) {
	charged, _ := limit.CutPair(d.l.opNames[e.operation()])
	same := charged == d.l.counted(item.Operation) && e.asked == item.Units &&
		(e.state != statePlain) == (item.Lease > 0)
	if !same {
		return driver.Decision{Result: driver.Conflict, Limit: -1}, nil
	}
	decision = d.granted(item)
	decision.Replayed, decision.At, decision.Ended = true, e.start, e.ended(now)
	decision.First, err = d.l.labelsOf(e, item.Labels)
	return decision, err
}
