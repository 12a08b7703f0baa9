package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Overview is what is known of a job.
type Overview struct {
	// NextRegion is the region that the next pass begins with, empty for the first; before
	// it come those in First.
	NextRegion string
	First      []string
	// Last is the record of the last pass that ended, without logs; nil: none.
	Last json.RawMessage
	// LastSuccess is when the last successful pass of all regions ended; zero: none
	// succeeded.
	LastSuccess time.Time
	// Active are the passes under way.
	Active []ActivePass
	// Waiting are ticks that are still to be run.
	Waiting  []WaitingTick
	Requests []Request
	// Deferred are the passes that go on once their units return.
	Deferred []DeferredPass
	Pause    *Pause // nil: it is not paused
	// Followed is the schedule and zone by which daemons have counted the job's ticks so
	// far; empty: no daemon has seen the job.
	Followed string
	// Untaken is the first tick that is a few minutes past and that no daemon has
	// accounted for; zero: there is none, or the daemons counted by another schedule.
	Untaken time.Time
	// Missed are the ticks of a job that cron starts without a run since the last one that had
	// one; nil: there are none.
	Missed *MissedTicks

	state *state
	at    clocks
}

// Overdue are the ticks of the job that a daemon that starts at the instant of the look would
// run, beside those that wait, if no daemon is running: those that are on time, as Scheduled,
// and those to catch up; for a job that cron starts, the tick whose run may still begin.
func (o Overview) Overdue(j *Job) (list []WaitingTick) {
	if o.state == nil || j.Schedule == nil {
		return nil
	}
	if j.StartedBy == StartedByCron {
		if tick := j.open(o.at.wall); !tick.IsZero() && o.Pause == nil && len(j.lacks(o.state, tick, "")) == len(j.Regions) {
			return []WaitingTick{{Instant{tick}, Scheduled}}
		}
		return nil
	}
	var done stepped
	trial := *o.state
	trial.Waiting = slices.Clone(o.state.Waiting)
	before := len(trial.Waiting)
	now := o.at.wall
	due := j.account(&trial, o.at, claimant{since: now, known: now}, &done)
	if len(trial.Waiting) > before {
		for _, w := range trial.Waiting[before:] {
			list = append(list, WaitingTick{InstantOf(w.Tick), w.Kind})
		}
	}
	for _, tick := range due {
		list = append(list, WaitingTick{Instant{tick}, Scheduled})
	}
	return list
}

// ActivePass is a pass under way.
type ActivePass struct {
	Tick  Instant `json:"tick"`
	Kind  Kind    `json:"kind"`
	Since Instant `json:"since"`
	Host  string  `json:"host"`
	// Silent: its daemon did not renew the claim in time.
	Silent bool `json:"silent"`
	// Request is the ID of its request, Note who asked and why; both empty: it has no
	// request.
	Request string `json:"request,omitempty"`
	Note    string `json:"note,omitempty"`
	// Progress is its record so far; nil until the first heartbeat.
	Progress json.RawMessage `json:"progress"`
	// Cancelled: a person cancelled it, and it is about to end; nil: nobody did.
	Cancelled *Cancel `json:"cancelled,omitempty"`
}

// pass describes a claim at an instant of the store's clock (µs).
func (c *claim) pass(now int64) ActivePass {
	return ActivePass{
		Tick: InstantOf(c.Tick), Kind: c.Kind, Since: InstantOf(c.Since), Host: placeOf(c.Holder),
		Silent: c.Until <= now, Request: c.request(), Note: c.note(), Progress: c.Progress, Cancelled: c.Cancel,
	}
}

// WaitingTick is a tick that is still to be run.
type WaitingTick struct {
	Tick Instant `json:"tick"`
	Kind Kind    `json:"kind"`
}

// Look reads what is known of jobs, in the order of list.
func Look(ctx context.Context, in State, list []*Job) ([]Overview, error) {
	names := make([]string, len(list))
	for i, j := range list {
		names[i] = j.Name
	}
	found, err := in.Jobs(ctx, names)
	if err != nil {
		return nil, err
	}
	views := make([]Overview, len(list))
	for i, document := range found {
		s, err := readDocument[state](names[i], document)
		if err != nil {
			return nil, err
		}
		views[i] = s.overview(list[i], document)
	}
	return views, nil
}

