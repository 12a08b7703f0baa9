package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/suggest"
	"github.com/quotactl/quotactl/jobs"
)

// outcomes are all that runs shows.
var outcomes = []jobs.Outcome{answer.Running, answer.Waiting, jobs.Succeeded, jobs.Exhausted, jobs.Failed, jobs.TimedOut, jobs.Drained, jobs.Skipped, jobs.Missed, jobs.Lost}

// runsFlags are the flags of runs.
type runsFlags struct {
	n                 int
	since             time.Duration
	outcomes, regions []string
	errors, log       bool
	json              bool
}

// check finds wrong usage of the flags.
func (f *runsFlags) check(changed func(string) bool) error {
	switch {
	case f.n < 1 || f.n > maxNext:
		return usage("-n %d: use 1 to %d", f.n, maxNext)
	case changed("since") && f.since < time.Second:
		return usage("--since %s: use 1s or more, or leave it out for the whole history", f.since)
	case f.errors && changed("outcome"):
		return usage("--errors already chooses by outcome: leave --outcome out")
	}
	for _, outcome := range f.outcomes {
		if !slices.Contains(outcomes, jobs.Outcome(outcome)) {
			known := outcomeList(outcomes, ", ")
			return usage("--outcome %q: use %s%s", outcome, known, suggest.DidYouMean(outcome, strings.Split(known, ", ")))
		}
	}
	return nil
}

func outcomeList(list []jobs.Outcome, between string) string {
	words := make([]string, len(list))
	for i, outcome := range list {
		words[i] = string(outcome)
	}
	return strings.Join(words, between)
}

// asked is which runs the flags ask for.
func (f *runsFlags) asked(now time.Time) look.RunsAsked {
	asked := look.RunsAsked{Most: f.n, Outcomes: f.outcomes, Regions: f.regions, Errors: f.errors, Log: f.log}
	if f.since > 0 {
		asked.Since = now.Add(-f.since)
	}
	return asked
}

func newRunsCommand(a *app) *cobra.Command {
	var f runsFlags
	cmd := &cobra.Command{
		Use:   "runs [JOB…]",
		Short: "Show runs and their outcomes, newest first",
		Long: `Show the runs of all jobs, or of those named, newest pass first: those under
way, then finished ones, as far back as the job's history reaches. Ticks without
a pass are shown too, as skipped or missed. A job that is no longer configured
can be named.

Outcomes: running and waiting (the pass is under way), succeeded, exhausted,
failed, timed_out, drained (stopped after it had spent), skipped, missed,
lost (its daemon died). With --errors, the newest run of a job that found too
few units also says when a pass of all regions last succeeded. An exhausted run
of a job that was past its stale_after is shown as starved.`,
		Example: `  quotactl runs trending
  quotactl runs --errors --since 24h --log
  quotactl runs trending --region US -n 100 --json`,
		ValidArgsFunction: a.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
			return a.onJobs(cmd.Context(), func(ctx context.Context, cfg *config.Config, list []*jobs.Job, store open.Backend) error {
				list, err := jobsOrKept(ctx, store, list, args)
				if err != nil {
					return err
				}
				defer a.reading("reading the store")()
				found, more, err := a.reader(cfg, list, store).Runs(ctx, list, f.asked(a.now()))
				if err != nil {
					return err
				}
				if f.json {
					return writeJSON(a.stdout, answer.Runs{Runs: found})
				}
				text := jobview.Runs(a.screen(), a.now(), found, len(args) == 1)
				switch {
				case more && f.n < maxNext:
					text += fmt.Sprintf("\nThere are more. To see them: -n %d\n", min(10*f.n, maxNext))
				case more:
					text += "\nThere are more. To see fewer: name jobs, or give --since.\n"
				}
				return writeText(a.stdout, text)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVarP(&f.n, "number", "n", defaultNext, "show at most `N` runs, 1 to 10000")
	spanVar(flags, &f.since, "since", 0, "only ticks of the last `SPAN` (else all)")
	flags.StringSliceVar(&f.outcomes, "outcome", nil, "only runs with these `OUTCOMES`, separated by commas")
	flags.BoolVar(&f.errors, "errors", false, "only runs that went wrong, or found too few units: "+outcomeList(answer.WentWrong, ", ")+", exhausted, and those skipped for it")
	flags.StringSliceVar(&f.regions, "region", nil, "only runs of these `REGIONS`, separated by commas")
	flags.BoolVar(&f.log, "log", false, "with the last lines of each run's output")
	a.sandboxFlag(cmd)
	flags.BoolVar(&f.json, "json", false, "answer in JSON")
	completeFlag(cmd, "outcome", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return strings.Split(outcomeList(outcomes, ","), ","), cobra.ShellCompDirectiveNoFileComp
	})
	completeFlag(cmd, "region", a.completeRegion)
	return cmd
}

// jobsOrKept are the jobs named, all of the configuration for no names. One that is
// not configured is a job by its name alone, if something of it is kept.
func jobsOrKept(ctx context.Context, state jobs.State, list []*jobs.Job, names []string) ([]*jobs.Job, error) {
	var chosen []*jobs.Job
	for _, name := range names {
		if i := slices.IndexFunc(list, func(job *jobs.Job) bool { return job.Name == name }); i >= 0 {
			chosen = append(chosen, list[i])
			continue
		}
		_, unknown := chosenJobs(list, []string{name})
		if !driver.ValidName(name) {
			return nil, unknown
		}
		found, err := state.Job(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case found.Text == nil:
			return nil, unknown
		}
		chosen = append(chosen, &jobs.Job{Name: name})
	}
	if len(names) == 0 {
		return list, nil
	}
	return chosen, nil
}

// completeFlag has a shell complete a flag's value.
func completeFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // unknown flag
	}
}
