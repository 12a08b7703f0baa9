package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/internal/suggest"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// planFlags are what plan is asked.
type planFlags struct {
	span, replay  time.Duration
	until         string
	sets          []string
	other         string
	check, asJSON bool
	all           bool // every limit, also on a terminal
}

// The bounds of a plan's span, and what it is unless told.
const (
	leastPlan   = time.Minute
	defaultPlan = plan.DefaultSpan
	mostPlan    = look.MostPlan
)

func newPlanCommand(a *app) *cobra.Command {
	var p planFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show whether the coming passes will have their units",
		Long: `Show whether every pass of the coming hours will be complete, and if not, which
is cut first, when, by which limit, and by how many units. A simulation runs
the jobs on their schedules from the ledger as it stands, with what each run
needs. It charges nothing and calls no upstream.

--set asks the same of the configuration with some values changed, --other of
another file. --replay asks instead which of the calls charged in the past
would not have fitted.`,
		Example: `  quotactl plan --for 24h
  quotactl plan --set 'job.backfill.schedule="0 9 * * *"'
  quotactl plan --replay 7d --set upstream.youtube.limit.daily.headroom=2000
  quotactl plan --check --until reset`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed
			switch {
			case p.until != "" && p.until != "reset":
				return usage("--until %q: write --until reset, or a span with --for", p.until)
			case given("for") && given("until"), given("replay") && (given("for") || given("until")):
				return usage("--for, --until and --replay say how long: give one of them")
			case p.span < leastPlan || p.span > mostPlan:
				return usage("--for %s: use 1m to 62d", limit.SpanText(p.span))
			case given("replay") && p.replay < time.Hour:
				return usage("--replay %s: the history is by the hour: use 1h or more", limit.SpanText(p.replay))
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.plan(ctx, p)
		},
	}
	flags := cmd.Flags()
	spanVar(flags, &p.span, "for", defaultPlan, "plan this `SPAN`, 1m to 62d")
	flags.StringVar(&p.until, "until", "", "plan until each calendar limit has had its next `reset`")
	flags.StringArrayVar(&p.sets, "set", nil, "ask what happens with this `KEY=VALUE` in the configuration")
	flags.StringVar(&p.other, "other", "", "ask what happens with this configuration `FILE`")
	spanVar(flags, &p.replay, "replay", 0, "judge the calls charged in the last `SPAN`, 1h or more")
	flags.BoolVar(&p.check, "check", false, "exit with 75 if a pass will lack units")
	flags.BoolVar(&p.asJSON, "json", false, "answer in JSON")
	a.sandboxFlag(cmd)
	verboseFlag(cmd, &p.all)
	return cmd
}

func (a *app) plan(ctx context.Context, p planFlags) error {
	return a.onJobs(ctx, func(ctx context.Context, cfg *config.Config, list []*jobs.Job, store open.Backend) error {
		defer a.reading("planning")()
		ask := &asked{a: a, store: store, flags: p, path: a.configPath}
		present, err := ask.world(cfg, list)
		if err != nil {
			return err
		}
		var changed *world
		if p.other != "" {
			ask.path = p.other
		}
		if p.other != "" || len(p.sets) > 0 {
			if changed, err = ask.load(p.sets...); err != nil {
				return err
			}
		}
		if p.replay > 0 {
			if changed == nil {
				changed = present
			}
			return ask.replay(ctx, present, changed)
		}
		return ask.plan(ctx, present, changed)
	})
}

// asked is a plan that is asked for.
type asked struct {
	a     *app
	store open.Backend
	flags planFlags
	path  string // of the configuration that is changed
}

// world is a configuration with its jobs and budgets.
type world struct {
	cfg     *config.Config
	jobs    []*jobs.Job
	budgets []*budget.Budget
}

func (q *asked) world(cfg *config.Config, list []*jobs.Job) (*world, error) {
	w := &world{cfg: cfg, jobs: list}
	reader := q.a.reader(cfg, list, q.store)
	for _, name := range reader.Budgets() {
		b, err := reader.Open(name)
		if err != nil {
			return nil, err
		}
		w.budgets = append(w.budgets, b)
	}
	return w, nil
}

// load is the configuration with settings.
func (q *asked) load(sets ...string) (*world, error) {
	var settings []config.Setting
	for _, text := range sets {
		one, err := config.ParseSetting(text)
		if err != nil {
			return nil, usage("--set %v", err)
		}
		settings = append(settings, one)
	}
	cfg, err := config.ParseWith(q.path, settings)
	if q.flags.replay > 0 && err == nil { // what was charged does not depend on what jobs will need
		if err := cfg.Err(); err != nil {
			return nil, &exitError{code: exitUsage, err: err}
		}
		return q.world(cfg, nil)
	}
	cfg, list, err := checked(cfg, err)
	if err != nil {
		return nil, errors.Join(q.mistyped(settings), err)
	}
	return q.world(cfg, list)
}

