package sandbox

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

const (
	controlPrefix = "/_sandbox/"
	usagePath     = controlPrefix + "usage"
)

// ServeHTTP answers API requests, and GET /_sandbox/usage, which is free and not counted. When a request is dropped, or
// its context ends while it waits, the connection is closed without an answer; over a ResponseWriter that has no
// connection to close, ServeHTTP panics with [http.ErrAbortHandler], as handlers do.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, controlPrefix) {
		s.serveControl(w, r)
		return
	}
	v := s.decide(r)
	if !s.wait(r.Context(), v.delay) || v.drop {
		hangUp(w)
		return
	}
	if s.cfg.ReportUsage && !v.report.reset.IsZero() {
		v.report.to(w.Header(), s.cfg.Quota)
	}
	write(w, v.answer.status, v.answer.body())
}

// serveControl answers requests for the sandbox itself, not for the upstream that it plays.
func (s *Server) serveControl(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != usagePath || r.Method != http.MethodGet {
		write(w, http.StatusNotFound, methodNotFound.body())
		return
	}
	body, err := json.Marshal(s.Usage())
	if err != nil {
		panic(err) // integers alone
	}
	write(w, http.StatusOK, body)
}

// wait waits for d and reports whether the client is still there. A server that shuts down answers early rather
// than not at all.
func (s *Server) wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.hurry:
		return true
	case <-ctx.Done():
		return false
	}
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // not an HTTP/1 connection; net/http has its own way to cut those
	}
	_ = conn.Close() // nobody is left to report an error to
}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Cache-Control", "private")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the request was counted; a client that has left needs nothing more
}
