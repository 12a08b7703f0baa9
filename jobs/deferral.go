package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// deferred is what a pass left when the units were gone: it waits in its job's document
// until they return, or until the job's next tick. Nothing of it runs meanwhile.
type deferred struct {
	Tick    int64    `json:"tick"` // µs
	Part    int      `json:"part"` // the number of the part that is left, 2 or more
	Kind    Kind     `json:"kind"`
	Request *Request `json:"request,omitempty"` // of a pass that a person asked for
	// At is the instant (µs, the store's clock) at which to look whether the units are
	// there. It was set at Set, by the same clock: one that stands before that was set
	// back, and the instant cannot be trusted.
	At  int64 `json:"at"`
	Set int64 `json:"set"`
	// Held: other passes hold what it waits for, and may give that back before At. HoldsEnded
	// is how many holds of the budget had ended early when that was found; −1: not known.
	Held       bool  `json:"held,omitempty"`
	HoldsEnded int64 `json:"holds_ended,omitempty"`
	// NotBefore is an instant (µs, the store's clock) before which nobody looks at all, for the
	// upstream asked to wait; 0: none.
	NotBefore int64 `json:"not_before,omitempty"`
	// Pauses is how many parts in a row have ended without an instant that tells when to go on.
	Pauses int `json:"pauses,omitempty"`
	// Since is when (µs, the wall clock of a daemon) the pass was deferred: the first tick
	// after it ends the wait.
	Since   int64    `json:"since"`
	Regions []string `json:"regions"` // in their order
	// Record is the ID of its record, and SoFar is that record.
	Record string          `json:"record"`
	SoFar  json.RawMessage `json:"so_far"`

	// wait is the least time until At, for an instant that is not known by the store's
	// clock. Patient: nobody looks before At.
	wait    time.Duration
	patient bool
}

// due is when (µs, the store's clock) to look if the units are there, where so many holds
// have ended early. It is past if the clock was set back.
func (d *deferred) due(at clocks, holdsEnded int64) int64 {
	switch {
	case at.now < d.Set:
		return at.now
	case d.Held && d.HoldsEnded != holdsEnded:
		return d.NotBefore
	}
	return d.At
}

// waits returns where a deferred pass waits; −1: it does not.
func (s *state) waits(tick int64, part int) int {
	return slices.IndexFunc(s.Deferred, func(d deferred) bool { return d.Tick == tick && d.Part == part })
}

// left is what the pass leaves to be deferred, nil for nothing. Whatever kept the pass
// from starting, or from its last regions, for want of units: it is called with a record
// whose runs say so, and gives them the reason deferred. ended has noted the instants at
// which the refusals end.
func (p *pass) left(record *Record) *deferred {
	var byPerson *cancelled
	if p.job.OnExhausted != DeferExhausted || p.once || errors.As(context.Cause(p.soft), &byPerson) {
		return nil
	}
	var regions []string
	for i := range record.Runs {
		if run := &record.Runs[i]; run.goesOn(p.job) {
			run.Reason = ReasonDeferred
			regions = append(regions, run.Region)
		}
	}
	if regions == nil {
		return nil
	}
	record.concludeAs(ReasonDeferred)
	claimed := &p.held.claim
	d := &deferred{
		Tick: claimed.Tick, Part: max(claimed.Part, 1) + 1, Kind: claimed.Kind, Request: claimed.Request,
		Regions: regions, Record: claimed.recordID(),
	}
	p.unitsReturn(d, *record, claimed.amends(*record))
	return d
}

// goesOn reports whether a run that had no units can go on where it was: it was not
// started, has spent nothing, or keeps checkpoints.
func (r *Run) goesOn(j *Job) bool {
	switch {
	case r.Outcome == Skipped:
		return r.Reason == ReasonExhausted
	case r.Outcome != Exhausted:
		return false
	}
	return r.Started.IsZero() || j.Checkpoint > 0 || r.spentNothing()
}

// The pauses before a pass is tried again whose command says that it is exhausted although
// its needs would fit: the first, doubled for each further one in a row, and the longest.
const (
	firstDeferral = time.Minute
	mostDeferral  = time.Hour
)

