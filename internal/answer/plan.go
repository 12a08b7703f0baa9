package answer

import (
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/plan"
)

// Plan is the JSON answer of plan.
type Plan struct {
	From    Instant `json:"from"`
	Until   Instant `json:"until"`
	Verdict string  `json:"verdict"` // "fits" or "short"
	// High is the verdict if every run takes what nine of ten do not exceed; null: no needs
	// were learned.
	High    Text          `json:"verdict_high"`
	Budgets []planBudget  `json:"budgets"`
	Jobs    []PlanJob     `json:"jobs"`
	Guesses []string      `json:"unknown"` // jobs whose needs are unknown
	Advice  []PlanAdvice  `json:"advice"`
	Other   *Plan         `json:"other"` // the same question of another configuration, or null
	First   *PlanFirstCut `json:"first_cut"`
	high    *plan.Pass
	Advised bool `json:"-"` // advice was looked for
}

type planBudget struct {
	Budget string        `json:"budget"`
	Limits []PlanLimit   `json:"limits"`
	Now    budget.Status `json:"-"` // what its locks and limits are now
}

// PlanLimit is what happens to a limit.
type PlanLimit struct {
	Name      string       `json:"name"`
	Counts    limit.Counts `json:"counts"`
	Limit     int64        `json:"limit"`
	UsedNow   int64        `json:"used_now"`
	Least     int64        `json:"least_remaining"`
	LeastAt   Instant      `json:"least_at"`
	Resets    []planReset  `json:"resets"`
	Series    []planSample `json:"series"`
	whole     limit.Limit
	untouched bool
}

type planReset struct {
	At   Instant `json:"at"`
	Left int64   `json:"left"`
}

type planSample struct {
	At   Instant `json:"at"`
	Used int64   `json:"used"`
}

// PlanJob is what becomes of a job's passes.
type PlanJob struct {
	Job        string        `json:"job"`
	Budget     string        `json:"budget"`
	Passes     int           `json:"passes"`
	Complete   int           `json:"complete"`
	Cut        int           `json:"cut"`
	NotStarted int           `json:"not_started"`
	Deferred   int           `json:"deferred"`
	Skipped    int           `json:"skipped"`
	Failed     int           `json:"failed"`
	Units      int64         `json:"units"`
	Needs      runNeeds      `json:"needs"`
	FirstCut   *PlanFirstCut `json:"first_cut"`
	sum        plan.JobPlan
}

// PlanFirstCut is the first pass that is cut or not started.
type PlanFirstCut struct {
	Job     string       `json:"job"`
	Tick    Instant      `json:"tick"`
	At      Instant      `json:"at"`
	Limit   Text         `json:"limit"` // "lock": the budget or a limit is locked; null: it was refused before the plan began
	Short   int64        `json:"short"` // what the pass still needed less what was left
	Outcome plan.Outcome `json:"outcome"`
	Lock    *WhyLock     `json:"lock,omitempty"` // left out unless limit is "lock"
}

// PlanAdvice is a change that makes more passes complete.
type PlanAdvice struct {
	Set      string `json:"set"`
	Complete int    `json:"complete"`
	Passes   int    `json:"passes"`
	// FirstCut is the first pass that lacks units all the same; null: none does.
	FirstCut *PlanFirstCut `json:"first_cut"`
}

// NewPlan is the answer of a plan; high is the same plan with high needs, or nil.
func NewPlan(q *plan.Question, p, high *plan.Plan, advice *plan.Advice, advised bool) Plan {
	answer := Plan{
		From: Instant(p.From.UTC()), Until: Instant(p.Until.UTC()), Verdict: planVerdict(p), Budgets: []planBudget{}, Jobs: []PlanJob{},
		Guesses: append([]string{}, q.Guesses()...), Advice: []PlanAdvice{}, First: newFirstCut(p.FirstCut("")), Advised: advised && p.Short(),
	}
	if high != nil {
		answer.High, answer.high = Text(planVerdict(high)), high.FirstCut("")
	}
	for _, b := range p.Budgets {
		one := planBudget{b.Name, []PlanLimit{}, q.Now(&b)}
		for i := range b.Limits {
			one.Limits = append(one.Limits, newPlanLimit(&b.Limits[i]))
		}
		answer.Budgets = append(answer.Budgets, one)
	}
	for _, j := range q.Sums(p) {
		answer.Jobs = append(answer.Jobs, PlanJob{
			Job: j.Name, Budget: j.Budget, Passes: j.Passes, Complete: j.Complete, Cut: j.Cut, NotStarted: j.NotStarted, Deferred: j.Deferred,
			Skipped: j.Skipped, Failed: j.Failed, Units: j.Units, Needs: newRunNeeds(j.Needs), FirstCut: newFirstCut(j.First), sum: j,
		})
	}
	if advice != nil {
		answer.Advice = append(answer.Advice, PlanAdvice{advice.Set, advice.Complete, len(advice.Change.Passes), newFirstCut(advice.Change.FirstCut(""))})
	}
	return answer
}

