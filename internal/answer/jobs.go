package answer

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/jobs"
)

// Jobs is the JSON answer of jobs.
type Jobs struct {
	At      Instant       `json:"at"`
	Store   string        `json:"store"`
	Daemons []jobs.Daemon `json:"daemons"` // the live ones
	Budgets []BudgetRates `json:"budgets"` // those that the jobs spend
	Jobs    []jobState    `json:"jobs"`
}

type jobState struct {
	Job       string  `json:"job"`
	Budget    string  `json:"budget"`
	Schedule  string  `json:"schedule"`
	Timezone  string  `json:"timezone"`
	StartedBy string  `json:"started_by"` // "daemon" or "cron"
	Next      Instant `json:"next"`       // the next tick, skipped if the job is still paused; null: no tick follows
	jobNow
	Waiting     []jobs.WaitingTick  `json:"waiting"`
	Requests    []jobs.Request      `json:"requests"`
	Deferred    []jobs.DeferredPass `json:"deferred"` // passes that go on once their units return
	Needs       *passNeeds          `json:"needs,omitempty"`
	Last        json.RawMessage     `json:"last"`           // null before the first pass
	LastSuccess Instant             `json:"last_success"`   // null before the first
	Followed    Text                `json:"followed"`       // the schedule that daemons have used for the job so far; null: no daemon has seen it
	Plan        *JobForecast        `json:"plan,omitempty"` // left out if there is none
	Untaken     Instant             `json:"untaken"`        // a tick that no daemon has taken; null: no such tick is known
	Missed      *jobs.MissedTicks   `json:"missed"`         // the ticks without a run since the last one that had one, if cron starts it; null: none
}

// jobNow is what a job is doing now.
type jobNow struct {
	Paused *jobs.Pause       `json:"paused"` // null: not paused
	Active []jobs.ActivePass `json:"active"`
}

func newJobNow(v Job) jobNow {
	return jobNow{v.Pause, append([]jobs.ActivePass{}, v.Active...)}
}

// NewJobs makes the answer of jobs; the budgets are rated, the forecast may be nil.
func NewJobs(at time.Time, store string, daemons []jobs.Daemon, budgets []budget.Status, views []Job, ahead *Forecast) Jobs {
	answer := Jobs{At: Instant(at.UTC()), Store: store, Daemons: daemons, Budgets: newBudgetRates(budgets), Jobs: []jobState{}}
	for _, v := range views {
		answer.Jobs = append(answer.Jobs, jobState{
			Job: v.Name, Budget: v.Budget, Schedule: v.Schedule.String(), Timezone: v.Schedule.Zone().String(), StartedBy: cmp.Or(string(v.StartedBy), "daemon"), Next: Instant(v.NextTick),
			jobNow:  newJobNow(v),
			Waiting: append([]jobs.WaitingTick{}, v.Waiting...), Requests: append([]jobs.Request{}, v.Requests...),
			Deferred: append([]jobs.DeferredPass{}, v.Deferred...),
			Needs:    newPassNeeds(v.Expected), Last: v.Last, LastSuccess: Instant(v.LastSuccess), Followed: Text(v.Followed), Untaken: Instant(v.Untaken), Missed: v.Missed, Plan: ahead.Job(v.Name),
		})
	}
	return answer
}

// TakenBack is the JSON answer of trigger --cancel.
type TakenBack struct {
	Job string `json:"job"`
	// TakenBack are the requests that no daemon had begun.
	TakenBack []jobs.Request `json:"taken_back"`
	// Deferred are the passes that no longer go on.
	Deferred []jobs.DeferredPass `json:"deferred"`
	// Active are the passes under way, which go on.
	Active []jobs.ActivePass `json:"active"`
}

// NewTakenBack is the answer of a job that is as in the view, after both were taken back.
func NewTakenBack(v Job, taken []jobs.Request, dropped []jobs.DeferredPass) TakenBack {
	return TakenBack{v.Name, append([]jobs.Request{}, taken...), append([]jobs.DeferredPass{}, dropped...), append([]jobs.ActivePass{}, v.Active...)}
}
