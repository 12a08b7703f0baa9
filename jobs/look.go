package jobs

import (
	"context"
	"encoding/json"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Overview is what is known of a job.
type Overview struct {
	// NextRegion is the region that the next pass begins with; empty: the first.
	NextRegion string
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
	Pause    *Pause // nil: it is not paused
	// Followed is the schedule and zone by which daemons have counted the job's ticks so
	// far; empty: no daemon has seen the job.
	Followed string
	// Untaken is the first tick that is a few minutes past and that no daemon has
	// accounted for; zero: there is none, or the daemons counted by another schedule.
	Untaken time.Time
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
