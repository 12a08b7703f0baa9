package page

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

// jobsAPage is how many jobs a page lists.
const jobsAPage = 100

// jobRow is a job in short.
type jobRow struct {
	Name, Budget, State, Level string
	Schedule, Zone             string
	Cron                       bool   // starts it
	Outcome                    string // of the last pass; empty: there was none
	OutcomeLevel               string
	Last, Next                 time.Time
	Units                      int64
	Unknown                    bool // how many units
	Needs, Fits, FitsLevel     string
	Notes                      []string
	Line                       timeline
	view                       answer.Job
}

// newJobRow is a job's row; the plan may be empty.
func newJobRow(one answer.Job, ahead look.Foresight) jobRow {
	row := jobRow{Name: one.Name, Budget: one.Budget, State: one.State(), Level: levelGood, Schedule: one.Schedule.String(), Zone: one.Schedule.Zone().String(), Cron: one.StartedBy == jobs.StartedByCron, Next: one.NextTick, view: one}
	if one.Pause != nil { // its ticks are skipped
		row.Next = time.Time{}
	}
	if last := one.LastPass; last != nil {
		row.Outcome, row.Units, row.Unknown, row.Last = string(last.Outcome), last.Units, last.Unknown, last.Ended.Time
		if row.Last.IsZero() {
			row.Last = last.Tick.Time
		}
		row.OutcomeLevel = outcomeLevel(last.Outcome)
		if urgency[row.OutcomeLevel] < urgency[row.Level] {
			row.Level = row.OutcomeLevel
		}
	}
	switch row.State {
	case "silent":
		row.Level = levelOut
	case "paused", "deferred", "waiting", "queued":
		row.Level = moreUrgent(row.Level, levelLow)
	}
	if !one.Untaken.IsZero() || one.Missed != nil {
		row.Level = levelOut
	}
	if one.Expected != nil {
		row.Needs = needsText(one.Expected.Pass(nil)) + heldText(one.Hold)
	}
	switch f := ahead.Forecast.Job(one.Name); {
	case f == nil || f.Passes == 0:
	case ahead.Unknown[one.Name]:
		row.Fits, row.FitsLevel = "not known", levelQuiet
	default:
		row.Fits, row.FitsLevel = fmt.Sprintf("%d of %d", f.Complete, f.Passes), levelGood
		if f.FirstCut != nil {
			row.FitsLevel = levelLow
			row.Level = moreUrgent(row.Level, levelLow)
			row.Notes = append(row.Notes, jobByPlan(f))
		}
	}
	return row
}

// moreUrgent is the more urgent of two levels.
func moreUrgent(a, b string) string {
	if urgency[b] < urgency[a] {
		return b
	}
	return a
}

// complete adds what only rows have that are shown.
func (r *jobRow) complete(now time.Time) { r.Notes = append(jobNotes(r.view, now), r.Notes...) }

// outcomeLevel is how much an outcome asks for attention.
func outcomeLevel(o jobs.Outcome) string {
	switch o {
	case jobs.Failed, jobs.TimedOut, jobs.Lost, jobs.Missed:
		return levelOut
	case jobs.Exhausted, jobs.Drained:
		return levelLow
	case jobs.Skipped:
		return levelQuiet
	}
	return levelGood
}

// jobsBody is the page of jobs.
type jobsBody struct {
	Search         string
	Rows           []jobRow
	Matching, All  int
	First, Last    int
	Page, Pages    int
	Earlier, Later string // addresses; empty: there is none
	NoDaemon       bool
	Planning       bool
	Scale          scale
}

// timelineSpan is how far a timeline reaches to both sides.
const timelineSpan = 24 * time.Hour

// jobs lists jobs, a page of them at a time: only those are read.
func (v *visit) jobs() sheet {
	search := strings.TrimSpace(v.query("q"))
	var list []*jobs.Job
	for _, job := range v.reader.Jobs {
		if strings.Contains(job.Name, search) || strings.Contains(job.Budget, search) {
			list = append(list, job)
		}
	}
	body := jobsBody{Search: search, All: len(v.reader.Jobs), Matching: len(list), Pages: max(1, (len(list)+jobsAPage-1)/jobsAPage), Page: 1}
	if n, err := strconv.Atoi(v.query("page")); err == nil {
		body.Page = min(max(1, n), body.Pages)
	}
	list = list[min(len(list), (body.Page-1)*jobsAPage):min(len(list), body.Page*jobsAPage)]
	body.First, body.Last = (body.Page-1)*jobsAPage+1, (body.Page-1)*jobsAPage+len(list)
	if body.Page > 1 {
		body.Earlier = "/jobs" + query("q", search, "page", strconv.Itoa(body.Page-1))
	}
	if body.Page < body.Pages {
		body.Later = "/jobs" + query("q", search, "page", strconv.Itoa(body.Page+1))
	}
	show := sheet{template: "jobs", title: "Jobs", place: "/jobs"}
	key := fmt.Sprintf("%d %q", body.Page, search)
	if seen, ok := v.state(key, list); ok {
		body.NoDaemon = unstarted(seen.jobs, seen.daemons)
		past, _ := v.past(key, list, timelineSpan)
		ahead, planned := v.foresight(usual)
		body.Planning = !planned
		body.Scale = newScale(v.now, timelineSpan)
		for _, one := range seen.jobs {
			row := newJobRow(one, ahead)
			row.complete(v.now)
			row.Line = newTimeline(one, past[one.Name], ahead, v.now, timelineSpan)
			body.Rows = append(body.Rows, row)
		}
	}
	show.body = body
	return show
}

