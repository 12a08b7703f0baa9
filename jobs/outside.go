package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/proc"
)

// OutsideRun is a run that this process makes for whoever started it.
type OutsideRun struct {
	// Label, Tick and Fence are for the charges of the run; all are zero if the store did not
	// answer when it began.
	Label string
	Tick  time.Time
	Fence int64
	// Line takes what the command prints, line by line: see [proc.ReadLines].
	Line func(stream, kept string, length int)
}

// OutsideEnd is how such a run ended.
type OutsideEnd struct {
	Code      int                  // the exit code, as a shell has it
	Err       error                // why the command was not started
	Stopped   bool                 // it was ended: by a refusal, its timeout, or a person
	Refused   *budget.RefusedError // the first refusal for good; nil: there is none
	StoreAway bool                 // calls were refused because the store did not decide
	Seen      bool                 // a call to the job's budget was seen
}

// Outside makes a run of a job that somebody else starts: do runs its command. The run is
// recorded like a daemon's. If cron starts the job, the run belongs to the tick that is open,
// unless the region has a run of it; otherwise it is manual. An empty region of a job that has
// regions stands for all of them.
//
// do is not called if the job is paused, or if what it holds does not fit; the pass says so. If
// the store does not answer, do is called all the same, and unrecorded says why there is no
// record, unless the store answers at the end.
func (r *Runner) Outside(ctx context.Context, j *Job, region string, do func(context.Context, OutsideRun) OutsideEnd) (pass Pass, unrecorded error) {
	began := r.now()
	c := claim{Kind: Manual, Budget: j.Budget, Outside: true, Regions: []string{region}, outside: do}
	claimed, end, err := r.claimOutside(ctx, j, c, began)
	switch {
	case err != nil:
		return r.outsideLater(ctx, j, c, began)
	case end != nil:
		record := Record{Tick: Instant{began}, Kind: Manual, Outcome: end.outcome, Reason: end.reason, Error: end.Error(), Runs: []Run{}}
		return Pass{j.Name, record}, nil
	}
	return r.pass(ctx, ctx, j, *claimed, "", true), nil
}

// claimOutside claims a run that began at an instant. The ending says why there is none.
func (r *Runner) claimOutside(ctx context.Context, j *Job, c claim, began time.Time) (got *claim, end *ending, err error) {
	me := claimant{holder: newHolder(), hold: r.docs.hold()}
	dead := false
	_, err = r.step(ctx, j, func(s *state, at clocks) (done stepped, err error) {
		got, end = nil, nil
		if err := at.check(); err != nil {
			return stepped{}, err
		}
		if got = s.claimOf(me.holder); got != nil { // the answer to the claim was lost
			got.outside = c.outside
			return stepped{}, nil
		}
		dead = len(s.lapsed(at, me.hold)) > 0
		var open time.Time
		if j.StartedBy == StartedByCron {
			j.judge(s, at, &done)
			open = j.open(began)
		}
		made := c
		lacks := j.lacks(s, open, c.Regions[0])
		if len(lacks) > 0 {
			made.Tick, made.Kind = open.UnixMicro(), Scheduled
			j.takes(s, open, lacks)
		}
		done.changed = done.changed || made.Kind == Scheduled
		if s.Pause != nil {
			end = &ending{outcome: Skipped, reason: ReasonPaused, err: errors.New(pausedText(*s.Pause))}
			if made.Kind == Scheduled {
				if len(lacks) == len(j.Regions) {
					lacks = nil
				}
				done.skipRegions(open, lacks, *s.Pause)
			}
			return done, nil
		}
		if made.Kind == Manual {
			tick, free := j.freeSecond(began, s.manualBefore(at))
			if !free {
				end = failed(ReasonTick, fmt.Errorf("job %s: %w", j.Name, errNoSecond))
				return done, nil
			}
			made.Tick, s.LastManual = tick.UnixMicro(), tick.UnixMicro()
		} else {
			s.runsAgain(j, lacks)
		}
		got = s.claim(made, at, me)
		done.changed = true
		return done, nil
	})
	if err == nil && dead {
		r.reapDead(ctx, j)
	}
	return got, end, err
}

// runsAgain notes that regions have a run again.
func (s *state) runsAgain(j *Job, regions []string) {
	if s.Missed == nil {
		return
	}
	missing := s.Missed.Regions
	if len(missing) == 0 {
		missing = j.Regions
	}
	s.Missed.Regions = slices.DeleteFunc(slices.Clone(missing), func(region string) bool { return slices.Contains(regions, region) })
	if len(s.Missed.Regions) == 0 {
		s.Missed = nil
	}
}

