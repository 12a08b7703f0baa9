package daemon

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/internal/serve"
)

// servers hands requests for decisions to the server of the configuration in force.
// A request under way ends on the one that it began on.
type servers struct {
	now atomic.Pointer[serve.Server]

	mu     sync.Mutex // guards all below
	before []replaced
}

// replaced is a server of an earlier configuration. It gets no new requests.
type replaced struct {
	server *serve.Server
	at     time.Time
}

// swap puts another server in force. Earlier ones are forgotten once no wait on them can
// still be under way.
func (s *servers) swap(next *serve.Server) {
	was := s.now.Swap(next)
	if was != nil {
		was.EndLeases()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = slices.DeleteFunc(s.before, func(r replaced) bool { return time.Since(r.at) > serve.MaxWait })
	if was != nil {
		s.before = append(s.before, replaced{was, time.Now()})
	}
}

// stop ends the waits for units on all servers, and begins to settle their leases.
func (s *servers) stop() {
	s.now.Load().Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.before {
		r.server.Stop()
	}
}

// settled waits, after stop, until the leases of all servers are settled or ctx ends.
func (s *servers) settled(ctx context.Context) {
	s.now.Load().AwaitLeases(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.before {
		r.server.AwaitLeases(ctx)
	}
}

// guard protects another handler as the decisions are; see [serve.Server.Guard].
func (s *servers) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.now.Load().Guard(next).ServeHTTP(w, r)
	})
}

// ServeHTTP implements http.Handler.
func (s *servers) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.now.Load().ServeHTTP(w, r) }
