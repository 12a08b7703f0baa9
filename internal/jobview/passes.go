package jobview

import (
	"fmt"
	"strings"

	"github.com/quotactl/quotactl/internal/screen"

	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// Run shows a run that has ended, with its error below it.
func Run(on screen.Screen, run jobs.Run) string {
	parts := []string{on.Outcome(string(run.Outcome))}
	if run.Region != "" {
		parts = []string{run.Region, on.Outcome(string(run.Outcome))}
	}
	if run.Reason != "" {
		parts = append(parts, run.Reason)
	}
	parts = append(parts, view.Plural(run.Pages, "page"), amount(run.Units, run.Unknown))
	if run.Output != "" {
		parts = append(parts, run.Output)
	}
	text := "  " + strings.Join(parts, "  ") + "\n"
	if run.Error != "" {
		text += "      " + run.Error + "\n"
	}
	if run.Warning != "" {
		text += "      " + run.Warning + "\n"
	}
	return text
}

// Passes has a row for each run, and their sum; below it is what kept passes from
// beginning.
func Passes(on screen.Screen, passes []jobs.Pass) string {
	t := on.Table("JOB", "REGION", "OUTCOME", "REASON", ">PAGES", ">UNITS")
	pages, units, unknown := 0, int64(0), false
	for _, pass := range passes {
		if len(pass.Runs) == 0 {
			t.Add(pass.Job, "-", on.Outcome(string(pass.Outcome)), pass.Reason, "0", "0")
		}
		for _, run := range pass.Runs {
			region := run.Region
			if region == "" {
				region = "-"
			}
			t.Add(pass.Job, region, on.Outcome(string(run.Outcome)), run.Reason, fmt.Sprint(run.Pages), number(on, run.Units, run.Unknown))
			pages += run.Pages
		}
		units, unknown = units+pass.Units, unknown || pass.Unknown
	}
	t.Add("total", "", "", "", fmt.Sprint(pages), number(on, units, unknown))
	return t.String() + notBegun(on, passes)
}

// notBegun says below the table what kept passes from beginning.
func notBegun(on screen.Screen, passes []jobs.Pass) string {
	var b strings.Builder
	for _, pass := range passes {
		if pass.Error != "" {
			b.WriteString(on.Wrap("  ", pass.Job+": "+pass.Error))
		}
	}
	return b.String()
}
