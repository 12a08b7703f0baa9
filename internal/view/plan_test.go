package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/needs"
)

var noon = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

// planWorld is a plan of two days, made by hand.
type planWorld struct {
	plan.Question
	plan.Plan
}

func newPlanWorld(limits ...plan.LimitPlan) *planWorld {
	w := &planWorld{}
	w.Question.From, w.Question.Until = noon, noon.Add(48*time.Hour)
	w.Plan.From, w.Plan.Until = w.Question.From, w.Question.Until
	w.Plan.Budgets = []plan.BudgetPlan{{Name: "shop/main", Limits: limits}}
	w.Question.Budgets = []plan.Budget{{Name: "shop/main"}}
	return w
}

// job adds a job, and a pass for each outcome, an hour apart.
func (w *planWorld) job(name string, e needs.Estimate, outcomes ...plan.Outcome) {
	w.Jobs = append(w.Jobs, plan.Job{
		Job:   &jobs.Job{Name: name, Budget: "shop/main", Regions: []string{"US"}},
		Needs: jobs.Needs{Regions: []jobs.RegionNeeds{{Region: "US", Estimate: e}}},
	})
	for i, o := range outcomes {
		p := &plan.Pass{Job: name, Budget: "shop/main", Tick: noon.Add(time.Duration(i+1) * time.Hour), Outcome: o}
		switch o {
		case plan.Complete:
			p.Units = 100
		case plan.Skipped:
		default:
			p.At, p.Limit, p.Short = p.Tick.Add(4*time.Minute), "day", 50
		}
		w.Passes = append(w.Passes, p)
	}
}

func (w *planWorld) says(high *plan.Plan, advice *plan.Advice, advised bool) *answer.Plan {
	a := answer.NewPlan(&w.Question, &w.Plan, high, advice, advised)
	return &a
}

func configured(units int64) needs.Estimate {
	return needs.Estimate{Source: needs.Configured, Amounts: []needs.Amount{{Operation: "get", Units: units, Calls: units}}}
}

func planLimitOf(name string, most, least int64, used ...int64) plan.LimitPlan {
	l := plan.LimitPlan{Limit: limit.Limit{Name: name, Limit: most}, UsedNow: used[0], Least: least, LeastAt: noon.Add(time.Hour)}
	for i, u := range used {
		l.Series = append(l.Series, plan.Sample{At: noon.Add(48 * time.Hour * time.Duration(i) / time.Duration(len(used))), Used: u})
	}
	return l
}

// saysExactly compares a text, and that no line is wider than 80 columns.
func saysExactly(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("it says\n%s\nwant\n%s", got, want)
	}
	for line := range strings.Lines(got) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 && !strings.HasPrefix(line, "  --set ") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// A plan that fits: of limits, the plot, the resets, and which are left out.
func TestPlanThatFits(t *testing.T) {
	day := planLimitOf("day", 1000, 400, 0, 1, 125, 126, 600, 0, 1000, 1200)
	for i := range 5 {
		day.Resets = append(day.Resets, plan.Reset{At: noon.Add(time.Duration(i*8+4) * time.Hour).UnixMicro(), Left: int64(400 - i)})
	}
	calls := planLimitOf("calls", 10, 7, 3)
	calls.Counts, calls.Observe = limit.CountCalls, true
	w := newPlanWorld(day, calls, planLimitOf("each:get", 10, 9, 0, 1), planLimitOf("each:put", 10, 10, 0, 0))
	w.job("orders", configured(100), plan.Complete, plan.Complete, plan.Skipped)
	w.job("stock", needs.Estimate{Source: needs.Bound, Amounts: []needs.Amount{{Operation: "get", Units: 8, Calls: 8}}})
	saysExactly(t, Plan(screen.Pipe(), w.says(nil, nil, false), false), `
fits: no pass until 2026-11-22 12:00:00Z lacks units (3 passes, 2 complete).

JOB     PASSES  COMPLETE  SKIPPED  UNITS  A PASS NEEDS
orders       3         2        1    200  100 configured
stock        0         0        0      0  at most 8

What is used of each limit from 2026-11-20 12:00:00Z to 2026-11-22 12:00:00Z, a
column for 45m:

shop/main
  day: 0 of 1000 units used now; fewest left: 400, at 2026-11-20 13:00:00Z
    | ▅      ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▂▂▂▂▂▂▂▂▅▅▅▅▅▅▅▅        ████████████████|
          ^          ^         ^          ^          ^
    ^ resets at 2026-11-20 16:00:00Z with 400 left, at 2026-11-21 00:00:00Z with
      399 left, at 2026-11-21 08:00:00Z with 398 left, 2 more
  calls (observe mode): 3 of 10 calls used now; fewest left: 7, at 2026-11-20
  13:00:00Z
    |▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃|
  each:get: 0 of 10 units used now; fewest left: 9, at 2026-11-20 13:00:00Z
    | ▁                              ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁|
`)
}