// lacks are the regions that a run of a region, or of all if it is empty, is the first of for a
// tick; none if the tick is zero.
func (j *Job) lacks(s *state, tick time.Time, region string) (regions []string) {
	if tick.IsZero() {
		return nil
	}
	return slices.DeleteFunc(j.regionsOf(region), func(region string) bool { return s.Taken[region] >= tick.UnixMicro() })
}

// regionsOf are those that a run of a region is for.
func (j *Job) regionsOf(region string) []string {
	if region == "" {
		return slices.Clone(j.Regions)
	}
	return []string{region}
}

// outsideLater makes a run without a claim, and records it if the store answers at its end.
func (r *Runner) outsideLater(ctx context.Context, j *Job, c claim, began time.Time) (Pass, error) {
	run := Run{Region: c.Regions[0], Started: Instant{began}, Unknown: true, Warning: "the store did not answer when it began, so no charge names it"}
	t := &tail{most: tailBytes, hide: func() func(string) string { return r.secrets.hider(j, nil) }}
	within, cancel := context.WithTimeoutCause(ctx, j.Timeout, errTimedOut)
	defer cancel()
	ended := c.outside(within, OutsideRun{Line: t.line})
	run.Ended, run.Log = Instant{r.now()}, t.lines()
	end := ended.ending(within)
	run.finish(end.of(run))
	record := Record{Started: run.Started, Ended: run.Ended, Runs: []Run{run}}
	record.conclude()
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), finalWriteTimeout)
	defer cancel()
	c.outside = nil
	claimed, stays, err := r.claimOutside(ctx, j, c, began)
	if err != nil || stays != nil {
		return Pass{j.Name, record}, errors.Join(err, stays.orNil())
	}
	record.Tick, record.Kind, record.Host = InstantOf(claimed.Tick), claimed.Kind, placeOf(claimed.Holder)
	held := heldClaim{claim: *claimed, docs: r.docs, job: j, log: r.log}
	_, whole, err := held.conclude(ctx, record, nil)
	held.ping(r, whole)
	return Pass{j.Name, whole}, err
}

// orNil is the ending as an error.
func (e *ending) orNil() error {
	if e == nil {
		return nil
	}
	return e
}

// runOutside runs the command of a claimed run, once what the job holds for it is held.
func (p *pass) runOutside() []Run {
	runs := []Run{{Region: p.held.claim.Regions[0]}}
	run := &runs[0]
	p.mu.Lock()
	p.runs, p.regions, p.begun = slices.Clone(runs), 1, 1
	p.mu.Unlock()
	defer p.beats.on(func(ctx context.Context) { p.runner.reapDead(ctx, p.job) })()
	if p.job.Hold != HoldNone {
		defer p.beats.on(p.renewHolds)()
		if end := p.hold(run.Region, p.job.regionsOf(run.Region), p.soft); end != nil {
			p.ended(0, run, end)
			return runs
		}
		defer p.endHold(run.Region)
	}
	run.Started = Instant{p.runner.now()}
	begun := *run
	begun.Unknown = true // until it has ended
	p.note(0, begun)
	end := p.newRun(0, run).outside(p.held.claim.outside)
	run.Ended = Instant{p.runner.now()}
	p.ended(0, run, end)
	return runs
}

// outside runs the command of a run that others start.
func (r *run) outside(do func(context.Context, OutsideRun) OutsideEnd) *ending {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(r.hard, r.job.Timeout, errTimedOut)
	defer cancel()
	ctx, cancel = either(ctx, r.soft)
	defer cancel()
	r.held.claim.spends()
	soFar := *r.record
	soFar.Unknown = true // the ledger is read once it has ended
	stop := r.onBeat(func(context.Context) {
		soFar.Log = r.lines.tail.lines()
		r.publish(soFar)
	})
	ended := do(ctx, OutsideRun{Label: r.label, Tick: r.tick, Fence: r.held.claim.Fence, Line: r.lines.tail.line})
	stop()
	end := ended.ending(ctx)
	if end != nil && !r.held.stands(r.hard) { // the lost claim may be why
		end = fenced()
	}
	r.spentSince(began, true)
	if r.record.Log = r.lines.tail.lines(); !ended.Seen && ended.Err == nil && r.record.spentNothing() {
		r.record.Warning = "quotactl meter saw no call to " + r.job.Budget
	}
	return end.of(*r.record)
}

