package budgethttp_test

import (
	"errors"
	"maps"
	"net/http"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Once a pass is declared dead, none of its requests is sent, whatever a caller
// wants of refusals: each carries its number. Those of other passes are.
func TestFencedRequestsAreNotSent(t *testing.T) {
	b := open(t, budget.Spec{Unknown: budget.Unknown{Allowed: true, Units: 1}})
	must.Do(t, b.Fence(t.Context(), "pull", 7))
	server := newCounting(t)
	for _, refused := range []budgethttp.Refused{budgethttp.Fail, budgethttp.Answer429, budgethttp.Wait} {
		client := func(fence int64) *http.Client {
			return &http.Client{Transport: meter(t, b, budgethttp.Options{Labels: budget.Labels{Job: "pull"}, Fence: fence, Refused: refused})}
		}
		before := server.count.Load()
		_, err := client(7).Get(server.URL) //nolint:bodyclose // there is none
		if !errors.Is(err, budget.ErrFenced) || server.count.Load() != before {
			t.Errorf("%d: %v, %d requests; want it fenced off", refused, err, server.count.Load()-before)
		}
		read(t, client(8), server.URL)
		read(t, client(0), server.URL)
	}
	want(t, b, 6, 6, 0)
	check.Is(t, check.Err(budgethttp.New(b, budgethttp.Options{Fence: 7})), budget.ErrInvalid, "without a job")
}

// In a run of the daemon, requests carry its labels and its number; what the options say
// comes first.
func TestRequestsCarryTheRunOfTheEnvironment(t *testing.T) {
	for name, value := range map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_REGION": "US", "QUOTACTL_RUN": "pull/1/US", "QUOTACTL_FENCE": "7"} {
		t.Setenv(name, value)
	}
	b := open(t, budget.Spec{Unknown: budget.Unknown{Allowed: true, Units: 1}})
	server := newCounting(t)
	for _, labels := range []budget.Labels{{}, {Job: "pull"}, {Region: "GB"}, {Job: "push"}} {
		read(t, &http.Client{Transport: meter(t, b, budgethttp.Options{Labels: labels})}, server.URL)
	}
	read(t, &http.Client{Transport: meter(t, b.InRun(budget.Run{}), budgethttp.Options{})}, server.URL)
	read(t, &http.Client{Transport: meter(t, b, budgethttp.Options{Labels: budget.Labels{Job: "pull", Run: "own"}, Fence: 8})}, server.URL)
	for by, want := range map[budget.GroupBy]map[string]int64{
		budget.ByRun:    {"pull/1/US": 4, "": 1, "own": 1},
		budget.ByJob:    {"pull": 4, "push": 1, "": 1},
		budget.ByRegion: {"US": 3, "GB": 1, "": 2},
	} {
		got := map[string]int64{}
		for _, row := range must.Get(b.Spent(t.Context(), by, 0))(t).Rows {
			got[row.Name] = row.Units
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", by, got, want)
		}
	}
	must.Do(t, b.Fence(t.Context(), "pull", 7))
	_, err := (&http.Client{Transport: meter(t, b, budgethttp.Options{})}).Get(server.URL) //nolint:bodyclose // there is none
	check.Is(t, err, budget.ErrFenced, "declared dead")
	t.Setenv("QUOTACTL_FENCE", "x")
	check.Is(t, check.Err(budgethttp.New(b, budgethttp.Options{})), budget.ErrInvalid, "no number")
}
