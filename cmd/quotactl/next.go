package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/internal/suggest"
	"github.com/quotactl/quotactl/jobs"
)

// The bounds of next's -n.
const (
	defaultNext = 20
	maxNext     = 10_000
)

func newNextCommand(a *app) *cobra.Command {
	var n int
	var from string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "next [JOB…]",
		Short: "Show the upcoming runs",
		Long: `Show the upcoming runs of all jobs, or of those named: the tick, when the run
starts, and how many units it is expected to take: as configured, as learned
from the last runs, or at most. The next pass begins with the regions that the
last one missed; later passes are shown as if every pass reached all regions.
Ticks of a paused job are marked: they are skipped until it is resumed.`,
		Example: `  quotactl next
  quotactl next trending -n 8 --from 2026-12-01T00:00:00Z --json`,
		ValidArgsFunction: a.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 || n > maxNext {
				return usage("-n %d: use 1 to %d", n, maxNext)
			}
			start := a.now()
			if from != "" {
				at, err := time.Parse(time.RFC3339Nano, from)
				if err != nil {
					return usage("--from %q is not a time: write it as 2026-12-01T00:00:00Z", from)
				}
				start = at.Add(-time.Nanosecond) // a tick at that instant is among them
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.next(ctx, args, start, n, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.IntVarP(&n, "number", "n", defaultNext, "show `N` runs, 1 to 10000")
	flags.StringVar(&from, "from", "", "show runs from `TIME` on, in RFC 3339 (else after now)")
	a.sandboxFlag(cmd)
	flags.BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

func (a *app) next(ctx context.Context, names []string, from time.Time, n int, asJSON bool) error {
	return a.onJobs(ctx, func(ctx context.Context, cfg *config.Config, list []*jobs.Job, store open.Backend) error {
		all := list
		list, err := chosenJobs(list, names)
		if err != nil {
			return err
		}
		defer a.reading("planning")()
		runs, err := a.reader(cfg, all, store).Next(ctx, list, from, n)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(a.stdout, answer.NewNext(runs))
		}
		if len(runs) == 0 {
			return nil
		}
		return writeText(a.stdout, jobview.Next(a.screen(), runs).String()+jobview.Fits(a.screen(), runs))
	})
}

// chosenJobs are the jobs named, all for no names.
func chosenJobs(list []*jobs.Job, names []string) ([]*jobs.Job, error) {
	if len(names) == 0 {
		return list, nil
	}
	var known []string
	for _, job := range list {
		known = append(known, job.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, usage("there is no job %q; the jobs are: %s%s", name, cmp.Or(strings.Join(known, ", "), "none"), suggest.DidYouMean(name, slices.Clone(known)))
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(job *jobs.Job) bool { return !slices.Contains(names, job.Name) }), nil
}
