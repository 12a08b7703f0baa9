package jobs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// maxRequests is how many requests of a job may wait.
const maxRequests = 100

// Trigger asks for a pass of a job, of these regions or of all, from any machine:
// one of the daemons on the state begins it, once no other pass is in its way. The
// error says which region there is not.
func Trigger(ctx context.Context, in State, j *Job, regions []string, note string) (Request, error) {
	for _, region := range regions {
		if !slices.Contains(j.Regions, region) || region == "" {
			return Request{}, fmt.Errorf("trigger job %s: it has no region %q; there is %s", j.Name, region, strings.Join(j.Regions, ", "))
		}
	}
	asked := Request{ID: rand.Text(), By: asker(), Note: note, Regions: regions}
	err := changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, at clocks) (edit, error) {
		if slices.ContainsFunc(s.Requests, func(r Request) bool { return r.ID == asked.ID }) {
			return edit{}, errStays
		}
		if len(s.Requests) >= maxRequests {
			return edit{}, fmt.Errorf("trigger job %s: %d requests wait already; is a daemon running?", j.Name, maxRequests)
		}
		asked.At = InstantOf(at.store)
		s.Requests = append(s.Requests, asked)
		return edit{}, nil
	})
	if err != nil {
		return Request{}, err
	}
	return asked, tellDaemons(ctx, in, j.Name)
}

// SetPause pauses a job, whose ticks are then skipped, with a note of why; the one
// that stood before is returned, nil for none. Passes under way go on.
func SetPause(ctx context.Context, in State, j *Job, note string) (set Pause, before *Pause, err error) {
	err = changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, at clocks) (edit, error) {
		before = s.Pause
		set = Pause{Note: note, By: asker(), At: InstantOf(at.store)}
		s.Pause = &set
		return edit{}, nil
	})
	if err != nil {
		return Pause{}, nil, err
	}
	return set, before, tellDaemons(ctx, in, j.Name)
}

// EndPause lets a job go on; the pause that stood is returned, nil for none.
func EndPause(ctx context.Context, in State, j *Job) (before *Pause, err error) {
	err = changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, _ clocks) (edit, error) {
		if before = s.Pause; before == nil {
			return edit{}, errStays
		}
		s.Pause = nil
		return edit{}, nil
	})
	if err != nil {
		return nil, err
	}
	return before, tellDaemons(ctx, in, j.Name)
}

// History reads a job's records, the newest first: those of ticks from since on and
// before an instant, or the newest where that is zero, at most so many.
func History(ctx context.Context, in State, job string, since, before time.Time, most int) ([]Record, error) {
	query := budget.JobHistoryQuery{Job: job, Most: most}
	if !since.IsZero() {
		query.Since = since.UnixMicro()
	}
	if !before.IsZero() {
		query.Before = before.UnixMicro()
	}
	found, err := in.JobHistory(ctx, query)
	if err != nil {
		return nil, err
	}
	list := make([]Record, 0, len(found))
	for _, kept := range found {
		record, err := readRecord(kept.Text)
		if err != nil {
			return nil, fmt.Errorf("history of job %s: %w", job, err)
		}
		list = append(list, record)
	}
	return list, nil
}

// Overview is what is known of a job.
type Overview struct {
	// NextRegion is the one that the next pass begins with; empty: the first.
	NextRegion string
	// Last is the last pass that ended, as it was recorded; nil: none.
	Last json.RawMessage
	// Active are the passes under way.
	Active []ActivePass
	// Waiting are ticks that are to be run.
	Waiting  []WaitingTick
	Requests []Request
	Pause    *Pause // nil: it is not paused
}

// ActivePass is a pass under way.
type ActivePass struct {
	Tick  Instant `json:"tick"`
	Kind  Kind    `json:"kind"`
	Since Instant `json:"since"`
	Host  string  `json:"host"`
	// Silent: its daemon was not heard of in time.
	Silent bool `json:"silent,omitempty"`
	// Progress is its record so far; nil at first.
	Progress json.RawMessage `json:"progress,omitempty"`
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
		views[i] = Overview{NextRegion: s.NextRegion, Last: s.Last, Requests: s.Requests, Pause: s.Pause}
		for _, c := range s.Active {
			views[i].Active = append(views[i].Active, ActivePass{
				Tick: InstantOf(c.Tick), Kind: c.Kind, Since: InstantOf(c.Since), Host: placeOf(c.Holder),
				Silent: c.Until <= document.Now, Progress: c.Progress,
			})
		}
		for _, w := range s.Waiting {
			views[i].Waiting = append(views[i].Waiting, WaitingTick{InstantOf(w.Tick), w.Kind})
		}
	}
	return views, nil
}

// news is a document that says which jobs somebody asked something of, and when by
// the store's clock, in µs.
type news struct {
	Asked map[string]int64 `json:"asked"`
}

const (
	newsName = "@news"
	newsFor  = time.Hour // daemons look every few seconds
)

// tellDaemons has the daemons look at a job soon. Those that do not hear it come by
// with their next look at all jobs.
func tellDaemons(ctx context.Context, in State, job string) error {
	return changeDocument(ctx, in, newsName, time.Now, 0, func(n *news, at clocks) (edit, error) {
		if n.Asked == nil {
			n.Asked = map[string]int64{}
		}
		for name, asked := range n.Asked {
			if asked < at.now-newsFor.Microseconds() {
				delete(n.Asked, name)
			}
		}
		n.Asked[job] = max(at.now, n.Asked[job]+1)
		return edit{}, nil
	})
}

// asker is who asks for something, for people: user and host.
func asker() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}

// text says who asked for a pass, and why.
func (r Request) text() string {
	if r.Note == "" {
		return "asked for by " + r.By
	}
	return "asked for by " + r.By + ": " + r.Note
}
