package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// charge.lua's answers on an item, beyond the results of a decision.
const (
	resultAgain   = 100 // unfinished: the next run takes the item and its progress
	resultDamaged = 101 // the totals exceed the entries
)

// batch is a driver.Batch during as many script runs as it needs.
type batch struct {
	store *Store
	driver.Batch
	until    []time.Time    // when to give up each item, by the local clock
	around   int64          // the instant for which calendar periods are sent
	days     []int64        // of the history that may be written; nil: see historyDays
	open     []int          // items without a decision yet
	progress map[int]string // of the items that charge.lua has begun
	unsure   bool           // an attempt for the open items got no answer and may have been applied
	unrun    bool           // the last run failed, and no attempt of it can have run
	aimed    bool           // a run had deadlines by the server's clock; before it is known, none can charge
	decided  driver.Decisions

	mode    purpose
	status  int64    // of the last run
	names   []string // to register with the next run
	sums    []sum    // a look's sums, one for each limit
	lost    *recovery
	report  *report
	rows    *driver.Import
	locks   string // for a look, as the ledger keeps them
	born    int64  // when the ledger began
	seen    int64  // the instant of the decision: the clamped clock
	looks   [][]any
	plans   *string // the records that Limits are by; nil: no guarantee lapses by plan
	lacks   []any   // for a look: which of Others are missing, from 1
	holds   []any   // for a look, as lua/holds.lua has them
	entries int64
	staged  map[int]*stagedRefusal
	told    ledgerTold
	slow    bool       // usual.lua has left the open items to charge.lua
	tidied  bool       // that was tried after a run without items
	tidies  []int      // operations that a run without items packs into blocks
	before  *finishing // what is to be done before the items; nil: nothing, or it is done
	one     struct {
		until [1]time.Time
		open  [1]int
	} // the lists of a batch of one
}

// Decide implements driver.Store.
func (s *Store) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	began := time.Now()
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return driver.Decisions{}, err
	}
	defer cancel()
	run := s.newBatch(ctx, b, began)
	if len(b.Finishes) > 0 {
		run.before = s.newFinishing(ctx, driver.Finishes{Budget: b.Budget, Now: b.Now, Items: b.Finishes})
	}
	for {
		done, err := run.step(ctx)
		switch {
		case err == nil && done:
			return run.decided, nil
		case err == nil && ctx.Err() == nil:
			continue
		case len(run.open) == len(b.Items) && err != nil:
			if run.unrun && !run.unsure || !run.aimed {
				err = notCharged{err}
			}
			return driver.Decisions{}, err
		case len(run.open) == len(b.Items) && errors.Is(ctx.Err(), context.Canceled):
			return driver.Decisions{}, ctx.Err()
		case err != nil: // the items decided before keep their decisions
			return run.rest(driver.Decision{Result: driver.OutcomeUnknown, Limit: -1, Err: err}), nil
		}
		return run.rest(run.outOfTime(driver.Interrupted)), nil
	}
}

func (s *Store) newBatch(ctx context.Context, b driver.Batch, began time.Time) *batch {
	run := &batch{
		store: s, Batch: b, around: b.Now,
		decided: driver.Decisions{Items: make([]driver.Decision, len(b.Items))},
	}
	run.open, run.until = run.one.open[:0], run.one.until[:0]
	if n := len(b.Items); n > 1 {
		run.open, run.until = make([]int, 0, n), make([]time.Time, 0, n)
	}
	for i, item := range b.Items {
		run.open = append(run.open, i)
		run.until = append(run.until, giveUp(ctx, item.Deadline, b.Now, began))
	}
	run.byRecords()
	if offset, known := s.clockOffset(b.Budget); known {
		run.around = time.Now().UnixMicro() + offset
	}
	return run
}

// aim notes whether a run can charge: without the server's clock its items are late.
func (b *batch) aim() {
	_, known := b.store.clockOffset(b.Budget)
	b.aimed = b.aimed || known
}

// historyDays are the days of the history that the batch may write.
func (b *batch) historyDays() []int64 {
	if b.days == nil {
		b.days = b.store.daysAround(b.Budget, b.Now)
		for _, item := range b.Items {
			if item.Recorded {
				b.days = addDays(b.days, (b.around-item.Age)/historyDay)
			}
		}
	}
	return b.days
}

// outOfTime is the decision for an item that ran out of time: result, which promises that
// nothing was charged, or OutcomeUnknown if an attempt got no answer.
func (b *batch) outOfTime(result driver.Result) driver.Decision {
	if b.unsure {
		return driver.Decision{Result: driver.OutcomeUnknown, Limit: -1, Err: lostAnswer(b.doing() + " " + b.Budget)}
	}
	return driver.Decision{Result: result, Limit: -1}
}

// rest gives every open item the same decision.
func (b *batch) rest(answer driver.Decision) driver.Decisions {
	for _, i := range b.open {
		b.decided.Items[i] = answer
	}
	return b.decided
}

