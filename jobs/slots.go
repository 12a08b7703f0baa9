package jobs

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"time"
)

const (
	// slotPoll is the interval between attempts to take a shared slot.
	slotPoll = 500 * time.Millisecond
	// slotWait is how long a run counts as waiting for a slot after its last attempts.
	slotWait = 10 * time.Second
)

// slots is a document that lists the holders of a bounded number of slots.
type slots struct {
	Held []slot `json:"held"`
	// Waiting are runs that wait for a slot, the first as many as there are slots: a deferred
	// pass that comes after them does not begin before them.
	Waiting []waiter `json:"waiting,omitempty"`
}

// waiter is a run that waits for a slot, and the place of its pass in the order.
type waiter struct {
	slot
	Guarantee int64 `json:"guarantee,omitempty"` // of the job's share
	Tick      int64 `json:"tick"`                // µs
}

// precedes reports whether the run comes before those of a pass, or is one of them.
func (w *waiter) precedes(guarantee, tick int64) bool {
	return w.Guarantee > guarantee || w.Guarantee == guarantee && w.Tick <= tick
}

// slot is held until an instant (µs, the store's clock) unless it is renewed; it is free
// again once its holder is dead.
type slot struct {
	Holder string `json:"holder"`
	Until  int64  `json:"until"`
}

// The names of the documents that several jobs share begin with '@'; no job's name
// does.
func runSlots(of string) string   { return "@runs/" + of }
func catchUpSlot(b string) string { return "@catch_up/" + b }

// takeSlot takes one of most slots; false if all are taken.
func (d *documents) takeSlot(ctx context.Context, name, holder string, most int) (taken bool, err error) {
	return d.trySlot(ctx, name, most, waiter{slot: slot{Holder: holder}}, false)
}

// trySlot takes one of most slots; false if all are taken, and then the run is noted as
// waiting if it waits. A holder keeps the slot that it has, however many there are by now: the
// answer to an earlier attempt may have been lost.
func (d *documents) trySlot(ctx context.Context, name string, most int, run waiter, waits bool) (taken bool, err error) {
	holder := run.Holder
	err = changeDocument(ctx, d.state, name, d.now, 0, func(s *slots, at clocks) (edit, error) {
		past := map[string]int64{}
		for _, held := range s.Held {
			if at.past(held.Until, d.hold()) && held.Holder != holder {
				past[held.Holder] = held.Until
			}
		}
		dead, _ := d.watch.dead(name, past)
		s.Held = slices.DeleteFunc(s.Held, func(held slot) bool { return dead[held.Holder] })
		taken = s.has(holder) || len(s.Held) < most
		if !taken && (!waits || s.noted(run, most, at)) {
			return edit{}, errStays
		}
		s.Waiting = slices.DeleteFunc(s.Waiting, func(one waiter) bool { return one.Holder == holder || at.past(one.Until, slotWait) })
		if taken {
			s.put(holder, at.now+d.hold().Microseconds())
		} else {
			run.Until = at.now + slotWait.Microseconds()
			s.Waiting = append(s.Waiting, run)
		}
		return edit{}, nil
	})
	if err != nil {
		d.watch.forget(name)
	}
	return taken && err == nil, err
}

// noted reports whether a run is noted as waiting, for half of slotWait at least, or need not be:
// so many that come before it are.
func (s *slots) noted(run waiter, most int, at clocks) bool {
	before := 0
	for i := range s.Waiting {
		one := &s.Waiting[i]
		if one.Holder == run.Holder {
			return !at.past(one.Until-slotWait.Microseconds()/2, slotWait)
		}
		if !at.past(one.Until, slotWait) && one.precedes(run.Guarantee, run.Tick) {
			before++
		}
	}
	return before >= most
}

// renewSlot renews a slot, whatever the bound is by now: its run is under way, so it
// counts. stood is false if the slot was lost, with the store's data or because its
// holder was declared dead; the holder then takes it again, so that others do not count
// on units that the run still uses.
func (d *documents) renewSlot(ctx context.Context, name, holder string) (stood bool, err error) {
	err = changeDocument(ctx, d.state, name, d.now, 0, func(s *slots, at clocks) (edit, error) {
		stood = s.has(holder)
		s.put(holder, at.now+d.hold().Microseconds())
		return edit{}, nil
	})
	if err != nil { // then others cannot renew either
		d.watch.forget(name)
	}
	return stood, err
}

