package serve

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
)

// MaxNamed is how many budgets a status request may name.
const MaxNamed = 100

// statusTime bounds the time to read all budgets of one request.
const statusTime = 20 * time.Second

// status serves GET /v1/status.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	names, wrong := s.named(r)
	if wrong != "" {
		refuse(w, problem{reason: "invalid", detail: wrong})
		return
	}
	patient(w, statusTime)
	ctx, cancel := context.WithTimeout(r.Context(), statusTime)
	defer cancel()
	answer := answer.Status{Budgets: []answer.Budget{}}
	for _, name := range names {
		one, at, err := s.look(ctx, name)
		if err != nil {
			failed(w, err)
			return
		}
		answer.At, answer.Budgets = at, append(answer.Budgets, one)
	}
	w.Header()["Cache-Control"] = []string{"no-store"}
	writeJSON(w, answer)
}

// named lists the budgets that a request names, or else all of the configuration; or it
// says what is wrong with the query.
func (s *Server) named(r *http.Request) (names []string, wrong string) {
	query, err := parseQuery(r)
	if err != nil {
		return nil, err.Error()
	}
	if names = query; len(names) > MaxNamed {
		return nil, fmt.Sprintf("the query names %d budgets: name at most %d", len(names), MaxNamed)
	}
	if len(names) == 0 {
		for name := range s.budgets.kept {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	return names, ""
}

// parseQuery lists the budgets of the query without duplicates.
func parseQuery(r *http.Request) ([]string, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the query: %w", err)
	}
	for name := range query {
		if name != "budget" {
			return nil, fmt.Errorf("the query has %q: it takes only budget, which may be repeated", cut(name, maxShown))
		}
	}
	var names []string
	for _, name := range query["budget"] {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// look reads the status of one budget.
func (s *Server) look(ctx context.Context, name string) (answer.Budget, answer.Instant, error) {
	b, err := s.budgets.take(name)
	if err != nil {
		return answer.Budget{}, answer.Instant{}, err
	}
	defer s.budgets.giveBack(b)
	status, err := b.Rated(ctx)
	if err != nil {
		return answer.Budget{}, answer.Instant{}, err
	}
	return answer.NewBudget(status), answer.Instant(status.At), nil
}
