package answer

import (
	"encoding/json"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/jobs"
)

// Overview is the JSON answer of status.
type Overview struct {
	At      Instant      `json:"at"`
	Store   string       `json:"store"`
	Budgets []Budget     `json:"budgets"`
	Jobs    []jobSummary `json:"jobs"`
	// Daemons are the live ones.
	Daemons []jobs.Daemon `json:"daemons"`
	// Alerts are those of the configuration, and whether their messages arrive.
	Alerts []alert.Health `json:"alerts"`
	// Aside says how many files of the host's state directory are set aside, and where; left
	// out if there are none.
	Aside string `json:"aside,omitempty"`
}

type jobSummary struct {
	Job    string          `json:"job"`
	Budget string          `json:"budget"`
	Next   Instant         `json:"next"`
	Last   json.RawMessage `json:"last"` // null before the first pass
	jobNow
	Deferred []jobs.DeferredPass `json:"deferred,omitempty"` // passes that go on once their units return; left out if there are none
	Plan     *JobForecast        `json:"plan,omitempty"`     // left out if there is none
}

// NewOverview makes the answer of status at an instant. The caller has redacted store. The
// forecast may be nil.
func NewOverview(at time.Time, store string, budgets []budget.Status, list []Job, daemons []jobs.Daemon, alerts []alert.Health, ahead *Forecast) Overview {
	answer := Overview{At: Instant(at), Store: store, Budgets: []Budget{}, Jobs: []jobSummary{}, Daemons: append([]jobs.Daemon{}, daemons...), Alerts: append([]alert.Health{}, alerts...)}
	for _, b := range budgets {
		one := NewBudget(b)
		one.Plan = ahead.Budget(b.Budget)
		answer.Budgets = append(answer.Budgets, one)
	}
	for _, job := range list {
		answer.Jobs = append(answer.Jobs, jobSummary{job.Name, job.Budget, Instant(job.NextTick), job.Last, newJobNow(job), job.Deferred, ahead.Job(job.Name)})
	}
	return answer
}
