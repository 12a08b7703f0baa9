package serve

import (
	"context"
	"fmt"
	"net/http"
)

const pathOverview = "/v1/overview"

// serveOverview serves GET /v1/overview.
func (s *Server) serveOverview(w http.ResponseWriter, r *http.Request) {
	names, err := parseQuery(r)
	if err == nil && len(names) > MaxNamed {
		err = fmt.Errorf("the query names %d budgets: name at most %d", len(names), MaxNamed)
	}
	if err != nil {
		refuse(w, problem{reason: "invalid", detail: err.Error()})
		return
	}
	patient(w, statusTime)
	ctx, cancel := context.WithTimeout(r.Context(), statusTime)
	defer cancel()
	seen, err := s.overview(ctx, names)
	if err != nil {
		failed(w, err)
		return
	}
	w.Header()["Cache-Control"] = []string{"no-store"}
	writeJSON(w, seen)
}