// step runs a script once on the open items. It returns true when all are decided.
func (b *batch) step(ctx context.Context) (bool, error) {
	p := b.plan()
	if err := b.finishFirst(ctx, p); err != nil {
		return false, err
	}
	if p != nil {
		return b.runUsual(ctx, p)
	}
	had := b.store.registry(b.Budget)
	known, split := had, []string(nil)
	if b.divides() {
		known, split = had.splitFor(b.Limits)
	}
	r, added := known.with(b.openItems())
	switch b.mode {
	case recovering, beginningAnew:
		had, r, added = b.lost.registry(had, b.Limits, b.mode)
	case reporting:
		r, added = b.report.registry(had, b.Limits)
	case importing:
		r, added = importRegistry(known, b.rows.Rows)
	}
	if len(b.names) > 0 {
		r, added = r.registered(b.names, len(had.names))
	}
	script := b.store.scripts.Charge
	switch {
	case b.mode == importing:
		script = b.store.scripts.Import
	case b.divides():
		script = b.store.scripts.Divide
	}
	a, err := b.store.ask(ctx, b.doing(), b.Budget, script, b.keys(r), func(attempt time.Time) []any {
		return b.args(had, r, added, split, attempt)
	})
	if err != nil {
		b.unrun = a.unrun
		return false, err
	}
	done, err := b.read(a)
	if len(added)+len(split) > 0 && a.status == statusDone && !errors.Is(err, driver.ErrStoreConfig) {
		b.store.remember(b.Budget, r)
	}
	if err == nil && a.status == statusDone {
		b.keepPlan(list(list(a.rest, 6), 7), r)
	}
	return done, err
}

// read takes in a run's answer. It returns true when all items are decided.
func (b *batch) read(a answer) (bool, error) {
	b.decided.Now, b.status, b.unsure = earlierClock(a.now, b.Now), a.status, b.unsure || a.unsure && b.aimed
	switch a.status {
	case statusPeriods:
		b.around = numberAt(a.rest, 0)
		return false, nil
	case statusAgain:
		b.names = splitNames(text(a.rest, 0))
		return false, nil
	case statusPlans:
		return false, b.replan(a)
	case statusRegistry, statusDays:
		b.days = withDays(b.historyDays(), a)
		return false, nil
	}
	if !b.isAnswered(a.rest) {
		return false, b.store.strange(b.doing()+" "+b.Budget, a.rest)
	}
	b.born, b.seen, b.looks, b.locks = numberAt(a.rest, 1), numberAt(a.rest, 2), lists(a.rest, 3), text(a.rest, 5)
	b.told, b.lacks, b.holds = readTold(list(a.rest, 6), b.seen), list(a.rest, 7), list(a.rest, 8)
	b.entries = numberAt(a.rest, 9)
	b.decided.Mark, b.decided.AtWork = b.told.mark, b.told.atWork(b.seen)
	answers := lists(a.rest, 0)
	var open []int
	damaged := false
	for j, i := range b.open {
		damaged = damaged || numberAt(answers[j], 0) == resultDamaged
		if !b.take(i, answers[j], a.now) {
			open = append(open, i)
		}
	}
	b.open = open
	b.decided.Seen, b.decided.Used = 0, nil
	if used := list(a.rest, 4); len(used) == len(b.Limits)+1 {
		b.decided.Seen, b.decided.Used = b.seen, make([]int64, len(b.Limits))
		for i := range b.Limits {
			b.decided.Used[i] = numberAt(used, i)
		}
	}
	if damaged {
		return false, b.store.damaged(b.Budget, "m says that more is used than z and y hold")
	}
	return len(open) == 0 && (b.mode != deciding || b.decided.Used != nil), nil
}

// doing names the call in errors.
func (b *batch) doing() string {
	switch b.mode {
	case looking:
		return "look at"
	case recovering, beginningAnew:
		return "recover"
	case reporting:
		return "report on"
	case importing:
		return "import into"
	}
	return "charge"
}

// take reads one item's answer. It returns false if the item must be asked again.
func (b *batch) take(i int, answer []any, now int64) bool {
	result := numberAt(answer, 0)
	switch {
	case result == resultAgain, result == resultDamaged:
		if b.progress == nil {
			b.progress = map[int]string{}
		}
		b.progress[i] = text(answer, 5)
		return false
	case driver.Result(result) == driver.Late && time.Now().Before(b.until[i]):
		// It is late for this attempt only, or by an outdated offset of the server's clock.
		b.store.learnAnew(b.Budget, now)
		return false
	case driver.Result(result) == driver.Late:
		b.decided.Items[i] = b.outOfTime(driver.Late)
		return true
	}
	if driver.Result(result) == driver.Refused && len(answer) > 6+2*len(b.Limits) {
		return b.takeStages(i, answer)
	}
	b.decided.Items[i] = b.decision(b.Items[i], driver.Result(result), answer)
	return true
}

