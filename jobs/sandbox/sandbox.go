// Package sandbox is a local upstream with a true quota. It speaks enough of the YouTube
// Data API v3 for fetch jobs to run against it, counts every request by itself, and
// refuses what does not fit with YouTube's own error bodies.
//
// It serves as evidence: if the sandbox, which knows nothing of budgets, has refused no
// request, the budget has not overspent. That is why the package imports the standard
// library alone.
//
// Use [New] to make a [Server], which is an [http.Handler], and mount it in a test; or
// use [Server.Listen] to serve on an address, and [Server.URL] to learn it.
// [Server.Usage], or GET /_sandbox/usage, returns the counts. [Body] returns the content
// of a page without a server.
//
// The request log, if there is one, has a line of JSON for each API request, in the order
// of decision and written before the answer is sent: at (UTC, µs), method, path, query
// (without the key), units, status (0 when the connection was dropped) and, unless
// answered 200, reason.
//
// # What is counted
//
// Every path except those below /_sandbox/ belongs to the API. Every request to it is
// counted at arrival, before any latency and whatever the answer is. A list costs what
// YouTube's general pool charges (search 100 units, captions 50, all others 1). An
// invalid request (unknown path or method, bad page token, bad maxResults) costs 1 unit.
// A request that fails or is dropped on purpose costs as much as an answered one. A
// request that would exceed the day's quota is rejected and costs nothing; so does one
// without a credential, since there is no project to bill. The day begins at midnight in
// America/Los_Angeles and may have 23 or 25 hours.
package sandbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
	_ "time/tzdata" // the Pacific day must be right on hosts without zone files
)

// Server is the upstream. Make one with [New]; its methods may be called from many goroutines.
type Server struct {
	cfg  Config
	zone *time.Location

	mu     sync.Mutex // guards all below, and with it the order of the request log
	days   map[date]Usage
	draw   *rand.Rand
	log    *requestLog // nil without a log path
	closed bool
	serve  *service // nil before Listen

	hurry    chan struct{} // closed when pending answers must not wait any longer
	shutdown func() error  // stops serving, once
}

// New makes a server. If the configuration names a request log, New reads it, so that the day's counts survive the
// process. It returns an error if a value is out of range; one that wraps [ErrLogInUse] if another sandbox, in
// this process or another, uses the log; or one with the file and line of a damaged line in it. Call [Server.Close] to
// release the log.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	zone, err := time.LoadLocation(zoneName)
	if err != nil {
		return nil, fmt.Errorf("sandbox: loading the zone of the upstream's day: %w", err)
	}
	s := &Server{
		cfg:   cfg,
		zone:  zone,
		days:  map[date]Usage{},
		draw:  rand.New(rand.NewPCG(cfg.Seed, 0)),
		hurry: make(chan struct{}),
	}
	s.shutdown = sync.OnceValue(s.stopServing)
	if cfg.LogPath == "" {
		return s, nil
	}
	s.log, err = openLog(cfg.LogPath, func(e entry) {
		day := dayOf(e.At, zone)
		s.days[day] = s.days[day].plus(e)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Usage returns what was counted in the Pacific day that the clock says it is.
func (s *Server) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.days[dayOf(s.cfg.Now(), s.zone)]
}

// Close stops serving as the end of Listen's context does, then lets go of the request log. API requests that still
// reach the handler are answered 500 and not counted. A second Close does nothing and returns nil.
func (s *Server) Close() error {
	stopped := s.shutdown()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(stopped, s.log.close())
}

var _ http.Handler = (*Server)(nil)
