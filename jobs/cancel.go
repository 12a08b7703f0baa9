package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Cancel says that a person has ended a pass that is under way.
type Cancel struct {
	Note string  `json:"note,omitempty"`
	By   string  `json:"by"`
	At   Instant `json:"at"`
}

// text says who has ended a pass, and why.
func (c Cancel) text() string {
	if c.Note == "" {
		return "cancelled by " + c.By
	}
	return "cancelled by " + c.By + ": " + c.Note
}

// cancelled is the cause for which the contexts of a pass end that a person ends.
type cancelled struct{ by Cancel }

func (c *cancelled) Error() string { return c.by.text() }

// CancelPasses has the passes of a job end that are under way, on whatever machine, as
// when their daemons are told to stop: pages under way have the job's grace, what was
// spent stays spent, and the next pass begins with the first region that was not
// started. A daemon does so within seconds, a process that runs one pass alone with its
// next heartbeat. They are returned as they are now; none where nothing is under way.
// One that is to end already stays as it is. With ErrUntold they end all the same.
func CancelPasses(ctx context.Context, in State, j *Job, note string) ([]ActivePass, error) {
	note, err := cleanNote(note)
	if err != nil {
		return nil, fmt.Errorf("cancel job %s: %w", j.Name, err)
	}
	var ended []ActivePass
	err = changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, at clocks) (edit, error) {
		ended = nil
		set := Cancel{Note: note, By: asker(), At: InstantOf(at.store)}
		changed := false
		for i := range s.Active {
			c := &s.Active[i]
			if c.Cancel == nil {
				c.Cancel, changed = &set, true
			}
			ended = append(ended, c.pass(at.now))
		}
		if !changed {
			return edit{}, errStays
		}
		return edit{}, nil
	})
	if err != nil || len(ended) == 0 {
		return nil, err
	}
	return ended, notifyDaemons(ctx, in, j.Name)
}

// TakeBack takes back what was asked for of a job by [Trigger] and no daemon has begun.
// Each request is recorded as skipped. They are returned; none where none waits.
func TakeBack(ctx context.Context, in State, j *Job) ([]Request, error) {
	var taken []Request
	err := changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, at clocks) (edit, error) {
		if taken = s.Requests; len(taken) == 0 {
			return edit{}, errStays
		}
		s.Requests = nil
		by := Cancel{By: asker()}
		tick := time.UnixMicro(at.store).UTC().Truncate(time.Second)
		var e edit
		for _, asked := range taken {
			record := Record{
				Tick: Instant{tick}, Kind: Triggered, Outcome: Skipped, Reason: ReasonCancelled, Error: "taken back before a daemon began it: " + by.text(),
				Request: asked.ID, Note: asked.text(), Runs: []Run{},
			}
			e.records = append(e.records, driver.JobRecord{At: tick.UnixMicro(), ID: "request/" + asked.ID, Text: record.json()})
		}
		return e, nil
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// cancel makes of the record of a pass of which nothing was started that of one which a
// person has ended.
func (r *Record) cancel(by Cancel) {
	r.Runs = slices.Clone(r.Runs)
	for i := range r.Runs {
		run := &r.Runs[i]
		run.Outcome, run.Reason, run.Error = Skipped, ReasonCancelled, by.text()
	}
	r.conclude()
}

// mayCancel lets a pass be ended by a person until the returned function is called.
func (r *Runner) mayCancel(holder string, end func(Cancel)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay[holder] = end
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.underWay, holder)
	}
}

// endCancelled ends those passes of this process that a person has ended.
func (r *Runner) endCancelled(active []claim) {
	for _, c := range active {
		if c.Cancel == nil {
			continue
		}
		r.mu.Lock()
		end := r.underWay[c.Holder]
		r.mu.Unlock()
		if end != nil {
			end(*c.Cancel)
		}
	}
}
