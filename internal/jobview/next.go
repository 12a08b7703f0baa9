package jobview

import (
	"cmp"
	"slices"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
)

// Next has a column for paused jobs only when there is one.
func Next(runs []answer.NextRun) *table.Table {
	heads := []string{"JOB", "REGION", "TICK", "AT", "NEEDS"}
	paused := slices.ContainsFunc(runs, func(r answer.NextRun) bool { return r.Paused })
	if paused {
		heads = append(heads, "JOB IS")
	}
	t := table.New(heads...)
	for _, r := range runs {
		row := []string{r.Job, cmp.Or(r.Region, "-"), view.Time(r.Tick), view.Time(r.At), view.Needs(r.Needs)}
		switch {
		case r.Paused:
			row = append(row, "paused")
		case paused:
			row = append(row, "-")
		}
		t.Add(row...)
	}
	return t
}
