package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// refusing is an upstream that answers one request, and then says no to all.
type refusing struct {
	*httptest.Server
	asked atomic.Int64
}

func newRefusing(t *testing.T, status int, header, body string) *refusing {
	t.Helper()
	u := &refusing{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if u.asked.Add(1) == 1 {
			_, _ = fmt.Fprint(w, `{"nextPageToken": "2", "pageInfo": {"totalResults": 200}}`)
			return
		}
		if name, value, ok := strings.Cut(header, ": "); ok {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}))
	t.Cleanup(u.Close)
	return u
}

// refusals are what an upstream says of its own, and what is locked by that: a limit, or
// the budget where it names none.
var refusals = map[string]struct {
	status             int
	header, body, lock string
}{
	"403": {http.StatusForbidden, "", `{"error": {"errors": [{"reason": "quotaExceeded"}]}}`, "pacific-day"},
	"429": {http.StatusTooManyRequests, "Retry-After: 3600", `{"error": {"errors": [{"reason": "rateLimitExceeded"}]}}`, ""},
}

// isLocked holds the ledger to one lock, of a limit or of the budget, and to the units.
func (j *docJob) isLocked(limit string, units int64) {
	j.t.Helper()
	var status struct {
		Budgets []struct {
			LockedUntil *string `json:"locked_until"`
			Limits      []struct {
				Name        string
				LockedUntil *string `json:"locked_until"`
			}
		}
	}
	must.Do(j.t, json.Unmarshal(j.run(0, "quotactl", "status", "youtube/key1", "--json"), &status))
	for _, b := range status.Budgets {
		check.Equal(j.t, b.LockedUntil != nil, limit == "", "the budget is locked")
		for _, l := range b.Limits {
			if l.Name == limit && l.LockedUntil == nil {
				j.t.Errorf("limit %s is not locked", l.Name)
			}
		}
	}
	var ledger struct{ Total struct{ Units int64 } }
	must.Do(j.t, json.Unmarshal(j.run(0, "quotactl", "ledger", "youtube/key1", "--json"), &ledger))
	check.Equal(j.t, ledger.Total.Units, units, "units in the ledger")
}

// Told by the upstream that the quota is spent, or that it is too much at once, each
// program of docs/jobs.md stops as exhausted, keeps what it has, and has the budget locked
// for all; started again, it asks for nothing.
func TestDocumentedJobsRefused(t *testing.T) {
	t.Parallel()
	for said, refusal := range refusals {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			forDocs(t, func(t *testing.T, name, built string) {
				j := newDocJob(t, name, built)
				upstream := newRefusing(t, refusal.status, refusal.header, refusal.body)
				j.env = append(j.env, "YOUTUBE_API="+upstream.URL)
				j.fetch(exitExhausted, "US")
				j.isLocked(refusal.lock, 2)
				j.hasNo("US.ndjson")
				part := must.Get(os.ReadFile(filepath.Join(j.dir, "data", "US.part")))(t)
				check.Equal(t, strings.Count(string(part), "\n"), 1, "it kept")
				j.fetch(exitExhausted, "US")
				check.Equal(t, upstream.asked.Load(), 2, "the upstream was asked … times")
			})
		})
	}
}

// So do the programs of docs/shell.md and docs/go.md.
func TestDocumentedWaysRefused(t *testing.T) {
	t.Parallel()
	for said, refusal := range refusals {
		t.Run("shell "+said, func(t *testing.T) {
			t.Parallel()
			w := newDocWay(t, "docs/shell.md", 150)
			upstream := newRefusing(t, refusal.status, refusal.header, refusal.body)
			w.env = append(w.env, "YOUTUBE_API="+upstream.URL)
			w.write("search.sh", w.block("sh", "search.sh"))
			w.run(0, "./search.sh", "cats")
			w.run(exitExhausted, "./search.sh", "dogs")
			w.isLocked(refusal.lock, 200)
			w.run(exitExhausted, "./search.sh", "birds")
			check.Equal(t, upstream.asked.Load(), 2, "the upstream was asked … times")
		})
		t.Run("go "+said, func(t *testing.T) {
			t.Parallel()
			w := newDocWay(t, "docs/go.md", 10_000)
			upstream := newRefusing(t, refusal.status, refusal.header, refusal.body)
			w.env = append(w.env, "YOUTUBE_API="+upstream.URL)
			built := buildGo(t, w.block("go", "main.go"))
			check.Equal(t, string(w.run(exitExhausted, built)), "US 200\n", "it said")
			w.isLocked(refusal.lock, 2)
			w.run(exitExhausted, built)
			check.Equal(t, upstream.asked.Load(), 2, "the upstream was asked … times")
		})
	}
}
