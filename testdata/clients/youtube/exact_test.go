package youtube_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

// midnight is the first reset after the start of fake time, 4 in the afternoon at
// the Pacific.
var midnight = time.Date(2000, 1, 1, 0, 0, 0, 0, pacific)

// Each page costs, and so does a page that fails.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
		if came, err := m.list(t.Context()); err != nil || came != pages {
			t.Fatalf("%d pages, %v", came, err)
		}
		m.server.scripted <- unavailable
		if came, err := m.list(t.Context()); came != 0 || status(err) != http.StatusServiceUnavailable {
			t.Fatalf("%d pages, %v", came, err)
		}
		must.Do(t, m.search(t.Context()))
		must.Do(t, m.insert(t.Context()))
		upstream.SameAs(t, m.budget, &m.server.Tally)
		if got, want := m.server.Of("playlistItems.list"), (upstream.Row{Calls: pages + 1, Units: pages + 1}); got != want {
			t.Errorf("the lists came to %+v, want %+v", got, want)
		}
	})
}

// An upload is charged once, for its start: whatever parts it is sent in, and
// however often they are sent again.
func TestUpload(t *testing.T) {
	for _, network := range []upstream.Network{upstream.HTTP1, upstream.HTTP2} {
		m := newMetered(t, network, budgethttp.Options{}, menu{}, nil)
		m.server.failParts = 3
		must.Do(t, m.upload(t.Context()))
		m.server.mu.Lock()
		if len(m.server.uploads) != 1 || m.server.parts < 6+3 || m.server.failParts != 0 {
			t.Errorf("%s: %d uploads in %d parts", network, len(m.server.uploads), m.server.parts)
		}
		for id, whole := range m.server.uploads {
			if !bytes.Equal(whole.Bytes(), film) {
				t.Errorf("%s: %s came as %d bytes", network, id, whole.Len())
			}
		}
		m.server.mu.Unlock()
		upstream.SameAs(t, m.budget, &m.server.Tally)
		if got := m.server.Of("videos.insert"); got != (upstream.Row{Calls: 1, Units: 1}) {
			t.Errorf("%s: %+v", network, got)
		}
	}
}

// When the upstream says that the day is spent, the next calls of that bucket touch
// no network until midnight at the Pacific; those of others go on.
func TestSpentDay(t *testing.T) {
	for name, c := range map[string]struct {
		said  func(*server) upstream.Fixture
		code  int
		call  func(*metered, context.Context) error
		other func(*metered, context.Context) error
		want  budgethttp.Verdict
	}{
		"pool": {
			func(s *server) upstream.Fixture { return s.pool }, http.StatusForbidden, (*metered).insert, (*metered).search,
			budgethttp.Verdict{Rule: "pool-quota", Operation: "playlistItems.insert", Limit: "pool"},
		},
		"search": {
			func(s *server) upstream.Fixture { return s.search }, http.StatusTooManyRequests, (*metered).search, (*metered).insert,
			budgethttp.Verdict{Rule: "search-per-day", Operation: "search.list", Limit: "search"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
				m.server.scripted <- c.said(m.server).Answer
				if err := c.call(m, t.Context()); status(err) != c.code || errors.Is(err, budget.ErrExhausted) {
					t.Fatalf("the upstream's refusal is %v", err)
				}
				c.want.Means, c.want.Until = feedback.Exhausted, midnight.UTC()
				if told := m.seen.Verdicts(); len(told) != 1 || told[0] != c.want {
					t.Errorf("the verdicts are %+v, want %+v", told, c.want)
				}
				upstream.LockedUntil(t, m.budget, c.want.Limit, midnight)
				before := m.server.Calls()
				upstream.RefusedHere(t, c.call(m, t.Context()), c.want.Limit, midnight, key)
				time.Sleep(time.Until(midnight) - time.Microsecond)
				upstream.RefusedHere(t, c.call(m, t.Context()), c.want.Limit, midnight, key)
				if n := m.server.Calls(); n != before {
					t.Errorf("%d requests came while it was locked", n-before)
				}
				check.NoError(t, c.other(m, t.Context()))
				time.Sleep(time.Microsecond)
				check.NoError(t, c.call(m, t.Context()))
				upstream.SameAs(t, m.budget, &m.server.Tally)
			})
		})
	}
}

// With Answer429 the client takes the budget's answer for the API's; the parts of
// an upload under way are not held up.
func TestAnswer429(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{Refused: budgethttp.Answer429}, menu{}, nil)
		must.Get(m.budget.Lock(t.Context(), budget.LockOrder{Limit: "pool", Until: budget.Until{After: 90 * time.Second}, ByHand: true}))(t)
		err := m.insert(t.Context())
		said := apiError(err)
		if said == nil || said.Code != http.StatusTooManyRequests || said.Header.Get("Retry-After") != "90" || said.Header.Get(budgethttp.RefusedHeader) != "pool" {
			t.Errorf("the answer is %+v, %v", said, err)
		}
		if n := m.server.Calls(); n != 0 {
			t.Errorf("%d requests came", n)
		}
		check.NoError(t, m.upload(t.Context()))
	})
}
