package main

import (
	"encoding/json"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/serve"
)

// statusAnswer is the JSON answer of status.
type statusAnswer struct {
	At      serve.Instant        `json:"at"`
	Store   string               `json:"store"`
	Budgets []serve.BudgetStatus `json:"budgets"`
	Jobs    []jobJSON            `json:"jobs"`
}

type jobJSON struct {
	Job    string          `json:"job"`
	Budget string          `json:"budget"`
	Next   serve.Instant   `json:"next"`
	Last   json.RawMessage `json:"last"` // null before the first pass
	jobNowJSON
}

// newStatusAnswer makes the answer of what was seen at an instant; store is redacted.
func newStatusAnswer(at time.Time, store string, budgets []budget.Status, jobs []jobView) statusAnswer {
	answer := statusAnswer{At: serve.Instant(at), Store: store, Budgets: []serve.BudgetStatus{}, Jobs: []jobJSON{}}
	for _, b := range budgets {
		answer.Budgets = append(answer.Budgets, serve.NewBudgetStatus(b))
	}
	for _, job := range jobs {
		answer.Jobs = append(answer.Jobs, jobJSON{job.Name, job.Budget, serve.Instant(job.next), job.Last, newJobNowJSON(job)})
	}
	return answer
}