// overview describes a job by its document.
func (s *state) overview(j *Job, document driver.JobDocument) Overview {
	view := Overview{state: s, at: clocks{wall: time.UnixMicro(document.Wall).UTC(), store: document.Wall, now: document.Now}, NextRegion: s.NextRegion, First: s.First, Last: s.Last, Requests: s.Requests, Pause: s.Pause, Followed: s.Schedule}
	if s.LastSuccess != 0 {
		view.LastSuccess = time.UnixMicro(s.LastSuccess).UTC()
	}
	for _, c := range s.Active {
		view.Active = append(view.Active, c.pass(document.Now))
	}
	for _, w := range s.Waiting {
		view.Waiting = append(view.Waiting, WaitingTick{InstantOf(w.Tick), w.Kind})
	}
	for _, d := range s.Deferred {
		view.Deferred = append(view.Deferred, d.pass())
	}
	if j.Schedule == nil || s.Schedule != j.counts() {
		return view
	}
	if j.StartedBy == StartedByCron {
		view.Missed = s.missedAt(j, view.at)
		return view
	}
	const patience = 2 * sweepEvery // daemons sweep all jobs that often
	if tick := j.Next(time.UnixMicro(s.Until)); !tick.IsZero() && time.UnixMicro(document.Wall).Sub(tick) > patience {
		view.Untaken = tick
	}
	return view
}

// aliveName is the document that lists the daemons that follow jobs.
const aliveName = "@daemons"

// alive is the content of that document.
type alive struct {
	Daemons []living `json:"daemons"`
}

// living is a daemon, alive until an instant (µs, the store's clock) unless it renews
// that.
type living struct {
	Holder string `json:"holder"`
	Since  int64  `json:"since"` // µs, by the store's wall clock
	Until  int64  `json:"until"`
}

// Daemon is a live daemon that follows jobs.
type Daemon struct {
	Host  string  `json:"host"` // "in process P on HOST"
	Since Instant `json:"since"`
}

// Daemons lists the live daemons, in the order in which they started. A daemon that
// crashed is listed for about a minute more.
func Daemons(ctx context.Context, in State) ([]Daemon, error) {
	found, err := in.Job(ctx, aliveName)
	if err != nil {
		return nil, err
	}
	a, err := readDocument[alive](aliveName, found)
	if err != nil {
		return nil, err
	}
	list := []Daemon{}
	at := clocks{now: found.Now}
	for _, l := range a.Daemons {
		if !at.past(l.Until, 4*DefaultHeartbeat) {
			list = append(list, Daemon{placeOf(l.Holder), InstantOf(l.Since)})
		}
	}
	return list, nil
}

// live registers the daemon as alive until it is drained.
func (d *daemon) live() {
	me := newHolder()
	for {
		if len(d.runner.list()) > 0 { // without jobs it only decides charges
			ctx, cancel := context.WithTimeout(d.ctx, d.runner.options.Heartbeat)
			d.registerAlive(ctx, me, d.runner.docs.hold())
			cancel()
		}
		if waitFor(d.soft, d.runner.docs.hold()/2) != nil {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), finalWriteTimeout)
	defer cancel()
	d.registerAlive(ctx, me, 0)
}

// registerAlive registers the daemon as alive for a while from now; with hold 0 it
// removes the registration.
func (d *daemon) registerAlive(ctx context.Context, me string, hold time.Duration) {
	err := changeDocument(ctx, d.runner.docs.state, aliveName, d.runner.now, 0, func(a *alive, at clocks) (edit, error) {
		mine := living{Holder: me, Since: at.store}
		before := len(a.Daemons)
		a.Daemons = slices.DeleteFunc(a.Daemons, func(l living) bool {
			if l.Holder == me {
				mine.Since = l.Since
			}
			return l.Holder == me || at.past(l.Until, d.runner.docs.hold())
		})
		if hold == 0 && len(a.Daemons) == before {
			return edit{}, errStays
		}
		if hold > 0 {
			mine.Until = at.now + hold.Microseconds()
			a.Daemons = append(a.Daemons, mine)
			slices.SortStableFunc(a.Daemons, func(a, b living) int { return cmp.Compare(a.Since, b.Since) })
		}
		return edit{}, nil
	})
	if err != nil {
		d.runner.log.Debug("this daemon could not be registered as alive", "error", err)
	}
}
