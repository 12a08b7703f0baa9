package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs"
)

// jobView is what is known of a job at an instant.
type jobView struct {
	*jobs.Job
	jobs.Overview
	next time.Time    // its next tick; zero: none comes
	last *jobs.Record // Last, read; nil before the first pass
	// progress are the records so far of the passes under way; nil for one that has
	// told none yet.
	progress []*jobs.Record
}

// lookAtJobs reads what is known of jobs at an instant, in their order.
func lookAtJobs(ctx context.Context, now time.Time, state jobs.State, list []*jobs.Job) ([]jobView, error) {
	seen, err := jobs.Look(ctx, state, list)
	if err != nil {
		return nil, err
	}
	views := make([]jobView, len(list))
	for i, job := range list {
		views[i] = jobView{Job: job, Overview: seen[i]}
		if job.Schedule != nil {
			views[i].next = job.Next(now)
		}
		if views[i].last, err = readRecord(seen[i].Last); err != nil {
			return nil, fmt.Errorf("job %s: the record of its last pass: %w", job.Name, err)
		}
		for _, active := range seen[i].Active {
			record, err := readRecord(active.Progress)
			if err != nil {
				return nil, fmt.Errorf("job %s: the record of its pass under way: %w", job.Name, err)
			}
			views[i].progress = append(views[i].progress, record)
		}
	}
	return views, nil
}

// readRecord reads a record as it was kept; nil where there is none.
func readRecord(text json.RawMessage) (*jobs.Record, error) {
	if text == nil {
		return nil, nil
	}
	record := &jobs.Record{}
	if err := json.Unmarshal(text, record); err != nil {
		return nil, fmt.Errorf("%w; was it written by another version?", err)
	}
	return record, nil
}

// state is what the job does, in a word or two: of several, the first that counts.
func (v jobView) state() string {
	waits := func(kind jobs.Kind) bool {
		return slices.ContainsFunc(v.Waiting, func(w jobs.WaitingTick) bool { return w.Kind == kind })
	}
	switch {
	case slices.ContainsFunc(v.Active, func(active jobs.ActivePass) bool { return active.Silent }):
		return "silent"
	case len(v.Active) > 1:
		return fmt.Sprintf("%d passes", len(v.Active))
	case len(v.Active) == 1:
		return strings.TrimSpace("running " + ended(v.progress[0]))
	case v.Pause != nil:
		return "paused"
	case waits(jobs.Queued):
		return "queued"
	case len(v.Waiting) > 0, len(v.Requests) > 0:
		return "waiting"
	}
	return "idle"
}

// ended is how many runs of a pass under way have ended, of how many; empty where
// that is not known yet.
func ended(progress *jobs.Record) string {
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

// nowNotes say what is under way, and whether the job is paused.
func nowNotes(v jobView) []string {
	var list []string
	for i, active := range v.Active {
		list = append(list, activeText(active, v.progress[i]))
	}
	if v.Pause != nil {
		text := pauseText(*v.Pause)
		if !v.next.IsZero() {
			text += "; its ticks are skipped, the next at " + showTime(v.next)
		}
		list = append(list, text)
	}
	return list
}

// activeText tells of a pass under way.
func activeText(active jobs.ActivePass, progress *jobs.Record) string {
	text := fmt.Sprintf("the pass of %s is under way since %s, %s", showTime(active.Tick.Time), showTime(active.Since.Time), active.Host)
	if of := ended(progress); of != "" {
		units := int64(0)
		for _, run := range progress.Runs {
			units += run.Units
		}
		text += fmt.Sprintf(": %s runs ended, %s", of, plural(int(units), "unit"))
	}
	if why := beganText(active.Kind, active.Note); why != "" {
		text += "; " + why
	}
	if c := active.Cancelled; c != nil {
		text += fmt.Sprintf("; asked to stop by %s at %s", c.By, showTime(c.At.Time))
		if c.Note != "" {
			text += ": " + c.Note
		}
	}
	if active.Silent {
		text += "; its daemon is not heard of any more"
	}
	return text
}

// pauseText tells of a pause.
func pauseText(p jobs.Pause) string {
	text := fmt.Sprintf("paused by %s since %s", p.By, showTime(p.At.Time))
	if p.Note != "" {
		text += ": " + p.Note
	}
	return text
}

// beganText says why a pass began; empty for its schedule.
func beganText(kind jobs.Kind, note string) string {
	switch {
	case note != "":
		return note
	case kind == jobs.Manual:
		return "a manual pass"
	case kind == jobs.Queued:
		return "queued: its tick came while another pass was under way"
	case kind == jobs.CaughtUp:
		return "caught up: nobody took its tick in time"
	}
	return ""
}

// waitNotes say what waits, and what keeps it.
func waitNotes(v jobView) []string {
	var list []string
	for _, r := range v.Requests {
		list = append(list, requestText(r)+" and waits")
	}
	caughtUp := 0
	var first time.Time
	for _, w := range v.Waiting {
		if w.Kind != jobs.CaughtUp {
			list = append(list, fmt.Sprintf("the tick of %s waits", showTime(w.Tick.Time)))
			continue
		}
		if caughtUp++; caughtUp == 1 {
			first = w.Tick.Time
		}
	}
	switch {
	case caughtUp == 1:
		list = append(list, fmt.Sprintf("the tick of %s waits to be caught up", showTime(first)))
	case caughtUp > 1:
		list = append(list, fmt.Sprintf("%d ticks, from %s on, wait to be caught up", caughtUp, showTime(first)))
	}
	return append(list, daemonNotes(v)...)
}

// daemonNotes say what is known of daemons that should follow the job.
func daemonNotes(v jobView) []string {
	switch here := v.Schedule.String() + " " + v.Schedule.Zone().String(); {
	case v.Followed == "":
		return []string{"no daemon has looked at it on this store yet"}
	case v.Followed != here:
		return []string{"daemons have followed another schedule so far: " + v.Followed}
	case !v.Untaken.IsZero():
		return []string{"no daemon has taken its tick of " + showTime(v.Untaken) + ": is one running?"}
	}
	return nil
}

// requestText tells of a request for a pass.
func requestText(r jobs.Request) string {
	text := "a pass"
	if len(r.Regions) > 0 {
		text += " of " + strings.Join(r.Regions, ", ")
	}
	text += fmt.Sprintf(" was asked for by %s at %s", r.By, showTime(r.At.Time))
	if r.Note != "" {
		text += " (" + r.Note + ")"
	}
	return text
}

// roughly is a span of time for people: to a millisecond below a second, to a tenth
// of a second below ten, to a second below an hour, to a minute below two days, else
// to an hour.
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return limit.SpanText(d.Round(time.Millisecond))
	case d < 10*time.Second:
		return limit.SpanText(d.Round(100 * time.Millisecond))
	case d < time.Hour:
		return limit.SpanText(d.Round(time.Second))
	case d < 2*day:
		return limit.SpanText(d.Round(time.Minute))
	}
	d = d.Round(time.Hour)
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}