// find is a job of the configuration; nil: there is none.
func find(from *look.Reader, name string) *jobs.Job {
	if at := slices.IndexFunc(from.Jobs, func(j *jobs.Job) bool { return j.Name == name }); at >= 0 {
		return from.Jobs[at]
	}
	return nil
}

// jobBody is the page of one job.
type jobBody struct {
	Row     jobRow
	Job     *jobs.Job
	Regions []regionRow
	Named   bool // its regions have names
	// Staggered: runs begin later than their tick.
	Staggered bool
	Paused    bool
	Active    bool
	Waits     bool // a request or a deferred pass does
	Scale     scale
	Runs      []runRow
	More      bool
	Next      []nextRow
	Fits      string
	Planning  bool
	LastGood  time.Time
}

// regionRow is what a run of a region needs.
type regionRow struct{ Name, Needs string }

// nextRow is an upcoming run.
type nextRow struct {
	Region, Needs, Fits, Level string
	Tick, At                   time.Time
	Paused                     bool
}

const (
	// nextShown and ranShown are how many runs a job's page shows.
	nextShown, ranShown = 16, 30
)

// job shows one job.
func (v *visit) job() sheet {
	job := find(v.reader, v.query("name"))
	if job == nil {
		return missing("/jobs", "There is no job "+text(v.query("name"))+" in the configuration.")
	}
	show := sheet{template: "job", title: job.Name, place: "/jobs"}
	body := jobBody{Job: job, Row: jobRow{Name: job.Name, Budget: job.Budget}}
	seen, ok := v.state("of "+job.Name, []*jobs.Job{job})
	if !ok {
		if show.body = body; !v.pending {
			show.status = http.StatusServiceUnavailable
		}
		return show
	}
	one := seen.jobs[0]
	ahead, planned := v.foresight(usual)
	past, _ := v.past("of "+job.Name, []*jobs.Job{job}, timelineSpan)
	body.Planning = !planned
	body.Row = newJobRow(one, ahead)
	body.Row.complete(v.now)
	body.Row.Line = newTimeline(one, past[job.Name], ahead, v.now, timelineSpan)
	body.Scale = newScale(v.now, timelineSpan)
	body.Paused, body.Active, body.LastGood = one.Pause != nil, len(one.Active) > 0, one.LastSuccess
	body.Waits = len(one.Requests) > 0 || len(one.Deferred) > 0
	for _, r := range one.Expected.Regions {
		body.Regions = append(body.Regions, regionRow{r.Region, needsText(r.Estimate)})
		body.Named = body.Named || r.Region != ""
	}
	upcoming := answer.Upcoming([]answer.Job{one}, v.now, nextShown)
	answer.Foresee(upcoming, ahead.Forecast)
	body.Fits = fitsText(upcoming)
	for _, r := range upcoming {
		body.Next = append(body.Next, newNextRow(r, planned))
		body.Staggered = body.Staggered || !r.At.Equal(r.Tick)
	}
	ran, _ := v.ran("of "+job.Name, []*jobs.Job{job}, look.RunsAsked{Most: ranShown, Log: true})
	body.Runs, body.More = runRows(ran.runs, v.now), ran.more
	show.body = body
	return show
}

func newNextRow(r answer.NextRun, planned bool) nextRow {
	row := nextRow{Region: r.Region, Needs: needsText(r.Needs), Tick: r.Tick, At: r.At, Paused: r.Paused, Fits: "not in the plan", Level: levelQuiet}
	switch {
	case !planned:
		row.Fits = "being computed"
	case r.Paused:
		row.Fits = "skipped: the job is paused"
	case r.Outcome != "" && r.Needs.Source == needs.Unknown:
		row.Fits = "not known"
	case r.Outcome == plan.Complete:
		row.Fits, row.Level = "fits", levelGood
	case r.Outcome != "":
		row.Fits, row.Level = strings.TrimPrefix(lacksText(r), "by plan: "), levelLow
	}
	return row
}