// unitsReturn notes when the pass can go on: at an instant of the store's clock, or after a
// wait. The instant is the first refusal's end. Where no refusal names one, as after exit
// code 75, a look at the job's needs does. Nobody looks earlier for a part that went on and
// spent nothing although a look finds the units: what it needs is more than a look asks for.
func (p *pass) unitsReturn(d *deferred, part, soFar Record) {
	p.mu.Lock()
	at, asked := p.returns, max(0, time.Until(p.asksAgain))
	d.At, d.wait, d.Held, d.HoldsEnded = at, asked, p.besideHolds, -1
	p.mu.Unlock()
	d.patient = p.held.claim.Part > 1 && part.Units == 0 && !part.Unknown
	if at != 0 && p.job.Hold == HoldNone && !d.patient {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.hard), claimTimeout)
	defer cancel()
	if p.job.Hold != HoldNone { // what it held itself is back meanwhile
		d.At, d.Held = 0, false
	}
	var refused *budget.RefusedError
	switch {
	case errors.As(p.runner.look(ctx, p.job, d.Regions, soFar, p.budget), &refused) && !refused.RetryAt.IsZero():
		d.At, d.Held, d.patient = soonest(p.budget, refused), refused.Held > 0, false // others took what it needs
	case d.At != 0:
	case asked == 0 && (at == 0 || d.patient) && !slices.ContainsFunc(part.Runs, func(run Run) bool { return run.Outcome == Succeeded }):
		// else the units that were not there are back, or others of its runs had them
		d.Pauses = p.held.claim.Pauses + 1
		d.wait = min(firstDeferral<<min(d.Pauses-1, 10), mostDeferral)
	}
}

// soonest is the first instant (µs, the store's clock) at which a look may find what a
// refusal says is not there: its end, or before that the instant at which what is reserved now
// would return if it were spent at once. What is held may be given back at any time: that is
// found otherwise.
func soonest(in *budget.Budget, refused *budget.RefusedError) int64 {
	at := refused.RetryAt
	if refused.Held == 0 {
		at = at.Add(in.Soonest(refused) - refused.RetryAfter)
	}
	return at.UnixMicro()
}

// noteRefusal remembers when what refused a run ends: by the store's clock, or after a wait
// that the upstream asks for. Of several instants the first counts.
func (p *pass) noteRefusal(end *ending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var refused *budget.RefusedError
	if errors.As(end.err, &refused) {
		p.besideHolds = p.besideHolds || refused.Held > 0
		if !refused.RetryAt.IsZero() {
			if at := soonest(p.budget, refused); p.returns == 0 || at < p.returns {
				p.returns = at
			}
		}
	}
	if end.wait > 0 {
		if at := time.Now().Add(end.wait); p.asksAgain.IsZero() || at.Before(p.asksAgain) {
			p.asksAgain = at
		}
	}
}

// postpone puts off what a pass has left, in the step that records the pass; it returns
// the record as it is to be stored.
func (j *Job) postpone(s *state, at clocks, d *deferred, record Record) Record {
	d.SoFar, d.Since, d.Set, d.NotBefore = nil, at.wall.UnixMicro(), at.now, at.now+d.wait.Microseconds()
	if d.At = max(d.At, d.NotBefore); d.patient {
		d.NotBefore = d.At
	}
	if reason, why := j.drops(s, at, d); reason != "" {
		return s.drops(d, record, reason, why)
	}
	if len(s.Deferred) >= maxRequests {
		return s.drops(d, record, ReasonLate, fmt.Sprintf("%d passes of the job wait for units already", maxRequests))
	}
	d.SoFar = record.json()
	s.Deferred = append(s.Deferred, *d)
	return record
}

// dropDeferred records and drops the deferred passes that did not go on in time.
func (j *Job) dropDeferred(s *state, at clocks, done *stepped) {
	s.Deferred = slices.DeleteFunc(s.Deferred, func(d deferred) bool {
		reason, why := j.drops(s, at, &d)
		if reason != "" {
			done.record(d.Record, s.drops(&d, d.soFar(), reason, why))
		}
		return reason != ""
	})
}

// drops says why a deferred pass does not go on; empty: it still may.
func (j *Job) drops(s *state, at clocks, d *deferred) (reason, why string) {
	newer := func(tick int64) bool { return tick > d.Tick && tick <= at.wall.UnixMicro() }
	next := j.Next(time.UnixMicro(max(d.Since, d.Tick))) // a clock that is behind has not come to its own tick
	switch {
	case s.Pause != nil:
		return ReasonPaused, pausedText(*s.Pause)
	case j.OnExhausted != DeferExhausted:
		return ReasonRemoved, "on_exhausted is no longer \"defer\""
	case !slices.ContainsFunc(d.Regions, func(region string) bool { return slices.Contains(j.Regions, region) }):
		return ReasonRemoved, "the job no longer has these regions"
	case !next.IsZero() && !next.After(at.wall),
		slices.ContainsFunc(s.Recent, newer),
		slices.ContainsFunc(s.Waiting, func(w waiting) bool { return newer(w.Tick) }):
		return ReasonNextTick, "the job's next tick came before the units"
	case at.wall.Sub(time.UnixMicro(d.Tick)) > j.MaxLate:
		return ReasonLate, "the units did not come within max_late"
	}
	return "", ""
}

