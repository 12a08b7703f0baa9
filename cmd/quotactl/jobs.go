package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/secret"
	"github.com/quotactl/quotactl/internal/serve"
	"github.com/quotactl/quotactl/jobs"
)

func newJobsCommand(a *app) *cobra.Command {
	var inSandbox, asJSON bool
	cmd := &cobra.Command{
		Use:   "jobs [JOB…]",
		Short: "Show the jobs: what they do, how they went, when they run next",
		Long: `Show all jobs, or those named, by budget: when each runs next, whether it
runs, waits or is paused, and how its last pass went, how long ago and for how
many units. Below stand what is under way and on which host, what waits, who
paused the job and why, ticks that no daemon has taken, and whether a daemon is
running: one that follows jobs is heard of twice a minute. All of it is read
from the store, so it is the same on every machine.`,
		Example: `  quotactl jobs
  quotactl jobs trending --json`,
		ValidArgsFunction: a.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onJobs(cmd.Context(), inSandbox, func(ctx context.Context, cfg *config.Config, list []*jobs.Job, store open.Backend) error {
				list, err := chosenJobs(list, args)
				if err != nil {
					return err
				}
				views, err := lookAtJobs(ctx, a.now(), store, list)
				if err != nil {
					return err
				}
				daemons, err := jobs.Daemons(ctx, store)
				switch {
				case err != nil:
					return err
				case asJSON:
					return writeJSON(a.stdout, newJobsAnswer(a.now(), secret.RedactURL(a.storeAt(cfg)), daemons, views))
				}
				return writeJobs(a.stdout, a.now(), daemons, views)
			})
		},
	}
	sandboxFlag(cmd, &inSandbox)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// jobsAnswer is the JSON answer of jobs.
type jobsAnswer struct {
	At      serve.Instant  `json:"at"`
	Store   string         `json:"store"`
	Daemons []jobs.Daemon  `json:"daemons"` // those that live
	Jobs    []jobStateJSON `json:"jobs"`
}

type jobStateJSON struct {
	Job      string        `json:"job"`
	Budget   string        `json:"budget"`
	Schedule string        `json:"schedule"`
	Timezone string        `json:"timezone"`
	Next     serve.Instant `json:"next"` // the next tick, which is skipped while the job is paused; null: none comes
	jobNowJSON
	Waiting     []jobs.WaitingTick `json:"waiting"`
	Requests    []jobs.Request     `json:"requests"`
	Last        json.RawMessage    `json:"last"`         // null before the first pass
	LastSuccess serve.Instant      `json:"last_success"` // null before the first
	Followed    serve.Text         `json:"followed"`     // the schedule by which daemons have followed it; null: none has
	Untaken     serve.Instant      `json:"untaken"`      // a tick that no daemon has taken; null: none is known
}

// jobNowJSON is what is under way of a job.
type jobNowJSON struct {
	Paused *jobs.Pause       `json:"paused"` // null: it is not
	Active []jobs.ActivePass `json:"active"`
}

func newJobNowJSON(v jobView) jobNowJSON {
	return jobNowJSON{v.Pause, append([]jobs.ActivePass{}, v.Active...)}
}

func newJobsAnswer(at time.Time, store string, daemons []jobs.Daemon, views []jobView) jobsAnswer {
	answer := jobsAnswer{At: serve.Instant(at.UTC()), Store: store, Daemons: daemons, Jobs: []jobStateJSON{}}
	for _, v := range views {
		answer.Jobs = append(answer.Jobs, jobStateJSON{
			Job: v.Name, Budget: v.Budget, Schedule: v.Schedule.String(), Timezone: v.Schedule.Zone().String(), Next: serve.Instant(v.next),
			jobNowJSON: newJobNowJSON(v),
			Waiting:    append([]jobs.WaitingTick{}, v.Waiting...), Requests: append([]jobs.Request{}, v.Requests...),
			Last: v.Last, LastSuccess: serve.Instant(v.LastSuccess), Followed: serve.Text(v.Followed), Untaken: serve.Instant(v.Untaken),
		})
	}
	return answer
}

// writeJobs shows a table for each budget that the jobs spend, and that no daemon
// lives.
func writeJobs(w io.Writer, at time.Time, daemons []jobs.Daemon, views []jobView) error {
	var budgets, parts []string
	tables := map[string]*table{}
	for _, v := range views {
		if tables[v.Budget] == nil {
			budgets = append(budgets, v.Budget)
			tables[v.Budget] = newTable("JOB", "NEXT IN", "STATE", "LAST PASS", ">UNITS", "SCHEDULE")
			tables[v.Budget].wraps = true
		}
		addJob(v, tables[v.Budget], at)
	}
	for _, name := range budgets {
		parts = append(parts, wrap("", name)+tables[name].String())
	}
	if len(daemons) == 0 && len(views) > 0 {
		parts = append(parts, wrap("", "no daemon is running on this store: nothing runs until you start one (quotactl run)"))
	}
	if _, err := io.WriteString(w, strings.Join(parts, "\n")); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// addJob adds the job to a table of jobs.
func addJob(v jobView, t *table, at time.Time) {
	next, last, units := "-", "-", "-"
	if !v.next.IsZero() {
		next = roughly(v.next.Sub(at))
	}
	if v.last != nil {
		when := v.last.Ended
		if when.IsZero() {
			when = v.last.Tick
		}
		last, units = fmt.Sprintf("%s %s ago", v.last.Outcome, roughly(max(0, at.Sub(when.Time)).Truncate(time.Second))), number(v.last.Units)
	}
	t.add(v.Name, next, v.state(), last, units, v.Schedule.String()+" "+v.Schedule.Zone().String())
	for _, note := range append(nowNotes(v), waitNotes(v)...) {
		t.below("", note)
	}
}

// onJobs opens the store, or the sandbox's, for one thing to do with the jobs of the
// configuration.
func (a *app) onJobs(ctx context.Context, inSandbox bool, do func(context.Context, *config.Config, []*jobs.Job, open.Backend) error) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	cfg, list, err := a.loadConfig()
	if err != nil {
		return err
	}
	if inSandbox {
		if err := a.useSandbox(cfg); err != nil {
			return err
		}
	}
	store, err := a.openStore(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, cfg, list, store), store.Close())
}

// sandboxFlag has a command work on the sandbox's store.
func sandboxFlag(cmd *cobra.Command, in *bool) {
	cmd.Flags().BoolVar(in, "sandbox", false, "use the sandbox's store, sandbox.db beside the configuration")
}
