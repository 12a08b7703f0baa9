package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/suggest"
	"github.com/quotactl/quotactl/internal/table"
	"github.com/quotactl/quotactl/internal/view"
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
		Long: `Show the upcoming runs of all jobs, or of those named, with the offset of each
run after its tick. The next pass begins with the region that the last one
missed; later passes are shown as if every pass reached all regions. Ticks of a
paused job are marked: they are skipped until it is resumed.`,
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
				start = at
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.next(ctx, args, start, n, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.IntVarP(&n, "number", "n", defaultNext, "show `N` runs, 1 to 10000")
	flags.StringVar(&from, "from", "", "show runs after `TIME`, in RFC 3339 (else now)")
	flags.BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// nextRun is one upcoming run.
type nextRun struct {
	job, region string
	tick, at    time.Time
	paused      bool
}

type nextJSON struct {
	Job    string  `json:"job"`
	Region string  `json:"region"` // empty where the job names none
	Tick   instant `json:"tick"`
	At     instant `json:"at"`
	Paused bool    `json:"paused"` // it is skipped, unless the job is resumed before
}

func (a *app) next(ctx context.Context, names []string, from time.Time, n int, asJSON bool) error {
	cfg, list, err := a.loadConfig()
	if err != nil {
		return err
	}
	if list, err = chosenJobs(list, names); err != nil {
		return err
	}
	views, err := a.nextViews(ctx, cfg, list)
	if err != nil {
		return err
	}
	runs := upcoming(views, from, n)
	if asJSON {
		answer := struct {
			Runs []nextJSON `json:"runs"`
		}{[]nextJSON{}}
		for _, r := range runs {
			answer.Runs = append(answer.Runs, nextJSON{r.job, r.region, instant(r.tick), instant(r.at), r.paused})
		}
		return writeJSON(a.stdout, answer)
	}
	return nextTable(runs).Write(a.stdout)
}

// nextTable has a column for paused jobs only when there is one.
func nextTable(runs []nextRun) *table.Table {
	heads := []string{"JOB", "REGION", "TICK", "AT", ">OFFSET"}
	paused := slices.ContainsFunc(runs, func(r nextRun) bool { return r.paused })
	if paused {
		heads = append(heads, "JOB IS")
	}
	t := table.New(heads...)
	for _, r := range runs {
		row := []string{r.job, cmp.Or(r.region, "-"), view.Time(r.tick), view.Time(r.at), limit.SpanText(r.at.Sub(r.tick))}
		switch {
		case r.paused:
			row = append(row, "paused")
		case paused:
			row = append(row, "-")
		}
		t.Add(row...)
	}
	return t
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
	return slices.DeleteFunc(list, func(job *jobs.Job) bool { return !slices.Contains(names, job.Name) }), nil
}

// nextViews are what is known of the jobs.
func (a *app) nextViews(ctx context.Context, cfg *config.Config, list []*jobs.Job) (views []answer.Job, err error) {
	store, err := a.openStore(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return answer.LookAtJobs(ctx, a.now(), store, list)
}

// upcoming are the first n runs after an instant, in the order they start.
func upcoming(views []answer.Job, from time.Time, n int) []nextRun {
	var runs []nextRun
	for _, job := range views {
		tick, order := from, job.Order(job.NextRegion)
		for i := 0; i < n; {
			if tick = job.Next(tick); tick.IsZero() {
				break
			}
			for place, region := range order {
				runs = append(runs, nextRun{job.Name, region, tick, tick.Add(job.Offset(place)), job.Pause != nil})
				i++
			}
		}
	}
	slices.SortStableFunc(runs, func(a, b nextRun) int { return a.at.Compare(b.at) })
	return runs[:min(n, len(runs))]
}