func planVerdict(p *plan.Plan) string {
	if p.Short() {
		return "short"
	}
	return "fits"
}

func newPlanLimit(l *plan.LimitPlan) PlanLimit {
	one := PlanLimit{
		Name: l.Name, Counts: l.Counts, Limit: l.Limit.Limit, UsedNow: l.UsedNow, Least: l.Least, LeastAt: Instant(l.LeastAt),
		Resets: []planReset{}, Series: []planSample{}, whole: l.Limit, untouched: true,
	}
	for _, r := range l.Resets {
		one.Resets = append(one.Resets, planReset{Instant(time.UnixMicro(r.At).UTC()), r.Left})
	}
	for _, s := range l.Series {
		one.Series = append(one.Series, planSample{Instant(s.At), s.Used})
		one.untouched = one.untouched && s.Used == 0
	}
	return one
}

func newFirstCut(p *plan.Pass) *PlanFirstCut {
	if p == nil {
		return nil
	}
	cut := &PlanFirstCut{Job: p.Job, Tick: Instant(p.Tick), At: Instant(p.At), Limit: Text(p.Limit), Short: p.Short, Outcome: p.Outcome}
	if p.Lock != nil {
		lock := newWhyLock(*p.Lock)
		cut.Lock = &lock
	}
	return cut
}

// Short reports whether a pass will be cut or not started.
func (p *Plan) Short() bool { return p.Verdict == "short" }

// HighCut is the first pass that is cut if every run takes what is enough for nine of ten; nil:
// none is, or it is cut in any case.
func (p *Plan) HighCut() *PlanFirstCut {
	if p.Short() {
		return nil
	}
	return newFirstCut(p.high)
}

// Hidden reports whether the limit is for one operation that is not called.
func (l *PlanLimit) Hidden() bool { return strings.Contains(l.Name, ":") && l.untouched }

// Observed reports whether the limit counts and refuses nothing.
func (l *PlanLimit) Observed() bool { return l.whole.Observe }

// Complete is how many passes are complete, and of how many.
func (p *Plan) Complete() (complete, passes int) {
	for _, j := range p.Jobs {
		complete, passes = complete+j.Complete, passes+j.Passes
	}
	return complete, passes
}

// Expected is what a pass of all regions needs.
func (j *PlanJob) Expected() plan.JobPlan { return j.sum }

// Replay is the JSON answer of plan --replay.
type Replay struct {
	From    Instant        `json:"from"`
	Until   Instant        `json:"until"`
	Budgets []ReplayBudget `json:"budgets"`
}

// ReplayBudget is what would not have fitted of what was charged to a budget.
type ReplayBudget struct {
	Budget  string          `json:"budget"`
	Since   Instant         `json:"since"` // null: the history reaches back to from
	Calls   int64           `json:"calls"`
	Charged int64           `json:"charged_units"` // that they were charged
	Units   int64           `json:"units"`         // at the prices of the configuration
	Refused []ReplayRefused `json:"refused"`
}

// ReplayRefused is what would not have fitted of a job's calls of an operation.
type ReplayRefused struct {
	Job       Text    `json:"job"` // null: charges without a job
	Operation string  `json:"operation"`
	Calls     int64   `json:"calls"`
	Units     int64   `json:"units"`
	First     Instant `json:"first"` // the hour of the first
	Limit     string  `json:"limit"` // that would have refused it
}

// NewReplay is the answer of replays that ended at an instant.
func NewReplay(list []*plan.Replay, until time.Time) Replay {
	answer := Replay{Until: Instant(until.UTC()), Budgets: []ReplayBudget{}}
	for _, r := range list {
		answer.From = Instant(r.From)
		one := ReplayBudget{Budget: r.Budget, Since: Instant(r.Since), Calls: r.Calls, Charged: r.Charged, Units: r.Units, Refused: []ReplayRefused{}}
		for _, f := range r.Refused {
			one.Refused = append(one.Refused, ReplayRefused{Text(f.Job), f.Operation, f.Calls, f.Units, Instant(f.First), f.Limit})
		}
		answer.Budgets = append(answer.Budgets, one)
	}
	return answer
}
