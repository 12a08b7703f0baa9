package budgethttp_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// uploads is a budget with an upload of 50 units, in a store that may be shared.
func uploads(t *testing.T, store driver.Store, key feedback.Key) *budget.Budget {
	t.Helper()
	b := must.Get(budget.New(store, budget.Spec{
		Name:   "video/key1",
		Limits: []limit.Limit{hourly(1000)},
		Costs: map[string]budget.Cost{
			"upload": {Units: 50, Once: &key, Match: []string{"upstream/upload"}},
			"update": {Units: 30, Once: &key, Match: []string{"PUT upstream/upload"}},
			"read":   {Units: 1, Match: []string{"upstream/"}},
		},
	}))(t)
	return b
}

func inMemory() driver.Store {
	return memstore.New(func() int64 { return time.Now().UnixMicro() })
}

// An upload is charged at its start, and what belongs to it is free, whatever its
// requests look like.
func TestASessionIsChargedAtItsStart(t *testing.T) {
	query, header := feedback.Key{Query: "upload_id"}, feedback.Key{Header: "X-Session"}
	for name, c := range map[string]struct {
		key    feedback.Key
		status int
		tells  map[string]string
		later  string // of its requests
		want   int64
	}{
		"Location":          {query, 200, map[string]string{"Location": "http://upstream/upload?a=1&upload_id=s%20cret"}, "?upload_id=s+cret", 50},
		"relative":          {query, 201, map[string]string{"Location": "/upload?upload_id=secret"}, "?upload_id=secret&b=2", 50},
		"Content-Location":  {query, 200, map[string]string{"Content-Location": "/upload?upload_id=secret"}, "?upload_id=secret", 50},
		"X-Goog-Upload-URL": {query, 200, map[string]string{"X-Goog-Upload-Url": "http://upstream/upload?upload_id=secret"}, "?upload_id=secret", 50},
		"header":            {header, 200, map[string]string{"X-Session": "secret"}, "X-Session", 50},
		"another's":         {query, 200, map[string]string{"Location": "/upload?upload_id=other"}, "?upload_id=secret", 50 + 30},
		"none":              {query, 200, nil, "?upload_id=secret", 50 + 30},
		"a bad request":     {query, 400, map[string]string{"Location": "/upload?upload_id=secret"}, "?upload_id=secret", 50 + 30},
		"failed":            {query, 503, map[string]string{"Location": "/upload?upload_id=secret"}, "?upload_id=secret", 50 + 30},
		"broken":            {query, 200, map[string]string{"Location": "http://[::1/?upload_id=secret"}, "?upload_id=secret", 50 + 30},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost {
						for name, value := range c.tells {
							w.Header().Set(name, value)
						}
						w.WriteHeader(c.status)
					}
				})
				b := uploads(t, inMemory(), c.key)
				o := &observer{}
				client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Observer: o})}
				send := func(method, query string) {
					t.Helper()
					req := must.Get(http.NewRequestWithContext(t.Context(), method, "http://upstream/upload"+strings.TrimPrefix(query, "X-Session"), strings.NewReader("part")))(t)
					if query == "X-Session" {
						req.Header.Set("X-Session", "secret")
					}
					resp := do(t, client, req)
					_ = resp.Body.Close()
				}
				send(http.MethodPost, "")
				want(t, b, 50, 1, 0)
				for range 3 {
					send(http.MethodPut, c.later)
				}
				if l := spent(t, b); l.units != c.want || l.open != 0 {
					t.Errorf("the ledger holds %+v, want %d units", l, c.want)
				}
				send(http.MethodPost, "") // another upload
				check.Equal(t, spent(t, b).units, c.want+50, "the ledger holds … units")
				for _, r := range o.charged {
					if strings.Contains(r.ID, "secret") {
						t.Errorf("the session's value is in the ledger: %s", r.ID)
					}
				}
				o.check(t)
			})
		})
	}
}

// A session whose start nobody saw is charged once for all processes, at the first
// of its requests.
func TestASessionIsChargedOnceByAllProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		var served int
		var mu sync.Mutex
		base := serve(t, func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			served++
		})
		var all sync.WaitGroup
		var b *budget.Budget
		var others []*budget.Budget
		for range 8 { // processes
			b = uploads(t, store, feedback.Key{Query: "upload_id"})
			others = append(others, b)
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base})}
			for range 4 {
				all.Go(func() {
					read(t, client, "http://upstream/upload?upload_id=one")
					read(t, client, "http://upstream/upload?upload_id=two")
				})
			}
		}
		all.Wait()
		for _, other := range others {
			must.Do(t, other.Flush(t.Context()))
		}
		want(t, b, 100, 2, 0)
		// One of another cost has the same session, and is no conflict of the caller's.
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base})}
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPut, "http://upstream/upload?upload_id=one", nil))(t)
		resp := do(t, client, req)
		_ = resp.Body.Close()
		want(t, b, 100, 2, 0)
		check.Equal(t, served, 65, "requests came through")
		read(t, client, "http://upstream/?upload_id=one") // of an operation without sessions
		want(t, b, 101, 3, 0)
	})
}

// A session that was charged and not sent keeps its charge: its next request finds
// it, in any process.
func TestASessionsChargeIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		working := serve(t, func(http.ResponseWriter, *http.Request) {})
		broken := &http.Transport{DialContext: refuse}
		for i, base := range []http.RoundTripper{broken, broken, working, working} {
			b := uploads(t, store, feedback.Key{Query: "upload_id"})
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base})}
			resp, err := client.Get("http://upstream/upload?upload_id=one")
			must.Equal(t, err == nil, base == working, err)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			if l := spent(t, b); l.units != 50 || l.calls != 1 {
				t.Errorf("after %d: %+v", i+1, l)
			}
		}
	})
}

// A refused start is refused, and nothing is remembered of it.
func TestARefusedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := uploads(t, inMemory(), feedback.Key{Query: "upload_id"})
		all := int64(1000)
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "read", Units: &all}))(t)
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: quiet(t)})}
		for range 2 {
			if _, err := client.Get("http://upstream/upload?upload_id=one"); !errors.Is(err, budget.ErrExhausted) { //nolint:bodyclose // there is none
				t.Error(err)
			}
		}
	})
}
