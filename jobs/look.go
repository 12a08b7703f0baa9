package jobs

import (
	"context"
	"encoding/json"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Overview is what is known of a job.
type Overview struct {
	// NextRegion is the one that the next pass begins with; empty: the first.
	NextRegion string
	// Last is the last pass that ended, as it was recorded but for logs; nil: none.
	Last json.RawMessage
	// LastSuccess is when the last pass of all regions that succeeded ended; zero:
	// none did.
	LastSuccess time.Time
	// Active are the passes under way.
	Active []ActivePass
	// Waiting are ticks that are to be run.
	Waiting  []WaitingTick
	Requests []Request
	Pause    *Pause // nil: it is not paused
	// Followed is the schedule and zone by which daemons have counted the job's ticks
	// so far; empty: none has looked at it.
	Followed string
	// Untaken is the first tick that is a few minutes past and that no daemon has
	// accounted for; zero: there is none, or they counted by another schedule.
	Untaken time.Time
}

// ActivePass is a pass under way.
type ActivePass struct {
	Tick  Instant `json:"tick"`
	Kind  Kind    `json:"kind"`
	Since Instant `json:"since"`
	Host  string  `json:"host"`
	// Silent: its daemon was not heard of in time.
	Silent bool `json:"silent"`
	// Request is the ID of the request that it is for, Note what that says; both
	// empty: nobody asked for it.
	Request string `json:"request,omitempty"`
	Note    string `json:"note,omitempty"`
	// Progress is its record so far; nil at first.
	Progress json.RawMessage `json:"progress"`
	// Cancelled: a person has ended it, and it is to end soon; nil: nobody has.
	Cancelled *Cancel `json:"cancelled,omitempty"`
}

// pass is a claim for those who look at it, at an instant of the store's clock (µs).
func (c *claim) pass(now int64) ActivePass {
	return ActivePass{
		Tick: InstantOf(c.Tick), Kind: c.Kind, Since: InstantOf(c.Since), Host: placeOf(c.Holder),
		Silent: c.Until <= now, Request: c.request(), Note: c.note(), Progress: c.Progress, Cancelled: c.Cancel,
	}
}

// WaitingTick is a tick that is to be run.
type WaitingTick struct {
	Tick Instant `json:"tick"`
	Kind Kind    `json:"kind"`
}

// Look reads what is known of jobs, in their order.
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

// overview is what a job's document says of it.
func (s *state) overview(j *Job, document driver.JobDocument) Overview {
	view := Overview{NextRegion: s.NextRegion, Last: s.Last, Requests: s.Requests, Pause: s.Pause, Followed: s.Schedule}
	if s.LastSuccess != 0 {
		view.LastSuccess = time.UnixMicro(s.LastSuccess).UTC()
	}
	for _, c := range s.Active {
		view.Active = append(view.Active, c.pass(document.Now))
	}
	for _, w := range s.Waiting {
		view.Waiting = append(view.Waiting, WaitingTick{InstantOf(w.Tick), w.Kind})
	}
	if j.Schedule == nil || s.Schedule != j.counts() {
		return view
	}
	const patience = 2 * sweepEvery // daemons sweep all jobs that often
	if tick := j.Next(time.UnixMicro(s.Until)); !tick.IsZero() && time.UnixMicro(document.Wall).Sub(tick) > patience {
		view.Untaken = tick
	}
	return view
}
