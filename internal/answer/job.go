package answer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/jobs"
)

// Job is the state of a job at an instant.
type Job struct {
	*jobs.Job
	jobs.Overview
	NextTick time.Time    // zero: no tick follows
	LastPass *jobs.Record // Last, decoded; nil before the first pass
	Expected *jobs.Needs  // what its runs are expected to take; nil: that was not read
	// Progress holds the record so far of each pass under way; nil for a pass that has
	// not reported yet.
	Progress []*jobs.Record
}

// LookAtJobs reads the state of jobs at an instant, in the order of the list.
func LookAtJobs(ctx context.Context, now time.Time, state jobs.State, list []*jobs.Job) ([]Job, error) {
	seen, err := jobs.Look(ctx, state, list)
	if err != nil {
		return nil, err
	}
	views := make([]Job, len(list))
	for i, job := range list {
		views[i] = Job{Job: job, Overview: seen[i]}
		if job.Schedule != nil {
			views[i].NextTick = job.Next(now)
		}
		if views[i].LastPass, err = ReadRecord(seen[i].Last); err != nil {
			return nil, fmt.Errorf("job %s: the record of its last pass: %w", job.Name, err)
		}
		for _, active := range seen[i].Active {
			record, err := ReadRecord(active.Progress)
			if err != nil {
				return nil, fmt.Errorf("job %s: read the record of its pass under way: %w", job.Name, err)
			}
			views[i].Progress = append(views[i].Progress, record)
		}
	}
	return views, nil
}

// ReadRecord decodes a stored record; nil if text is nil.
func ReadRecord(text json.RawMessage) (*jobs.Record, error) {
	if text == nil {
		return nil, nil
	}
	record := &jobs.Record{}
	if err := json.Unmarshal(text, record); err != nil {
		return nil, fmt.Errorf("%w; was it written by another version?", err)
	}
	return record, nil
}

// State says in a word or two what the job is doing. If several apply, the first of the
// switch wins.
func (v Job) State() string {
	waits := func(kind jobs.Kind) bool {
		return slices.ContainsFunc(v.Waiting, func(w jobs.WaitingTick) bool { return w.Kind == kind })
	}
	switch {
	case slices.ContainsFunc(v.Active, func(active jobs.ActivePass) bool { return active.Silent }):
		return "silent"
	case len(v.Active) > 1:
		return fmt.Sprintf("%d passes", len(v.Active))
	case len(v.Active) == 1:
		return strings.TrimSpace("running " + Ended(v.Progress[0]))
	case v.Pause != nil:
		return "paused"
	case waits(jobs.Queued):
		return "queued"
	case len(v.Waiting) > 0, len(v.Requests) > 0:
		return "waiting"
	case len(v.Deferred) > 0:
		return "deferred"
	case v.Missed != nil:
		return string(jobs.Missed)
	}
	return "idle"
}

// Ended says how many runs of a pass under way have ended, as "2/8"; empty while that is
// unknown.
func Ended(progress *jobs.Record) string {
	if progress == nil || len(progress.Runs) == 0 {
		return ""
	}
	n := 0
	for _, run := range progress.Runs {
		if run.Outcome != "" {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(progress.Runs))
}

// The outcomes shown to people for a run that has not ended.
const (
	Running jobs.Outcome = "running"
	Waiting jobs.Outcome = "waiting" // in a pass under way, not started yet
)

// UnderWay lists the passes under way with their records so far, newest first.
func UnderWay(views []Job) []jobs.Pass {
	var list []jobs.Pass
	for _, v := range views {
		for i, active := range v.Active {
			pass := jobs.Pass{Job: v.Name}
			pass.Unknown = v.Progress[i] == nil
			if v.Progress[i] != nil {
				pass.Record = *v.Progress[i]
			}
			pass.Tick, pass.Kind, pass.Started, pass.Host = active.Tick, active.Kind, active.Since, active.Host
			pass.Request, pass.Note, pass.Outcome, pass.Reason = active.Request, active.Note, Running, ""
			if active.Silent {
				pass.Reason = "silent"
			}
			for at := range pass.Runs {
				switch run := &pass.Runs[at]; {
				case run.Outcome != "":
				case run.Started.IsZero():
					run.Outcome = Waiting
				default:
					run.Outcome, run.Reason = Running, pass.Reason
				}
			}
			list = append(list, pass)
		}
	}
	slices.SortStableFunc(list, func(a, b jobs.Pass) int { return b.Tick.Compare(a.Tick.Time) })
	return list
}