func (s *slots) has(holder string) bool {
	return slices.ContainsFunc(s.Held, func(held slot) bool { return held.Holder == holder })
}

// put gives the holder a slot until an instant, and replaces the one that it has.
func (s *slots) put(holder string, until int64) {
	s.Held = slices.DeleteFunc(s.Held, func(held slot) bool { return held.Holder == holder })
	s.Held = append(s.Held, slot{holder, until})
}

// freeSlot releases a slot. A slot that cannot be released expires.
func (d *documents) freeSlot(ctx context.Context, name, holder string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalWriteTimeout)
	defer cancel()
	err := changeDocument(ctx, d.state, name, d.now, 0, func(s *slots, _ clocks) (edit, error) {
		before := len(s.Held) + len(s.Waiting)
		s.Held = slices.DeleteFunc(s.Held, func(one slot) bool { return one.Holder == holder })
		s.Waiting = slices.DeleteFunc(s.Waiting, func(one waiter) bool { return one.Holder == holder })
		if len(s.Held)+len(s.Waiting) == before {
			return edit{}, errStays
		}
		return edit{}, nil
	})
	if err != nil {
		d.log.Debug("a slot could not be released; it expires by itself", "slot", name, "error", err)
	}
}

// keepSlot renews a slot until the returned function releases it.
func (d *documents) keepSlot(ctx context.Context, log *slog.Logger, name, holder string) (free func()) {
	renewing, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for waitFor(renewing, d.heartbeat) == nil {
			stood, err := d.renewSlot(renewing, name, holder)
			switch {
			case renewing.Err() != nil:
			case err != nil:
				log.Warn("a slot was not renewed; trying again", "slot", name, "error", err)
			case !stood:
				log.Warn("the slot of a run under way was declared dead, or lost with the store's data; the run has taken it again, and more runs than parallel allows may be under way", "slot", name)
			}
		}
	}()
	return func() {
		cancel()
		<-done
		d.freeSlot(ctx, name, holder)
	}
}

// runSlot names a kind of slot that a run needs, and how many there are.
type runSlot struct {
	name string
	most int
}

// slotsNeeded are the slots that a run of the job needs: one of its budget's, if the
// configuration bounds them, and one of the job's, if several of its passes may run at
// once. The bounds are those in force now, the same for all that wait.
func (p *pass) slotsNeeded() []runSlot {
	job, ofBudget := p.job, p.runner.parallel(p.job.Budget, p.job.BudgetParallel)
	for _, j := range p.runner.list() {
		if j.Name == job.Name {
			job = j
		}
	}
	var list []runSlot
	if job.Overlap == Allow && job.Parallel > 0 {
		list = append(list, runSlot{runSlots(job.Name), job.Parallel})
	}
	if ofBudget > 0 {
		list = append(list, runSlot{runSlots(p.job.Budget), ofBudget})
	}
	return list
}

// parallel is how many runs of a budget may be under way now, 0 for any number; otherwise if the
// configuration no longer has a job of it.
func (r *Runner) parallel(of string, otherwise int) int {
	for _, j := range r.list() {
		if j.Budget == of {
			return j.BudgetParallel
		}
	}
	return otherwise
}

// mostNow is how many slots of a name there are now; a reload may have changed that.
func (p *pass) mostNow(name string) int {
	for _, s := range p.slotsNeeded() {
		if s.name == name {
			return s.most
		}
	}
	return math.MaxInt
}

