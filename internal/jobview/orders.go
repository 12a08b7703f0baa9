package jobview

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// Asked says what was asked for, and what the job was doing before.
func Asked(on screen.Screen, before answer.Job, asked jobs.Request, daemons []jobs.Daemon, untold error) string {
	t := on.Table("JOB", "REGIONS", "DONE")
	t.Add(before.Name, cmp.Or(strings.Join(asked.Regions, ", "), "all"), "a pass is requested")
	for _, note := range Now(on, before) {
		t.Below("", note)
	}
	switch n := len(before.Requests); n {
	case 0:
	case 1:
		t.Below("", "another request waits before it")
	default:
		t.Below("", fmt.Sprintf("%d other requests wait before it", n))
	}
	for _, note := range Daemons(on, before) {
		t.Below("", note)
	}
	if len(daemons) == 0 {
		t.Below("", "no daemon is running on this store: the pass waits until you start one (quotactl run)")
	}
	if untold != nil {
		t.Below("", untoldText(untold))
	}
	return t.String()
}

// Paused says what became of a job that was paused or resumed. The error says why the
// daemons could not be notified.
func Paused(on screen.Screen, done answer.Pause, at time.Time, untold error) string {
	t := on.Table("JOB", "DONE")
	switch {
	case done.Paused == nil && done.Before == nil:
		t.Add(done.Job, "it was not paused")
	case done.Paused == nil:
		t.Add(done.Job, "resumed")
		t.Below("", "it was "+Pause(on, *done.Before))
	case done.Before == nil:
		t.Add(done.Job, "paused")
	case *done.Before == *done.Paused:
		t.Add(done.Job, "is paused already")
		t.Below("", Pause(on, *done.Before))
	default:
		t.Add(done.Job, "paused, with another note")
		t.Below("", "it was "+Pause(on, *done.Before))
	}
	addDropped(on, t, at, done.Dropped)
	if untold != nil {
		t.Below("", untoldText(untold))
	}
	return t.String()
}

// untoldText says what follows if the daemons could not be notified.
func untoldText(err error) string {
	return err.Error() + "; a running daemon notices within a minute"
}

// Cancelled says which passes of a job were asked to stop.
func Cancelled(on screen.Screen, job string, ended []jobs.ActivePass) (string, error) {
	t := on.Table("JOB", "DONE")
	t.Add(job, "asked to stop")
	for _, pass := range ended {
		progress, err := answer.ReadRecord(pass.Progress)
		if err != nil {
			return "", fmt.Errorf("job %s: read the record of its pass under way: %w", job, err)
		}
		t.Below("", Active(on, pass, progress))
	}
	return t.String(), nil
}

// NothingToCancel says that no pass of a job is under way, and what waits.
func NothingToCancel(on screen.Screen, v answer.Job, at time.Time) string {
	t := on.Table("JOB", "DONE")
	t.Add(v.Name, "nothing is under way")
	if len(v.Deferred)+len(v.Requests) > 0 {
		t.Below("", "quotactl trigger "+v.Name+" --cancel takes back what waits:")
		for _, note := range view.Deferred(on, v, at) {
			t.Below("", note)
		}
		for _, r := range v.Requests {
			t.Below("", Request(on, r)+" and waits")
		}
	}
	return t.String()
}

// TakenBack says which requests and deferred passes of a job were taken back, and what is
// still under way.
func TakenBack(on screen.Screen, v answer.Job, at time.Time, taken []jobs.Request, dropped []jobs.DeferredPass) string {
	t := on.Table("JOB", "DONE")
	if len(taken)+len(dropped) == 0 {
		t.Add(v.Name, "no request waits")
	} else {
		t.Add(v.Name, "taken back")
	}
	for _, r := range taken {
		t.Below("", Request(on, r))
	}
	addDropped(on, t, at, dropped)
	for i, active := range v.Active {
		t.Below("", Active(on, active, v.Progress[i])+"; quotactl cancel "+v.Name+" ends it")
	}
	return t.String()
}

// addDropped adds the passes that do not go on any more.
func addDropped(on screen.Screen, t *table.Table, at time.Time, list []jobs.DeferredPass) {
	for _, note := range view.Deferred(on, answer.Job{Overview: jobs.Overview{Deferred: list}}, at) {
		t.Below("", "was "+note)
	}
}