// mistyped is the error of a setting that makes a job or an upstream whose name is close to one of
// the file; nil: there is none.
func (q *asked) mistyped(settings []config.Setting) error {
	cfg, err := config.Parse(q.path)
	if err != nil {
		return nil
	}
	known := map[string][]string{}
	for _, job := range cfg.Jobs {
		known["job"] = append(known["job"], job.Key())
	}
	for _, u := range cfg.Upstreams {
		known["upstream"] = append(known["upstream"], u.Name)
	}
	for _, s := range settings {
		if len(s.Key) < 3 || known[s.Key[0]] == nil || slices.Contains(known[s.Key[0]], s.Key[1]) {
			continue
		}
		if meant := suggest.DidYouMean(s.Key[1], known[s.Key[0]]); meant != "" {
			return fmt.Errorf("--set %s: there is no %s %q%s", strings.Join(s.Key, "."), s.Key[0], s.Key[1], meant)
		}
	}
	return nil
}

// plan answers what will happen, also with the change if there is one.
func (q *asked) plan(ctx context.Context, present, changed *world) error {
	now, others := q.a.now(), map[string][]limit.Limit{}
	if changed != nil {
		for _, b := range changed.budgets {
			others[b.Name()] = b.Spec().Limits
		}
	}
	question, err := plan.Read(ctx, q.store, present.budgets, present.jobs, now, plan.Reading{Others: others})
	if err != nil {
		return err
	}
	question.Until = now.Add(q.flags.span)
	if q.flags.until != "" {
		if question.Until = question.LastReset(); question.Until.IsZero() {
			return usage("--until reset: no limit of the jobs' budgets has a calendar; write a span with --for")
		}
	}
	says, err := q.answer(ctx, question, changed == nil)
	if err != nil {
		return err
	}
	verdict := says
	if changed != nil {
		other, err := question.Other(ctx, q.store, changed.budgets, changed.jobs)
		if err != nil {
			return err
		}
		if says.Other, err = q.answer(ctx, other, true); err != nil {
			return err
		}
		verdict = says.Other
	}
	if err := q.write(says); err != nil {
		return err
	}
	if q.flags.check && verdict.Short() {
		return &exitError{code: exitExhausted}
	}
	return nil
}

// write shows the plan; beside a change, that one alone, and what the present one comes to.
func (q *asked) write(says *answer.Plan) error {
	switch {
	case q.flags.asJSON:
		return writeJSON(q.a.stdout, says)
	case says.Other != nil:
		return writeText(q.a.stdout, view.Beside(q.a.screen(), says, says.Other)+"\n"+view.Plan(q.a.screen(), says.Other, q.flags.all))
	}
	return writeText(q.a.stdout, view.Plan(q.a.screen(), says, q.flags.all))
}

// answer plans, with advice if a pass lacks units.
func (q *asked) answer(ctx context.Context, question *plan.Question, advises bool) (*answer.Plan, error) {
	if !advises {
		return look.Answer(ctx, question, nil)
	}
	return look.Answer(ctx, question, func(set string) (*plan.Question, error) {
		changed, err := q.load(append(append([]string{}, q.flags.sets...), set)...)
		if err != nil {
			return nil, err
		}
		return question.Other(ctx, q.store, changed.budgets, changed.jobs)
	})
}

// replay answers what of the charges by one configuration would not have fitted another.
func (q *asked) replay(ctx context.Context, present, in *world) error {
	now := q.a.now()
	var list []*plan.Replay
	for _, b := range in.budgets {
		if driver.KeptOf(b.Name(), in.cfg.Store.History, in.cfg.Store.NoHistory) < 0 {
			q.a.logger().Warn("not replayed: its upstream keeps no history", "budget", b.Name())
			continue
		}
		before := b
		if at := slices.IndexFunc(present.budgets, func(p *budget.Budget) bool { return p.Name() == b.Name() }); at >= 0 {
			before = present.budgets[at]
		}
		one, err := plan.NewReplay(ctx, q.store, before, b, now, q.flags.replay)
		if err != nil {
			return err
		}
		list = append(list, one)
	}
	if len(list) == 0 {
		return usage("there is no budget whose history could be replayed")
	}
	says := answer.NewReplay(list, now)
	var err error
	if q.flags.asJSON {
		err = writeJSON(q.a.stdout, says)
	} else {
		err = writeText(q.a.stdout, view.Replay(q.a.screen(), &says))
	}
	for _, one := range list {
		if q.flags.check && len(one.Refused) > 0 {
			return errors.Join(err, &exitError{code: exitExhausted})
		}
	}
	return err
}
