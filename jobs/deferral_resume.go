package jobs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
)

const (
	// turnHold is how long a daemon holds the turn of a budget: once to look and claim, and once
	// more until the pass that goes on has spent or holds something. turnPoll is the interval
	// between attempts to take it. Together they bound what a daemon that dies costs the others.
	turnHold = 500 * time.Millisecond
	turnPoll = 100 * time.Millisecond
	// lookPause is the shortest time until a deferred pass that was put off is due again, unless a
	// hold ends meanwhile.
	lookPause = 250 * time.Millisecond
)

// candidate is a deferred pass that may go on if its units are there.
type candidate struct {
	job       *Job
	left      deferred
	due       bool  // its instant has come
	guarantee int64 // of the job's share, the largest over the limits of the budget
}

// overview is what a daemon saw of the deferred passes of a budget.
type overview struct {
	// list are those that no other pass keeps and that may be looked at, in the order in
	// which they go on.
	list []candidate
	due  bool          // the instant of one of them has come
	wait time.Duration // until the next of the others
	more bool          // something is deferred
	went bool          // a pass went on: there may be units for another
	held bool          // one of the others waits for holds to end
	jobs []*Job        // of the budget, as they are configured
	// kept: one may not go on yet, though it could before its instant. looked: all were looked
	// at.
	kept, looked bool
	// holdsEnded is how many holds of the budget have ended early, and set when the last of
	// the passes was deferred or put off (µs, the store's clock).
	holdsEnded, set int64
}

// resumeNext has the first of a budget's deferred passes go on whose units are there, if the
// instant of one has come or it looks early. It returns what it saw, with how long to wait
// before it is called again.
//
// The passes of one budget come in order, over all daemons: a daemon looks and claims only
// while it has the turn of the budget, and keeps it until the pass has spent or holds
// something. So each look sees what is left by those before. When the instant of one has come,
// all before it are looked at first: units are there that their refusals did not know of.
func (d *daemon) resumeNext(of string, early bool) (seen overview) {
	ctx, cancel := context.WithTimeout(d.ctx, d.runner.docs.hold())
	defer cancel()
	again := func(wait time.Duration) overview {
		seen.wait, seen.more = wait, true
		return seen
	}
	seen, err := d.see(ctx, of)
	switch {
	case err != nil:
		d.runner.log.Debug("the deferred passes of a budget could not be read; trying again", "budget", of, "error", err)
		return again(retryPause)
	case len(seen.list) == 0, !seen.due && !early:
		return seen
	}
	if err := d.leaveWithSlots(ctx, of, &seen); err != nil || len(seen.list) == 0 {
		return again(slotPoll)
	}
	if !seen.due && !early {
		return seen
	}
	// The turn is taken only if something fits: it costs two writes.
	if !seen.due {
		fits, asked := false, true
		for _, c := range seen.list {
			err := d.look(ctx, c)
			fits, asked = fits || err == nil, asked && !errors.Is(err, budget.ErrUnavailable)
		}
		if !fits {
			seen.looked = asked && !seen.kept
			return seen
		}
	}
	me := newHolder()
	switch mine, err := d.runner.docs.takeTurn(ctx, of, me); {
	case err != nil:
		return again(retryPause)
	case !mine:
		return again(turnPoll)
	}
	defer d.runner.docs.freeTurn(ctx, of, me)
	if seen, err = d.see(ctx, of); err == nil && len(seen.list) > 0 {
		err = d.leaveWithSlots(ctx, of, &seen)
	}
	if err != nil || len(seen.list) == 0 {
		seen.wait, seen.more = min(seen.wait, retryPause), seen.more || err != nil
		return seen
	}
	put := false
	for _, c := range seen.list {
		went, wait := d.resume(ctx, c, seen.holdsEnded, me)
		if seen.went = went; went || wait > 0 {
			return again(wait)
		}
		put = put || c.due
	}
	seen.looked = !seen.kept
	if put {
		return again(0)
	}
	return seen
}

// leaveWithSlots leaves those passes that have a slot. While there are others, it does not take
// long until they are looked at again.
func (d *daemon) leaveWithSlots(ctx context.Context, of string, seen *overview) error {
	list, err := d.withSlots(ctx, of, seen.list)
	if err != nil || len(list) == len(seen.list) {
		return err
	}
	seen.list, seen.kept, seen.wait = list, true, min(seen.wait, slotPoll)
	seen.due = slices.ContainsFunc(list, func(c candidate) bool { return c.due })
	return nil
}

// see reads the deferred passes of a budget.
func (d *daemon) see(ctx context.Context, of string) (seen overview, err error) {
	var jobs []*Job
	names := []string{turnOf(of)}
	for _, j := range d.runner.list() {
		if j.Budget == of {
			jobs, names = append(jobs, j), append(names, j.Name)
		}
	}
	seen.wait, seen.jobs = sweepEvery, jobs
	if len(jobs) == 0 {
		return seen, nil
	}
	found, err := d.runner.docs.state.Jobs(ctx, names)
	if err != nil {
		return seen, err
	}
	facts, err := readDocument[turn](names[0], found[0])
	if err != nil {
		return seen, err
	}
	seen.holdsEnded = facts.HoldsEnded
	for i, j := range jobs {
		found := found[i+1]
		s, err := d.known(j.Name, found)
		if err != nil {
			continue // a visit to the job logs it
		}
		at := clocks{wall: d.runner.now(), store: found.Wall, now: found.Now}
		for _, left := range s.Deferred {
			seen.more, seen.set = true, max(seen.set, left.Set)
			look := left.due(at, seen.holdsEnded)
			if look > at.now {
				seen.wait = min(seen.wait, time.Duration(look-at.now)*time.Microsecond)
				seen.held = seen.held || left.Held
			}
			if at.now < left.NotBefore || !j.free(s) {
				seen.kept = seen.kept || look > left.NotBefore // there may be units for it before its instant
			} else {
				seen.list = append(seen.list, candidate{j, left, look <= at.now, d.runner.guarantee(j)})
				seen.due = seen.due || look <= at.now
			}
		}
	}
	slices.SortFunc(seen.list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.guarantee, a.guarantee), cmp.Compare(a.left.Tick, b.left.Tick), cmp.Compare(a.job.Name, b.job.Name))
	})
	seen.wait = max(seen.wait, 0)
	return seen, nil
}

