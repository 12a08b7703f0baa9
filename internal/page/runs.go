package page

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/url"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/jobs"
)

// runRow is a run.
type runRow struct {
	ID                                  string // of its details, the same whenever it is shown
	Tick                                time.Time
	Job, Region, Outcome, Reason, Level string
	Took                                string
	Units                               int64
	Unknown                             bool // how many units
	Pages                               int
	Started                             bool
	Why                                 string // the pass began
	Error                               string
	Log                                 []string
	Notes                               []string
}

// runRows are rows of runs, the newest first.
func runRows(list []answer.Run, now time.Time) []runRow {
	rows := make([]runRow, len(list))
	for i, r := range list {
		row := runRow{
			Tick: r.Tick.Time, Job: r.Job, Region: r.Region, Outcome: string(r.Outcome), Reason: r.Reason, Level: outcomeLevel(r.Outcome), Units: r.Run.Units, Unknown: r.Unknown, Pages: r.Pages,
			Started: !r.Started.IsZero(), Error: r.Error, Log: r.Log,
		}
		if i == 0 || list[i-1].Job != r.Job || list[i-1].Tick != r.Tick {
			row.Why = beganText(r.Kind, r.Note) // once for a pass
		}
		switch {
		case r.Started.IsZero():
		case !r.Ended.IsZero():
			row.Took = roughly(max(0, r.Ended.Sub(r.Started.Time)))
		case r.Outcome == answer.Running:
			row.Took = roughly(max(0, now.Sub(r.Started.Time).Round(time.Second)))
		}
		if r.Until != nil {
			row.Notes = append(row.Notes, fmt.Sprintf("%s, until %s", plural(r.Ticks, "tick"), shown(r.Until.Time)))
		}
		if r.Parts > 1 {
			row.Notes = append(row.Notes, fmt.Sprintf("deferred: it ran in %d parts", r.Parts))
		}
		if r.Warning != "" {
			row.Notes = append(row.Notes, r.Warning)
		}
		id := fnv.New64a()
		_, _ = fmt.Fprintf(id, "%s %s %d %d", r.Job, r.Region, r.Tick.UnixMicro(), r.Started.UnixMicro()) // a hash does not fail
		row.ID = fmt.Sprintf("run-%x", id.Sum64())
		rows[i] = row
	}
	return rows
}

// runsBody is the page of runs.
type runsBody struct {
	Job, Outcome string
	Outcomes     []choice
	Jobs         []string // to choose from
	Rows         []runRow
	More         bool
}

// choice is one of a list to choose from.
type choice struct {
	Value, Name string
	Chosen      bool
}

const (
	// runsShown is how many runs the page of runs shows.
	runsShown = 50
	// mostOffered is how many names a field offers.
	mostOffered = 200
)

// wrong asks for all runs that went wrong or found too few units.
const wrong = "errors"

// runs lists the newest runs.
func (v *visit) runs() sheet {
	body := runsBody{Job: v.query("job"), Outcome: v.query("outcome"), Jobs: v.jobNames()}
	show := sheet{template: "runs", title: "Runs", place: "/runs"}
	list := v.reader.Jobs
	if body.Job != "" {
		job := find(v.reader, body.Job)
		if job == nil {
			return missing("/runs", "There is no job "+text(body.Job)+" in the configuration.")
		}
		list = []*jobs.Job{job}
	}
	asked := look.RunsAsked{Most: runsShown, Log: true, Errors: body.Outcome == wrong}
	known := []choice{{"", "all", body.Outcome == ""}, {wrong, "all that went wrong", body.Outcome == wrong}}
	for _, o := range []jobs.Outcome{jobs.Succeeded, jobs.Exhausted, jobs.Failed, jobs.TimedOut, jobs.Drained, jobs.Skipped, jobs.Missed, jobs.Lost, answer.Running} {
		chosen := body.Outcome == string(o)
		if chosen {
			asked.Outcomes = []string{string(o)}
		}
		known = append(known, choice{string(o), outcomeName(string(o)), chosen})
	}
	body.Outcomes = known
	if ran, ok := v.ran(fmt.Sprintf("%q %v %v", body.Job, asked.Outcomes, asked.Errors), list, asked); ok {
		body.Rows, body.More = runRows(ran.runs, v.now), ran.more
	}
	show.body = body
	return show
}

// jobNames are the names of jobs that a field offers.
func (v *visit) jobNames() (names []string) {
	for _, job := range v.reader.Jobs[:min(len(v.reader.Jobs), mostOffered)] {
		names = append(names, job.Name)
	}
	return names
}

// query makes the query of an address from names and values; empty values are left out.
func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return cmp.Or("?"+q.Encode(), "")
}