// decision converts a script's answer to a driver.Decision.
func (b *batch) decision(item driver.Item, result driver.Result, answer []any) driver.Decision {
	d := driver.Decision{Result: result, Limit: -1}
	used := func(i int) int64 { return numberAt(answer, 6+2*i) }
	switch result {
	case driver.Granted:
		d.Replayed, d.Units, d.At = numberAt(answer, 1) == 1, numberAt(answer, 2), numberAt(answer, 3)
		d.Limit, d.Remaining = driver.LeastRemaining(b.Limits, item, used)
		d.Observed = b.observed(int(numberAt(answer, 4)))
		if d.Replayed {
			d.Ended, d.First, _ = readReplayed(text(answer, 5))
		}
	case driver.Fenced:
		d.Unsure = b.unsure // the script did not check whether the ledger has the id
	case driver.NeverFits:
		d.Limit = int(numberAt(answer, 4)) - 1
		if d.Limit >= 0 && d.Limit < len(b.Limits) {
			d.Remaining = b.Limits[d.Limit].Remaining(used(d.Limit))
		}
	case driver.Refused:
		var waits []limit.Wait
		d, waits = b.refusal(item, answer)
		d = d.Together(b.Limits, item, waits, numberAt(answer, 3), func(i int) int64 { return b.Limits[i].Remaining(used(i)) })
		d = d.UnlessPlanned(b.Limits, item, numberAt(answer, 3))
	}
	return d
}

func (b *batch) openItems() []driver.Item {
	items := make([]driver.Item, 0, len(b.open))
	for _, i := range b.open {
		items = append(items, b.Items[i])
	}
	return items
}

// args are the arguments of charge.lua. had is the registry that the ledger should have,
// r is had with added. The script charges nothing past the attempt's end.
func (b *batch) args(had, r registry, added, split []string, attempt time.Time) []any {
	mode := b.mode
	if b.seen > 0 && mode == deciding { // all runs of a batch decide at the first run's time
		mode = goingOn
	}
	args := chargeArgs{
		ledgerArgs: ledgerArgs{had.sig, b.Now, b.store.historyOf(b.Budget, b.historyDays())}, Mode: mode, Steps: b.store.maxSteps, Block: b.store.block(), Tidy: append([]int{}, b.tidies...), Observe: b.Observe, Candidate: rand.Text(),
		Ledger: b.Mark.Ledger, Changes: b.Mark.Changes, Seen: b.Mark.Seen, Idle: b.Mark.Kept, Told: []toldArgs{{b.Mark.ID, b.Mark.At}},
		Host: b.Host, Hosts: b.holding(), Table: tableOf(b.Table), Gone: b.gone(), Add: append([]string{}, added...), Split: append([]string{}, split...), Items: make([]itemArgs, len(b.open)),
	}
	for _, other := range b.Others {
		args.Told = append(args.Told, toldArgs{other.ID, other.At})
	}
	if b.mode == deciding {
		args.Plans = b.plans
	}
	args.shape(b.Limits, b.around)
	for i, l := range b.Limits {
		args.Limits[i].Covered = r.covered(l)
		switch b.mode {
		case looking:
			args.Limits[i].Task = b.sums[i].args()
		case recovering, beginningAnew:
			args.Limits[i].Task = b.lost.args(i, l, r)
		case reporting:
			args.Limits[i].Task = b.report.args(l, r)
		}
	}
	if b.mode == importing {
		args.Import = importOf(*b.rows, r)
	}
	if b.divides() {
		args.divide(b.Limits, r)
	}
	args.Covers = [][2]int{}
	if b.mode == deciding || b.mode == looking {
		args.Covers = coversOf(args.Limits, len(r.names))
	}
	serverTime := b.store.serverTimes(b.Budget)
	b.aim()
	var spent spentSeries
	for j, i := range b.open {
		item := &b.Items[i]
		a := &args.Items[j]
		*a = itemArgs{
			ID: item.ID, Units: item.Units, Lease: item.Lease, Dry: item.DryRun,
			Deadline: serverTime(earlier(b.until[i], attempt)), Fence: item.Fence, Labels: labelText(item.Labels),
			Progress: b.progress[i], Bounds: make([]int64, len(b.Limits)),
		}
		if args.Kept > 0 && !item.IsHold() {
			spent.add(item)
		}
		b.hold(a, item, r)
		if staged := b.staged[i]; staged != nil {
			a.From = staged.from
		}
		if item.Recorded {
			a.Age = &item.Age
		}
		for k, l := range b.Limits {
			a.Bounds[k] = unbound
			if item.CheckedBy(l) {
				a.Bounds[k] = l.Bound(item.Floor, item.UseHeadroom)
				a.Never = neverPlace(a.Never, k, *item, l)
			}
			if args.Divided {
				a.Own = append(a.Own, 1+l.ShareOf(item.Labels.Job))
			}
			if item.Floor > 0 && (args.Divided || item.Fence != "") {
				a.Rooms = append(a.Rooms, l.Bound(0, item.UseHeadroom))
			}
		}
	}
	args.Spent = spent.String()
	return arguments(args)
}
