// Package jobview shows jobs to people: [Jobs] and [Summary] their state, [Runs] and
// [Passes] what became of them, [Next] what comes. Package view shows budgets.
package jobview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// Now says what is under way, and whether the job is paused.
func Now(on screen.Screen, v answer.Job) []string {
	var list []string
	for i, active := range v.Active {
		list = append(list, Active(on, active, v.Progress[i]))
	}
	if v.Pause != nil {
		text := Pause(on, *v.Pause)
		if !v.NextTick.IsZero() {
			text += "; its ticks are skipped, the next at " + on.Time(v.NextTick)
		}
		list = append(list, text)
	}
	return list
}

// Active describes a pass under way.
func Active(on screen.Screen, active jobs.ActivePass, progress *jobs.Record) string {
	text := fmt.Sprintf("the pass of %s is under way since %s, %s", on.Time(active.Tick.Time), on.Time(active.Since.Time), active.Host)
	if of := answer.Ended(progress); of != "" {
		units := int64(0)
		for _, run := range progress.Runs {
			units += run.Units
		}
		text += fmt.Sprintf(": %s runs ended, %s", of, view.Plural(int(units), "unit"))
	}
	if why := Began(active.Kind, active.Note); why != "" {
		text += "; " + why
	}
	if c := active.Cancelled; c != nil {
		text += fmt.Sprintf("; asked to stop by %s at %s", c.By, on.Time(c.At.Time))
		if c.Note != "" {
			text += ": " + c.Note
		}
	}
	if active.Silent {
		text += "; its process stopped renewing its claim"
	}
	return text
}

// Pause describes a pause.
func Pause(on screen.Screen, p jobs.Pause) string {
	text := fmt.Sprintf("paused by %s since %s", p.By, on.Time(p.At.Time))
	if p.Note != "" {
		text += ": " + p.Note
	}
	return text
}

// Began says why a pass began; empty for its schedule.
func Began(kind jobs.Kind, note string) string {
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

// Waits say what waits, and what keeps it.
func Waits(on screen.Screen, v answer.Job) []string {
	var list []string
	for _, r := range v.Requests {
		list = append(list, Request(on, r)+" and waits")
	}
	caughtUp := 0
	var first time.Time
	for _, w := range v.Waiting {
		if w.Kind != jobs.CaughtUp {
			list = append(list, fmt.Sprintf("the tick of %s waits", on.Time(w.Tick.Time)))
			continue
		}
		if caughtUp++; caughtUp == 1 {
			first = w.Tick.Time
		}
	}
	switch {
	case caughtUp == 1:
		list = append(list, fmt.Sprintf("the tick of %s waits to be caught up", on.Time(first)))
	case caughtUp > 1:
		list = append(list, fmt.Sprintf("%d ticks, from %s on, wait to be caught up", caughtUp, on.Time(first)))
	}
	return append(list, Daemons(on, v)...)
}

// notFollowed is what is said of a job that no daemon has looked at.
const notFollowed = "no daemon has looked at it on this store yet"

// cron says what is known of a job's runs that cron should start.
func cron(on screen.Screen, v answer.Job) []string {
	switch here := v.Schedule.String() + " " + v.Schedule.Zone().String(); {
	case v.Followed == "" && v.LastPass == nil:
		return []string{"no run of it is recorded yet: write quotactl meter --job " + v.Name + " -- before its command, where cron starts it"}
	case v.Followed != "" && v.Followed != here:
		return []string{"its schedule has changed; it is watched from its next run on, or once a daemon looks at it"}
	case v.Missed != nil && v.Missed.Ticks == 1:
		of := ""
		if len(v.Missed.Regions) > 0 {
			of = " for " + strings.Join(v.Missed.Regions, ", ")
		}
		return []string{"its run of " + on.Time(v.Missed.First.Time) + of + " is missing: did cron start quotactl meter --job " + v.Name + "?"}
	case v.Missed != nil:
		return []string{fmt.Sprintf("%d runs are missing, from %s to %s: does cron start quotactl meter --job %s?", v.Missed.Ticks, on.Time(v.Missed.First.Time), on.Time(v.Missed.Newest.Time), v.Name)}
	}
	return nil
}

// Unstarted reports whether there are jobs that a daemon is to start, and none of the daemons lives.
func Unstarted(list []answer.Job, daemons []jobs.Daemon) bool {
	return len(daemons) == 0 && slices.ContainsFunc(list, func(v answer.Job) bool { return v.StartedBy == jobs.StartedByDaemon })
}

// Schedule is a job's schedule and zone, and who starts it if that is not a daemon.
func Schedule(v answer.Job) string {
	text := v.Schedule.String() + " " + v.Schedule.Zone().String()
	if v.StartedBy == jobs.StartedByCron {
		text += " (cron)"
	}
	return text
}

// Daemons says what is known of daemons, or of cron, that should run the job.
func Daemons(on screen.Screen, v answer.Job) []string {
	if v.StartedBy == jobs.StartedByCron {
		return cron(on, v)
	}
	switch here := v.Schedule.String() + " " + v.Schedule.Zone().String(); {
	case v.Followed == "":
		return []string{notFollowed}
	case v.Followed != here:
		return []string{"daemons have followed another schedule so far: " + v.Followed}
	case !v.Untaken.IsZero():
		return []string{"no daemon has taken its tick of " + on.Time(v.Untaken) + ": is one running?"}
	}
	return nil
}

// Request describes a request for a pass.
func Request(on screen.Screen, r jobs.Request) string {
	text := "a pass"
	if len(r.Regions) > 0 {
		text += " of " + strings.Join(r.Regions, ", ")
	}
	text += fmt.Sprintf(" was requested by %s at %s", r.By, on.Time(r.At.Time))
	if r.Note != "" {
		text += " (" + r.Note + ")"
	}
	return text
}
