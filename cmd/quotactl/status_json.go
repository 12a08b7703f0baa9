package main

import (
	"encoding/json"

	"github.com/quotactl/quotactl/internal/serve"
)

// statusAnswer is the JSON answer of status.
type statusAnswer struct {
	At      instant              `json:"at"`
	Store   string               `json:"store"`
	Budgets []serve.BudgetStatus `json:"budgets"`
	Jobs    []jobJSON            `json:"jobs"`
}

type jobJSON struct {
	Job    string          `json:"job"`
	Budget string          `json:"budget"`
	Next   instant         `json:"next"`
	Last   json.RawMessage `json:"last"` // null before the first pass
	jobNowJSON
}

func newStatusAnswer(seen overview) statusAnswer {
	answer := statusAnswer{At: instant(seen.at), Store: seen.store, Budgets: []serve.BudgetStatus{}, Jobs: []jobJSON{}}
	for _, b := range seen.budgets {
		answer.Budgets = append(answer.Budgets, serve.NewBudgetStatus(b))
	}
	for _, job := range seen.jobs {
		answer.Jobs = append(answer.Jobs, jobJSON{job.Name, job.Budget, instant(job.next), job.Last, newJobNowJSON(job)})
	}
	return answer
}