// ending is how the run ended; nil: it succeeded. ctx is the run's.
func (e OutsideEnd) ending(ctx context.Context) *ending {
	switch {
	case e.Err != nil:
		return failed(ReasonCommand, e.Err)
	case e.Refused != nil:
		return refusal(context.WithoutCancel(ctx), e.Refused)
	case e.Stopped && ctx.Err() != nil:
		return cut(ctx)
	case e.Code == exitExhausted:
		return &ending{outcome: Exhausted, reason: fmt.Sprintf("exit %d", exitExhausted)}
	case e.Code != 0 && e.StoreAway:
		return failed(ReasonStore, fmt.Errorf("the command ended with exit code %d; the store did not decide some of its calls", e.Code))
	case e.Code != 0:
		return failed(fmt.Sprintf("exit %d", e.Code), fmt.Errorf("the command ended with exit code %d", e.Code))
	}
	return nil
}

// line adds a line that a command printed.
func (t *tail) line(stream, kept string, length int) {
	t.add(length, func() string { return stream + ": " + proc.LineText(kept, length, t.hide()) })
}

// complete notes that a run of a region succeeded, and when all regions had one.
func (s *state) complete(j *Job, c *claim, ended int64) {
	if s.Complete == nil {
		s.Complete = map[string]int64{}
	}
	for _, region := range j.regionsOf(c.Regions[0]) {
		s.Complete[region] = ended
	}
	least := ended
	for _, region := range j.Regions {
		least = min(least, s.Complete[region])
	}
	s.LastSuccess = max(s.LastSuccess, least)
}

// merged is a record, or where it is of a tick whose regions have a run each that others started,
// that of all those runs so far.
func (c *claim) merged(s *state, record Record) Record {
	brief := record.brief()
	before, err := readRecord(s.Last)
	if !c.Outside || s.Last == nil || err != nil || c.Kind != Scheduled || before.Kind != Scheduled || !before.Tick.Equal(record.Tick.Time) {
		return brief
	}
	brief.Runs = append(before.Runs, brief.Runs...)
	if before.Started.Before(brief.Started.Time) {
		brief.Started = before.Started
	}
	outcome, reason := brief.Outcome, brief.Reason
	if brief.conclude(); outcome == Lost {
		brief.Outcome, brief.Reason = outcome, reason
	}
	return brief
}

// Complete reports whether a record is of a pass of all regions of the job that succeeded.
func (j *Job) Complete(r Record) bool {
	all := len(r.Runs) >= len(j.Regions) || slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Region == "" })
	return r.Outcome == Succeeded && all
}

// reapDead records the passes of a job as lost whose processes are dead, as far as that is known.
func (r *Runner) reapDead(ctx context.Context, j *Job) {
	me := claimant{hold: r.docs.hold()}
	var lapsed []claim
	reap := func() error {
		_, err := r.step(ctx, j, func(s *state, at clocks) (done stepped, err error) {
			lapsed = s.lapsed(at, me.hold)
			j.reap(s, at, me, &done)
			return done, nil
		})
		return err
	}
	err := reap()
	if err == nil && len(lapsed) > 0 {
		dead, _ := r.dead(j, lapsed)
		for _, c := range lapsed {
			if isGone(c, r.now()) && !slices.ContainsFunc(dead, func(d claim) bool { return d.Holder == c.Holder }) {
				dead = append(dead, c)
			}
		}
		if me.reap, err = r.fence(ctx, j, dead); err == nil && len(dead) > 0 {
			err = reap()
		}
	}
	if err != nil {
		r.log.Debug("it is not known whether earlier runs of the job are lost", "job", j.Name, "error", err)
	}
}

// lapsedLong is for how long a claim was not renewed that no live process can have, unless the
// store's clock has jumped as far.
const lapsedLong = time.Hour

// isGone reports whether the process that had a lapsed claim is surely gone: the claim lapsed long
// ago, or this machine has no such process any more: it has none, or another with its number.
func isGone(c claim, now time.Time) bool {
	if c.silent > lapsedLong {
		return true
	}
	parts := strings.Split(c.Holder, "/")
	host, err := os.Hostname()
	if err != nil || len(parts) != 3 || parts[0] != host {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || pid <= 0 {
		return false
	}
	age, exists := proc.RunsFor(pid)
	const slack = 5 * time.Second // the process began before its claim
	return !exists || age > 0 && age+slack < now.Sub(time.UnixMicro(c.Since))
}