// guarantee is what the job's share is guaranteed, the most over the limits of its budget.
func (r *Runner) guarantee(j *Job) (most int64) {
	spends := r.budget(j.Budget)
	if spends == nil {
		return 0
	}
	for _, l := range spends.Spec().Limits {
		if share := l.ShareOf(j.Name); share >= 0 {
			most = max(most, l.Guarantees()[share])
		}
	}
	return most
}

// look checks whether the units of a deferred pass are there.
func (d *daemon) look(ctx context.Context, c candidate) error {
	return d.runner.look(ctx, c.job, c.left.Regions, c.left.soFar(), d.runner.budget(c.job.Budget).ForJob(c.job.Name, c.job.says()))
}

// resume looks whether the units of a deferred pass are there. If so, it begins the pass
// and waits until the pass has spent something; else it puts the pass off, if its instant has
// come. It returns whether the pass has begun, and how long to wait before the next is looked
// at. HoldsEnded is what was seen before the look.
func (d *daemon) resume(ctx context.Context, c candidate, holdsEnded int64, holder string) (went bool, wait time.Duration) {
	log := d.runner.log.With("job", c.job.Name, "budget", c.job.Budget, "tick", formatTick(time.UnixMicro(c.left.Tick)), "part", c.left.Part)
	err := d.look(ctx, c)
	var refused *budget.RefusedError
	known := errors.As(err, &refused) && !refused.RetryAt.IsZero()
	switch {
	case ctx.Err() != nil, errors.Is(err, budget.ErrUnavailable):
		return false, retryPause
	case !c.due && err != nil:
		return false, 0
	case errors.Is(err, budget.ErrTooManyHolds):
		if d.runner.docs.putOff(ctx, c, deferred{wait: holdsPause}) != nil {
			return false, retryPause
		}
		return false, 0
	case known:
		at := soonest(d.runner.budget(c.job.Budget), refused)
		if err := d.runner.docs.putOff(ctx, c, deferred{At: at, Held: refused.Held > 0, HoldsEnded: holdsEnded}); err != nil {
			log.Debug("a deferred pass could not be put off; trying again", "error", err)
			return false, retryPause
		}
		log.Debug("the units of a deferred pass have not returned", "limit", refused.Limit, "until", time.UnixMicro(at).UTC().Format(InstantFormat))
		return false, 0
	}
	me := claimant{holder: holder, hold: d.runner.docs.hold(), deferredTick: c.left.Tick, deferredPart: c.left.Part}
	d.mu.Lock()
	f := d.jobs[c.job.Name]
	if f != nil {
		me.since, me.known = f.since, f.known
	}
	d.mu.Unlock()
	if f == nil { // it was removed meanwhile
		return false, lookPause
	}
	done, s, err := d.takeDeferred(ctx, c.job, me)
	switch {
	case err != nil:
		log.Debug("a deferred pass could not be claimed; trying again", "error", err)
		return false, retryPause
	case done.claim == nil && !done.changed:
		return false, lookPause
	case done.claim == nil:
		return true, 0
	case done.claim.Part > 1:
		log.Info("a deferred pass goes on", "regions", done.claim.Regions)
	}
	begun := d.begin(c.job, *done.claim, s.NextRegion, "")
	if _, err := d.runner.docs.takeTurn(ctx, c.job.Budget, holder); err != nil { // the look and the claim may have taken most of it
		log.Debug("the turn of a budget was not renewed", "error", err)
	}
	select {
	case <-begun:
	case <-time.After(turnHold):
	case <-d.soft.Done():
	}
	return true, 0
}

// takeDeferred takes the step in which a deferred pass may be claimed. If the store does not
// answer, it asks again with the same claim, which may have been made.
func (d *daemon) takeDeferred(ctx context.Context, j *Job, me claimant) (done stepped, s *state, err error) {
	err = d.insist(func() error {
		done, s, _, err = d.runner.takeStep(ctx, j, me)
		return err
	})
	return done, s, err
}

// insist repeats do while the store does not answer, for half of the time for which a claim
// is valid.
func (d *daemon) insist(do func() error) error {
	for giveUp := d.runner.now().Add(d.runner.docs.hold() / 2); ; {
		err := do()
		if !errors.Is(err, budget.ErrUnavailable) || !d.runner.now().Before(giveUp) || waitFor(d.soft, retryPause) != nil {
			return err
		}
	}
}

// putOff has a deferred pass wait until a later instant, and for a while at least.
func (d *documents) putOff(ctx context.Context, c candidate, until deferred) error {
	return d.change(ctx, c.job, func(s *state, at clocks) (edit, error) {
		i := s.waits(c.left.Tick, c.left.Part)
		if i < 0 {
			return edit{}, errStays
		}
		wait := &s.Deferred[i]
		wait.At = max(until.At, at.now+max(lookPause, until.wait).Microseconds())
		wait.Set, wait.Held, wait.HoldsEnded = at.now, until.Held, until.HoldsEnded
		return edit{}, nil
	})
}