// drops has the next pass begin with what a deferred pass leaves, and returns the record of
// the deferred pass.
func (s *state) drops(d *deferred, record Record, reason, why string) Record {
	for _, region := range d.Regions {
		if !slices.Contains(s.First, region) {
			s.First = append(s.First, region)
		}
	}
	record = record.dropped(reason, why)
	s.Last = record.brief().json()
	return record
}

// soFar is the record of a deferred pass.
func (d *deferred) soFar() Record {
	record, err := readRecord(d.SoFar)
	if err != nil { // written by another version
		record = Record{Tick: InstantOf(d.Tick), Kind: d.Kind, Runs: []Run{}}
	}
	return record
}

// goOn claims a deferred pass if the daemon may: it has looked and found the units.
func (j *Job) goOn(s *state, at clocks, me claimant) *claim {
	i := s.waits(me.deferredTick, me.deferredPart)
	if i < 0 {
		return nil
	}
	d := s.Deferred[i]
	s.Deferred = slices.Delete(s.Deferred, i, i+1)
	regions := slices.DeleteFunc(slices.Clone(d.Regions), func(region string) bool { return !slices.Contains(j.Regions, region) })
	return s.claim(claim{
		Tick: d.Tick, Kind: d.Kind, Budget: j.Budget, Request: d.Request,
		Part: d.Part, Record: d.Record, Before: d.SoFar, Regions: regions, Pauses: d.Pauses,
	}, at, me)
}

// putBack puts a pass that went on, but started nothing, back to wait.
func (s *state) putBack(c *claim, at clocks) {
	s.Deferred = append(s.Deferred, deferred{
		Tick: c.Tick, Part: c.Part, Kind: c.Kind, Request: c.Request, At: at.now, Set: at.now, Since: at.wall.UnixMicro(),
		Regions: c.Regions, Record: c.Record, SoFar: c.Before, Pauses: c.Pauses,
	})
}

// DeferredPass is a pass that goes on once its units return.
type DeferredPass struct {
	Tick Instant `json:"tick"`
	// Part is the number of the part that is left: 2 for a pass that was deferred once.
	Part int `json:"part"`
	// At is the instant, by the store's clock, at which a daemon looks whether it can go
	// on.
	At      Instant  `json:"at"`
	Regions []string `json:"regions"` // that are left
}

func (d *deferred) pass() DeferredPass {
	return DeferredPass{InstantOf(d.Tick), d.Part, InstantOf(d.At), d.Regions}
}

// dropAll records and drops all deferred passes of a job.
func (s *state) dropAll(reason, why string) (done stepped) {
	for _, d := range s.Deferred {
		done.record(d.Record, s.drops(&d, d.soFar(), reason, why))
	}
	s.Deferred, done.changed = nil, len(s.Deferred) > 0
	return done
}

// wasDeferred makes it known that the pass was deferred.
func (p *pass) wasDeferred(ctx context.Context, d *deferred) {
	p.log.Info("pass deferred until its units return", "tick", formatTick(p.tick), "part", d.Part, "regions", fmt.Sprint(d.Regions), "until", time.UnixMicro(d.At).UTC().Format(InstantFormat))
	if err := notifyDaemons(ctx, p.held.docs.state, p.job.Name); err != nil { // they find it in their sweeps
		p.log.Debug("the other daemons could not be notified of the deferred pass", "error", err)
	}
}

// dropRemoved records and drops the deferred passes of a job that a reload has removed.
func (d *daemon) dropRemoved(j *Job) {
	ctx, cancel := context.WithTimeout(d.ctx, d.runner.docs.hold())
	defer cancel()
	err := d.insist(func() error {
		_, err := d.runner.step(ctx, j, func(s *state, _ clocks) (stepped, error) {
			return s.dropAll(ReasonRemoved, "the configuration no longer has the job"), nil
		})
		return err
	})
	if err != nil && d.ctx.Err() == nil {
		d.runner.log.Warn("the deferred passes of a job that was removed could not be dropped", "job", j.Name, "error", err)
	}
}
