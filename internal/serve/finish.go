package serve

import (
	"encoding/json"
	"net/http"

	"github.com/quotactl/quotactl/internal/answer"
)

// settle serves POST /v1/settle.
func (s *Server) settle(w http.ResponseWriter, r *http.Request) {
	s.finish(w, r, settleMembers, func(b *opened, q *request) (answer.Finish, error) {
		return answer.Finish{Budget: q.budget, ID: q.asked.Call.ID, Units: &q.units, Settled: true},
			b.Settle(r.Context(), q.asked.Call.ID, q.units)
	})
}

// release serves POST /v1/release.
func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	s.finish(w, r, releaseMembers, func(b *opened, q *request) (answer.Finish, error) {
		return answer.Finish{Budget: q.budget, ID: q.asked.Call.ID, Released: true},
			b.Release(r.Context(), q.asked.Call.ID)
	})
}

// finish reads a body, and settles or releases.
func (s *Server) finish(w http.ResponseWriter, r *http.Request, takes members, do func(*opened, *request) (answer.Finish, error)) {
	buffer := takeBuffer()
	defer buffer.giveBack()
	var q request
	if !buffer.readBody(w, r, takes, &q) {
		return
	}
	if q.judge(); len(q.faults) > 0 {
		refuse(w, problem{reason: "invalid", detail: q.detail(), faults: q.faults})
		return
	}
	b, err := s.budgets.take(q.budget)
	if err != nil {
		failed(w, err)
		return
	}
	defer s.budgets.giveBack(b)
	patient(w, b.spec.Timeout)
	answer, err := do(b, &q)
	if err != nil {
		failed(w, err)
		return
	}
	writeJSON(w, answer)
}

// writeJSON answers with a value as JSON.
func writeJSON(w http.ResponseWriter, value any) {
	w.Header()["Content-Type"] = jsonMedia
	_ = json.NewEncoder(w).Encode(value) // an error means that the client has left
}
