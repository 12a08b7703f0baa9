package serve

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/answer"
)

// why serves GET /v1/why.
func (s *Server) why(w http.ResponseWriter, r *http.Request) {
	name, call, err := whyQuery(r)
	if err != nil {
		refuse(w, problem{reason: "invalid", detail: err.Error()})
		return
	}
	patient(w, statusTime)
	ctx, cancel := context.WithTimeout(r.Context(), statusTime)
	defer cancel()
	b, err := s.budgets.take(name)
	if err != nil {
		failed(w, err)
		return
	}
	defer s.budgets.giveBack(b)
	why, err := b.Why(ctx, call)
	if err != nil {
		failed(w, err)
		return
	}
	w.Header()["Cache-Control"] = []string{"no-store"}
	writeJSON(w, answer.NewWhy(why))
}

// whyQuery reads budget, operation and job, each at most once.
func whyQuery(r *http.Request) (name string, call budget.Call, err error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", call, fmt.Errorf("the query: %w", err)
	}
	members := map[string]*string{"budget": &name, "operation": &call.Operation, "job": &call.Labels.Job}
	for member, values := range query {
		into, known := members[member]
		if !known || len(values) != 1 {
			return "", call, fmt.Errorf("the query has %q: it takes budget, operation and job, each once", cut(member, maxShown))
		}
		*into = values[0]
	}
	if name == "" || call.Operation == "" {
		return "", call, fmt.Errorf("the query names no budget or no operation: write ?budget=UPSTREAM/CREDENTIAL&operation=NAME")
	}
	return name, call, nil
}
