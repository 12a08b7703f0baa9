package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Cancel records that a person ended a pass that was under way.
type Cancel struct {
	Note string  `json:"note,omitempty"`
	By   string  `json:"by"`
	At   Instant `json:"at"`
}

// text says who ended the pass, and why.
func (c Cancel) text() string {
	if c.Note == "" {
		return "cancelled by " + c.By
	}
	return "cancelled by " + c.By + ": " + c.Note
}

// cancelled is the cause of a pass's contexts when a person ends the pass.
type cancelled struct{ by Cancel }

func (c *cancelled) Error() string { return c.by.text() }

// CancelPasses ends the passes of a job that are under way, on whatever machine, in the
// same way as a drain of their daemons: pages under way have the job's grace, units spent
// stay spent, and the next pass begins with the first region that was not started. A
// daemon reacts within seconds, a process that runs a single pass at its next heartbeat.
// CancelPasses returns the passes as they are now, nil if nothing is under way. A pass
// that is already cancelled keeps its first cancel. With ErrUntold the passes end all the
// same.
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

// TakeBack takes back the requests of [Trigger] for a job that no daemon has started, and
// the passes that wait for units to return. Each request is recorded as skipped; each of
// the passes keeps its record, which says who took it back. TakeBack returns them, nil if
// none was waiting.
func TakeBack(ctx context.Context, in State, j *Job) (taken []Request, dropped []DeferredPass, err error) {
	err = changeDocument(ctx, in, j.Name, time.Now, j.History, func(s *state, at clocks) (edit, error) {
		taken, dropped = s.Requests, nil
		if len(taken) == 0 && len(s.Deferred) == 0 {
			return edit{}, errStays
		}
		for _, d := range s.Deferred {
			dropped = append(dropped, d.pass())
		}
		s.Requests = nil
		by := Cancel{By: asker()}
		tick := time.UnixMicro(at.store).UTC().Truncate(time.Second)
		e := s.dropAll(ReasonCancelled, by.text())
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
		return nil, nil, err
	}
	return taken, dropped, nil
}

// cancel turns the record of a pass that started nothing into that of a cancelled pass.
func (r *Record) cancel(by Cancel) {
	r.Runs = slices.Clone(r.Runs)
	for i := range r.Runs {
		run := &r.Runs[i]
		run.Outcome, run.Reason, run.Error = Skipped, ReasonCancelled, by.text()
	}
	r.conclude()
}

// mayCancel lets a person end a pass until the returned function is called.
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

// endCancelled ends the passes of this process that a person has cancelled.
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
