// Package github_test meters github.com/google/go-github.
package github_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

const host = "api.github.com"

// etag is that of what has not changed.
const etag = `"644b5b0155e6404a9cc4bd9d8b1ae730"`

// menu is how often a request meets a fault: one in so many, 0 for never.
type menu struct {
	secondary   int // limit
	unavailable int
	drop        int // a POST's connection is lost after the request has come
}

// server answers as GitHub's API does. It counts each request as it arrives, those
// that it answers with a fault too, but none that it answers with 304.
type server struct {
	upstream.Tally
	faults *upstream.Faults // also of dials
	menu   menu
	// scripted are the answers to the next requests that count, in place of any
	// other; nil: none.
	scripted chan func(http.ResponseWriter, *http.Request)

	secondary upstream.Fixture

	mu        sync.Mutex // guards all below
	resources map[string]*resource
}

// resource is a primary limit: its period begins with a request.
type resource struct {
	name   string
	limit  int64
	period time.Duration

	used  int64
	most  int64 // of any period
	reset time.Time
}

func newServer(t testing.TB, menu menu, faults *upstream.Faults) *server {
	return &server{
		faults: faults, menu: menu, scripted: make(chan func(http.ResponseWriter, *http.Request), 10),
		secondary: upstream.NewFixture(t, "github-secondary.http"),
		resources: map[string]*resource{
			"core":    {name: "core", limit: 5000, period: time.Hour},
			"search":  {name: "search", limit: 30, period: time.Minute},
			"graphql": {name: "graphql", limit: 5000, period: time.Hour},
		},
	}
}

// known are the requests it answers: of each the operation, its points, and the
// resource it is taken from.
var known = map[string]struct {
	operation string
	points    int64
	resource  string
	answer    func(w http.ResponseWriter, r *http.Request, points int64)
}{
	"GET /orgs/octo/repos":          {"rest.read", 1, "core", page},
	"GET /repos/octo/hello":         {"rest.read", 1, "core", repository},
	"POST /repos/octo/hello/issues": {"rest.create", 5, "core", created},
	"GET /search/repositories":      {"search", 1, "search", found},
	"POST /graphql":                 {"graphql", 0, "graphql", queried},
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one, ok := known[r.Method+" "+r.URL.Path]
	if !ok || r.Host != host {
		http.Error(w, "not of this API: "+r.Method+" "+r.Host+r.URL.Path, http.StatusBadRequest)
		return
	}
	if r.Header.Get("If-None-Match") == etag {
		s.spend(w, one.resource, 0)
		w.Header().Set("Etag", etag)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	fault := s.fault(r)
	points, calls := one.points, int64(1)
	if one.operation == "graphql" { // it is the points that count there, and a query that fails has one
		points = 1
		if fault == nil {
			points = cost(r)
		}
		calls = points
	}
	s.Add(one.operation, 1, points)
	s.spend(w, one.resource, calls)
	if fault != nil {
		fault(w, r)
		return
	}
	one.answer(w, r, points)
}

// fault is what is answered in place of what was asked for; nil: nothing.
func (s *server) fault(r *http.Request) func(http.ResponseWriter, *http.Request) {
	select {
	case answer := <-s.scripted:
		return answer
	default:
	}
	switch {
	case s.faults.OneIn(s.menu.secondary):
		limited := s.secondary
		limited.Header = limited.Header.Clone()
		if s.faults.OneIn(2) {
			limited.Header.Set("Retry-After", "90")
			limited.Status = http.StatusTooManyRequests
		}
		return limited.Answer
	case s.faults.OneIn(s.menu.unavailable):
		return func(w http.ResponseWriter, r *http.Request) {
			upstream.JSON(w, r, http.StatusServiceUnavailable, map[string]any{"message": "We are having a problem."})
		}
	case r.Method == http.MethodPost && s.faults.OneIn(s.menu.drop):
		return func(http.ResponseWriter, *http.Request) { upstream.Drop() }
	}
	return nil
}

// spend counts towards a resource, and tells what remains of it.
func (s *server) spend(w http.ResponseWriter, name string, calls int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.resources[name]
	if now := time.Now(); !now.Before(x.reset) {
		x.used, x.reset = 0, now.Truncate(time.Second).Add(x.period)
	}
	x.used += calls
	x.most = max(x.most, x.used)
	x.tell(w.Header(), max(0, x.limit-x.used), x.reset)
}

// tell sets the headers of a resource.
func (x *resource) tell(h http.Header, remaining int64, reset time.Time) {
	h.Set("X-Ratelimit-Limit", strconv.FormatInt(x.limit, 10))
	h.Set("X-Ratelimit-Remaining", strconv.FormatInt(remaining, 10))
	h.Set("X-Ratelimit-Used", strconv.FormatInt(x.limit-remaining, 10))
	h.Set("X-Ratelimit-Reset", strconv.FormatInt(reset.Unix(), 10))
	h.Set("X-Ratelimit-Resource", x.name)
}

// spentBySomebodyElse takes from a resource what no request of ours does.
func (s *server) spentBySomebodyElse(name string, calls int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources[name].used += calls
}

// spentUp is the answer when nothing remains of a resource until a reset.
func (s *server) spentUp(name string, status int, reset time.Time, body any) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		s.resources[name].tell(w.Header(), 0, reset)
		upstream.JSON(w, r, status, body)
	}
}

// pages is how many a list has.
const pages = 3

// page is a page of a list.
func page(w http.ResponseWriter, r *http.Request, _ int64) {
	n := max(1, atoi(r.URL.Query().Get("page")))
	if n < pages {
		w.Header().Set("Link", fmt.Sprintf(`<https://%s/orgs/octo/repos?page=%d>; rel="next", <https://%s/orgs/octo/repos?page=%d>; rel="last"`, host, n+1, host, pages))
	}
	upstream.JSON(w, r, http.StatusOK, []any{map[string]any{"id": n}})
}

func repository(w http.ResponseWriter, r *http.Request, _ int64) {
	w.Header().Set("Etag", etag)
	upstream.JSON(w, r, http.StatusOK, map[string]any{"id": 1})
}

func created(w http.ResponseWriter, r *http.Request, _ int64) {
	_, _ = io.Copy(io.Discard, r.Body)
	upstream.JSON(w, r, http.StatusCreated, map[string]any{"number": 1})
}

func found(w http.ResponseWriter, r *http.Request, _ int64) {
	upstream.JSON(w, r, http.StatusOK, map[string]any{"total_count": 1, "items": []any{map[string]any{"id": 1}}})
}

// cost is what a query costs: as many points as the test's queries ask nodes.
func cost(r *http.Request) int64 {
	var query struct{ Variables struct{ Points int64 } }
	if err := json.NewDecoder(r.Body).Decode(&query); err != nil {
		return 0
	}
	return query.Variables.Points
}

func queried(w http.ResponseWriter, r *http.Request, points int64) {
	upstream.JSON(w, r, http.StatusOK, map[string]any{"data": map[string]any{"rateLimit": map[string]any{"cost": points}}})
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