// takeSlots waits until a run has all the slots that it needs, and renews them until free
// is called. It returns an ending if the pass ends meanwhile, or another region is
// exhausted.
func (p *pass) takeSlots(region string, over context.Context) (free func(), end *ending) {
	needed := p.slotsNeeded()
	if len(needed) == 0 {
		return func() {}, nil
	}
	holder := p.held.claim.Holder + "/" + region
	run := waiter{slot{Holder: holder}, p.runner.guarantee(p.job), p.held.claim.Tick}
	var frees []func()
	free = func() {
		for _, one := range frees {
			one()
		}
	}
	for _, s := range needed {
		for {
			taken, err := p.runner.docs.trySlot(p.hard, s.name, p.mostNow(s.name), run, s.name == runSlots(p.job.Budget))
			if err != nil {
				p.log.Debug("a slot could not be requested; trying again", "slot", s.name, "region", region, "error", err)
			}
			if taken {
				break
			}
			if end := waitFor(over, slotPoll); end != nil {
				free()
				p.runner.docs.freeSlot(p.hard, s.name, holder) // the answer to an attempt may have been lost
				return nil, end
			}
		}
		frees = append(frees, p.runner.docs.keepSlot(p.hard, p.log.With("region", region), s.name, holder)) // renewed also while waiting for the next one
	}
	return free, nil
}

// turn is a document that says which daemon may have a deferred pass of a budget go on. That
// keeps the order; that a pass goes on once is up to its claim.
type turn struct {
	Holder string `json:"holder,omitempty"`
	Until  int64  `json:"until,omitempty"` // µs, the store's clock
	// HoldsEnded is how many holds of the budget have ended early, with something left.
	HoldsEnded int64 `json:"holds_ended,omitempty"`
}

func turnOf(b string) string { return "@deferred/" + b }

// takeTurn takes the turn of a budget; false if another daemon has it.
func (d *documents) takeTurn(ctx context.Context, of, holder string) (mine bool, err error) {
	err = changeDocument(ctx, d.state, turnOf(of), d.now, 0, func(t *turn, at clocks) (edit, error) {
		if mine = t.Holder == "" || t.Holder == holder || at.past(t.Until, turnHold); !mine {
			return edit{}, errStays
		}
		t.Holder, t.Until = holder, at.now+turnHold.Microseconds()
		return edit{}, nil
	})
	return mine && err == nil, err
}

// freeTurn gives the turn up. One that cannot be given up soon ends.
func (d *documents) freeTurn(ctx context.Context, of, holder string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalWriteTimeout)
	defer cancel()
	err := changeDocument(ctx, d.state, turnOf(of), d.now, 0, func(t *turn, _ clocks) (edit, error) {
		if t.Holder != holder {
			return edit{}, errStays
		}
		t.Holder, t.Until = "", 0
		return edit{}, nil
	})
	if err != nil {
		d.log.Debug("the turn of a budget could not be given up; it ends by itself", "budget", of, "error", err)
	}
}

// announceHoldEnd has the daemons look again for those deferred passes of a budget that wait
// for what other passes hold: a hold has ended early. There are none while nobody has taken
// the budget's turn.
func (r *Runner) announceHoldEnd(ctx context.Context, of string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	found, err := r.docs.state.Job(ctx, turnOf(of))
	if err == nil && found.Text == nil {
		return
	}
	err = changeDocument(ctx, r.docs.state, turnOf(of), r.docs.now, 0, func(t *turn, _ clocks) (edit, error) {
		t.HoldsEnded++
		return edit{}, nil
	})
	if err != nil { // then they look when the hold's lease would have ended
		r.log.Debug("that a hold has ended could not be announced", "budget", of, "error", err)
	}
}

// withSlots are those of the deferred passes of a budget for which there is a slot, beside the
// runs that are under way, or wait and come before the pass. A slot that was not renewed in time
// does not count: that its holder is dead is found out by the run that takes the slot.
func (d *daemon) withSlots(ctx context.Context, of string, list []candidate) ([]candidate, error) {
	most := d.runner.parallel(of, 0)
	if most == 0 {
		return list, nil
	}
	found, err := d.runner.docs.state.Job(ctx, runSlots(of))
	if err != nil {
		return nil, err
	}
	s, err := readDocument[slots](runSlots(of), found)
	if err != nil {
		return nil, err
	}
	at := clocks{now: found.Now}
	for _, one := range s.Held {
		if !at.past(one.Until, d.runner.docs.hold()) {
			most--
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(c candidate) bool {
		left := most
		for i := range s.Waiting {
			if one := &s.Waiting[i]; !at.past(one.Until, slotWait) && one.precedes(c.guarantee, c.left.Tick) {
				left--
			}
		}
		return left <= 0
	}), nil
}