// A plan that is short, with all that can become of passes, and jobs of long names.
func TestPlanThatIsShort(t *testing.T) {
	w := newPlanWorld()
	w.job("a-job-with-a-name-that-is-quite-long", configured(100), plan.Complete, plan.Cut, plan.NotStarted, plan.Deferred, plan.Skipped, plan.Failed)
	w.job("guess", needs.Estimate{Source: needs.Unknown}, plan.Complete)
	saysExactly(t, Plan(screen.Pipe(), w.says(nil, nil, true), false), `
short: a-job-with-a-name-that-is-quite-long (tick 2026-11-20 14:00:00Z) will be
cut at 2026-11-20 14:04:00Z by limit day, 50 short. 2 of 7 passes until
2026-11-22 12:00:00Z will be complete.

JOB             a-job-with-a-name-that-is-quite-long
  PASSES        6
  COMPLETE      1
  CUT           1
  NOT STARTED   1
  DEFERRED      1
  SKIPPED       1
  FAILED        1
  UNITS         100
  A PASS NEEDS  100 configured
  first: tick 2026-11-20 14:00:00Z will be cut at 2026-11-20 14:04:00Z by limit
  day, 50 short
JOB             guess
  PASSES        1
  COMPLETE      1
  CUT           0
  NOT STARTED   0
  DEFERRED      0
  SKIPPED       0
  FAILED        0
  UNITS         100
  A PASS NEEDS  unknown

What is used of each limit from 2026-11-20 12:00:00Z to 2026-11-22 12:00:00Z, a
column for 45m:

shop/main

It is not known what the runs of guess need, so this plan counts nothing for
them. Write needs into the tables of these jobs; without, needs are learned from
five complete runs on.

Nothing that was tried (another hour or minute, another stagger, a share, fewer
pages) makes more passes complete.
`)
	better := newPlanWorld()
	better.job("orders", configured(100), plan.Complete, plan.Complete)
	advice := &plan.Advice{Set: `job.orders.schedule="0 9 * * *"`, Complete: 2, Change: &better.Plan}
	if got, want := Plan(screen.Pipe(), w.says(nil, advice, true), false), "\nWith this change, 2 of 2 passes will be complete:\n  --set 'job.orders.schedule=\"0 9 * * *\"'\n"; !strings.HasSuffix(got, want) {
		t.Errorf("it says\n%s\nwant at the end%s", got, want)
	}
}

// The verdict's sentence, by what becomes of the first pass that lacks units.
func TestPlanVerdict(t *testing.T) {
	verdict := func(change func(p *plan.Pass), outcome plan.Outcome) string {
		w := newPlanWorld()
		w.job("orders", configured(100), outcome)
		change(w.Passes[0])
		text, _, _ := strings.Cut(Plan(screen.Pipe(), w.says(nil, nil, false), false), "\n\n")
		return strings.Join(strings.Fields(text), " ")
	}
	same := func(*plan.Pass) {}
	end := " 0 of 1 pass until 2026-11-22 12:00:00Z will be complete."
	for _, test := range []struct {
		outcome plan.Outcome
		change  func(p *plan.Pass)
		want    string
	}{
		{plan.NotStarted, same, "will not start at 2026-11-20 13:04:00Z by limit day, 50 short."},
		{plan.Deferred, same, "will be deferred at 2026-11-20 13:04:00Z by limit day, 50 short."},
		{plan.Failed, same, "will fail at 2026-11-20 13:04:00Z by limit day, 50 short."},
		{plan.Cut, func(p *plan.Pass) {
			p.Limit, p.Lock = plan.Lock, &budget.Lock{Limit: "day", Until: p.At.Add(time.Hour), Why: "a ban"}
		}, "will be cut at 2026-11-20 13:04:00Z: locked until 2026-11-20 14:04:00Z: limit day (a ban)."},
		{plan.Cut, func(p *plan.Pass) { p.Limit, p.Short = "", 0 }, "has lacked units already and will not be complete."},
	} {
		check.Equal(t, verdict(test.change, test.outcome), "short: orders (tick 2026-11-20 13:00:00Z) "+test.want+end, "verdict")
	}
	check.Equal(t, Plan(screen.Pipe(), newPlanWorld().says(nil, nil, false), false), "There are no jobs, so there is nothing to plan.\n", "no jobs")

	w, high := newPlanWorld(), newPlanWorld()
	w.job("orders", configured(100), plan.Complete)
	high.job("orders", configured(100), plan.Cut)
	text := Plan(screen.Pipe(), w.says(&high.Plan, nil, false), false)
	check.Contains(t, text, `fits: no pass until 2026-11-22 12:00:00Z lacks units. But if each run takes as
much as nine of ten runs do not exceed: orders (tick 2026-11-20 13:00:00Z) will
be cut at 2026-11-20 13:04:00Z by limit day, 50 short.
`, "high")
	w.job("guess", needs.Estimate{Source: needs.Unknown})
	check.Contains(t, Plan(screen.Pipe(), w.says(nil, nil, false), false), "fits, as far as needs are known: no pass until ", "unknown")
	check.Equal(t, Beside(screen.Pipe(), w.says(nil, nil, false), w.says(nil, nil, false)), "With the change, 1 of 1 pass will be complete; without it, 1 of 1, as far as\nneeds are known.\n", "beside")
}

