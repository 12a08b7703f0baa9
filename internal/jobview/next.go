package jobview

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs/needs"
)

// Next has a column for paused jobs only when there is one. Below
// a run it says why the plan finds too little for it.
func Next(on screen.Screen, runs []answer.NextRun) *table.Table {
	heads := []string{"JOB", "REGION", "TICK", "AT", "NEEDS"}
	if on.Terminal {
		heads[2], heads[3] = "SCHEDULED", "STARTS"
	}
	paused := slices.ContainsFunc(runs, func(r answer.NextRun) bool { return r.Paused })
	if paused {
		heads = append(heads, "JOB IS")
	}
	t := on.Table(heads...)
	for _, r := range runs {
		row := []string{r.Job, cmp.Or(r.Region, "-"), on.Time(r.Tick), on.Time(r.At), view.Needs(r.Needs)}
		switch {
		case r.Paused:
			row = append(row, "paused")
		case paused:
			row = append(row, "-")
		}
		t.Add(row...)
		if text := Lacks(on, r); text != "" && !r.Paused {
			t.Below("", text)
		}
	}
	if on.Terminal {
		t.DropSame("STARTS", "SCHEDULED")
		t.DropSame("REGION", "")
	}
	return t
}

// Lacks says what the plan finds that a run lacks; empty: nothing.
func Lacks(on screen.Screen, r answer.NextRun) string {
	switch {
	case r.Outcome == "" || r.Outcome == plan.Complete:
		return ""
	case r.Outcome == plan.Skipped:
		return "by plan: will be skipped: another pass is under way"
	case r.Why == nil || r.Why.Limit == "":
		return "by plan: will not fit"
	case r.Why.Lock != nil:
		return fmt.Sprintf("by plan: %s at %s: %s", becomes(r.Outcome), on.Time(time.Time(r.Why.At)), view.Closed(on, r.Why.Lock.Lock()))
	}
	return fmt.Sprintf("by plan: %s: limit %s is %s short at %s", becomes(r.Outcome), r.Why.Limit, on.Number(r.Why.Short), on.Time(time.Time(r.Why.At)))
}

func becomes(o plan.Outcome) string {
	switch o {
	case plan.NotStarted:
		return "will not start"
	case plan.Failed:
		return "will fail"
	}
	return "will be cut"
}

// Fits sums up for how many of the runs the plan finds the units; empty if none is planned.
func Fits(on screen.Screen, runs []answer.NextRun) string {
	planned, fits, unknown := 0, 0, 0
	for _, r := range runs {
		switch {
		case r.Outcome == "" || r.Paused:
			continue
		case r.Needs.Source == needs.Unknown:
			unknown++
			continue
		case r.Outcome == plan.Complete:
			fits++
		}
		planned++
	}
	text := ""
	switch {
	case planned > 0 && fits == planned:
		text = "By plan, all runs will have their units"
	case planned > 0:
		text = fmt.Sprintf("By plan, %d of %d runs will have their units", fits, planned)
	}
	switch {
	case unknown > 0 && text != "":
		text += fmt.Sprintf("; of %d more it is not known what they need", unknown)
	case unknown > 0:
		text = "It is not known what these runs need, so not whether they will fit"
	}
	if text == "" {
		return ""
	}
	return on.Wrap("", text+".")
}