// What status and jobs say of a budget by plan.
func TestByPlan(t *testing.T) {
	says := func(rough bool, add func(w *planWorld)) string {
		w := newPlanWorld(planLimitOf("week", 1000, 300, 0), planLimitOf("day", 100, 20, 0))
		w.Question.Budgets[0].Rough = rough
		add(w)
		return ByPlan(screen.Pipe(), answer.NewForecast(&w.Question, &w.Plan).Budget("shop/main"))
	}
	check.Equal(t, ByPlan(screen.Pipe(), nil), "", "no plan")
	check.Equal(t, says(false, func(*planWorld) {}), "", "no passes")
	fits := func(w *planWorld) { w.job("orders", configured(100), plan.Complete) }
	cut := func(w *planWorld) { w.job("stock", configured(100), plan.Complete, plan.Cut) }
	guess := func(w *planWorld) { w.job("guess", needs.Estimate{Source: needs.Unknown}, plan.Complete) }
	saysExactly(t, says(false, fits), `
  by plan: no pass until 2026-11-22 12:00:00Z lacks units; fewest left: 20 of
  limit day, at 2026-11-20 13:00:00Z
`)
	saysExactly(t, says(true, func(w *planWorld) { fits(w); cut(w) }), `
  by plan, to the hour: stock (tick 2026-11-20 14:00:00Z) will be cut at
  2026-11-20 14:04:00Z by limit day, 50 short; 2 of 3 passes until 2026-11-22
  12:00:00Z will be complete
`)
	saysExactly(t, says(false, guess), `
  by plan: not known, since it is not known what the runs of guess need
`)
	saysExactly(t, says(false, func(w *planWorld) { guess(w); fits(w) }), `
  by plan: no pass until 2026-11-22 12:00:00Z lacks units; fewest left: 20 of
  limit day, at 2026-11-20 13:00:00Z; it counts nothing for guess, whose needs
  are not known
`)
	w := newPlanWorld()
	cut(w)
	check.Equal(t, JobByPlan(screen.Pipe(), answer.NewForecast(&w.Question, &w.Plan).Job("stock")),
		"by plan: tick 2026-11-20 14:00:00Z will be cut at 2026-11-20 14:04:00Z by limit day, 50 short; 1 of 2 passes until 2026-11-22 12:00:00Z will be complete", "a job")
}

// What a replay says.
func TestReplay(t *testing.T) {
	r := answer.NewReplay([]*plan.Replay{
		{Budget: "shop/idle", From: noon},
		{Budget: "shop/main", From: noon, Calls: 1, Charged: 100, Units: 100},
		{Budget: "shop/new", From: noon, Since: noon.Add(time.Hour), Calls: 20, Charged: 1000, Units: 2000, Refused: []plan.ReplayRefused{
			{Job: "backfill", Operation: "search", Calls: 2, Units: 200, First: noon.Add(2 * time.Hour), Limit: "day"},
			{Operation: "get", Calls: 1, Units: 1, First: noon.Add(3 * time.Hour), Limit: "day"},
		}},
	}, noon.Add(48*time.Hour))
	saysExactly(t, Replay(screen.Pipe(), &r), `
shop/idle: nothing was charged since 2026-11-20 12:00:00Z.
shop/main: 1 call since 2026-11-20 12:00:00Z, 100 units; all would have fitted.
shop/new: 20 calls since 2026-11-20 13:00:00Z, 1000 units, 2000 at these prices;
3 calls (201 units) would not have fitted:
JOB       OPERATION  CALLS  UNITS  FIRST IN THE HOUR     LIMIT
backfill  search         2    200  2026-11-20 14:00:00Z  day
-         get            1      1  2026-11-20 15:00:00Z  day
The history is by the hour: the calls of an hour are taken as made when they fit
best. Calls that were refused at the time are not in it.
`)
}

// In a plan of a minute, columns without a sample are as the one before.
func TestPlotOfAShortSpan(t *testing.T) {
	l := plan.LimitPlan{Limit: limit.Limit{Name: "minute", Limit: 100}}
	for i := range 60 {
		l.Series = append(l.Series, plan.Sample{At: noon.Add(time.Duration(i) * time.Second), Used: 50})
	}
	w := newPlanWorld(l)
	w.Plan.Until = noon.Add(time.Minute)
	w.job("orders", configured(1))
	check.Contains(t, Plan(screen.Pipe(), w.says(nil, nil, false), false), fmt.Sprintf("|%s|", strings.Repeat("▄", plotWidth(screen.Pipe()))), "plot")
}

// A column shows the most that any of its samples has.
func TestPlotOfTheHighest(t *testing.T) {
	w := newPlanWorld(planLimitOf("day", 8, 8, make([]int64, 4*plotWidth(screen.Pipe()))...))
	w.Plan.Budgets[0].Limits[0].Series[1].Used = 8
	w.job("orders", configured(1))
	check.Contains(t, Plan(screen.Pipe(), w.says(nil, nil, false), false), fmt.Sprintf("|█%s|", strings.Repeat(" ", plotWidth(screen.Pipe())-1)), "plot")
}
