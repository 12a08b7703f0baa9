package github_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-github/v90/github"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

// Each page costs, and what is created five points; what has not changed is free.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
		if came, err := list(t.Context(), m.Client); err != nil || came != pages {
			t.Fatalf("%d pages, %v", came, err)
		}
		must.Do(t, errors.Join(get(t.Context(), m.Client), search(t.Context(), m.Client), create(t.Context(), m.Client)))
		for range 3 {
			if is, err := changed(t.Context(), m.Client); is || err != nil {
				t.Fatalf("changed: %v, %v", is, err)
			}
		}
		upstream.SameAs(t, m.budget, &m.server.Tally)
		want := map[string]upstream.Row{"rest.read": {Calls: pages + 1, Units: pages + 1}, "search": {Calls: 1, Units: 1}, "rest.create": {Calls: 1, Units: 5}}
		for operation, row := range want {
			if got := m.server.Of(operation); got != row {
				t.Errorf("%s came to %+v, want %+v", operation, got, row)
			}
		}
	})
}

// Nothing remains: that resource is locked until the reset that the response tells,
// for clients that have not heard of it too.
func TestPrimaryLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
		reset := time.Now().Add(17 * time.Minute)
		m.server.scripted <- m.server.spentUp("core", http.StatusForbidden, reset, map[string]any{"message": "API rate limit exceeded for user ID 1."})
		var limited *github.RateLimitError
		if err := get(t.Context(), m.Client); !errors.As(err, &limited) || errors.Is(err, budget.ErrExhausted) {
			t.Fatalf("the upstream's refusal is %v", err)
		}
		told := budgethttp.Verdict{Rule: "core", Means: feedback.Exhausted, Operation: "rest.read", Limit: "core", Until: reset.UTC()}
		if got := m.seen.Verdicts(); len(got) != 1 || got[0] != told {
			t.Errorf("the verdicts are %+v, want %+v", got, told)
		}
		upstream.LockedUntil(t, m.budget, "core", reset)

		before := m.server.Calls()
		if err := get(t.Context(), m.Client); !errors.As(err, &limited) { // which it answers itself
			t.Errorf("the client's own refusal is %v", err)
		}
		another := m.another(t)
		upstream.RefusedHere(t, get(t.Context(), another), "core", reset, "")
		upstream.RefusedHere(t, create(t.Context(), another), "core", reset, "")
		time.Sleep(time.Until(reset) - time.Microsecond)
		upstream.RefusedHere(t, get(t.Context(), another), "core", reset, "")
		if n := m.server.Calls(); n != before {
			t.Errorf("%d requests came while it was locked", n-before)
		}
		if err := errors.Join(search(t.Context(), another), m.query(t.Context(), 1)); err != nil {
			t.Errorf("other resources: %v", err)
		}
		time.Sleep(time.Microsecond)
		check.NoError(t, errors.Join(get(t.Context(), m.Client), get(t.Context(), another)))
		upstream.SameAs(t, m.budget, &m.server.Tally)
	})
}

// A secondary limit locks everything: for as long as the response tells, else for a
// minute.
func TestSecondaryLimit(t *testing.T) {
	for after, wait := range map[string]time.Duration{"90": 90 * time.Second, "": time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
			m.server.scripted <- func(w http.ResponseWriter, r *http.Request) {
				if after != "" {
					w.Header().Set("Retry-After", after)
				}
				limited := m.server.secondary
				limited.Status = http.StatusTooManyRequests
				limited.Answer(w, r)
			}
			until := time.Now().Add(wait)
			var limited *github.AbuseRateLimitError
			if err := create(t.Context(), m.Client); !errors.As(err, &limited) {
				t.Fatalf("the upstream's refusal is %v", err)
			}
			upstream.LockedUntil(t, m.budget, "", until)
			another := m.another(t)
			upstream.RefusedHere(t, get(t.Context(), another), "", until, "")
			upstream.RefusedHere(t, search(t.Context(), another), "", until, "")
			upstream.RefusedHere(t, m.query(t.Context(), 1), "", until, "")
			if n := m.server.Calls(); n != 1 {
				t.Errorf("%d requests came", n)
			}
			time.Sleep(wait)
			check.NoError(t, create(t.Context(), another))
			upstream.SameAs(t, m.budget, &m.server.Tally)
		})
	}
}

// What somebody else spends is drift: once, in that limit alone, until the reset.
func TestDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
		for range 3 {
			must.Do(t, errors.Join(get(t.Context(), m.Client), search(t.Context(), m.Client)))
		}
		if drifts := m.seen.Drifts(); len(drifts) != 0 {
			t.Fatalf("%+v before anybody else came", drifts)
		}
		m.server.spentBySomebodyElse("core", 100)
		reset := m.server.resources["core"].reset
		if is, err := changed(t.Context(), m.Client); is || err != nil { // whose count may be a cache's
			t.Fatalf("changed: %v, %v", is, err)
		}
		for range 3 {
			must.Do(t, errors.Join(get(t.Context(), m.Client), search(t.Context(), m.Client)))
		}
		want := budget.Drift{Limit: "core", Added: 100, Total: 100, Until: reset.UTC()}
		if drifts := m.seen.Drifts(); len(drifts) != 1 || drifts[0] != want {
			t.Errorf("the drift is %+v, want %+v", drifts, want)
		}
		remaining := func() int64 {
			status := must.Get(m.budget.Status(t.Context()))(t)
			for _, l := range status.Limits {
				if l.Name == "core" {
					return l.Remaining
				}
			}
			t.Fatal("no limit core")
			return 0
		}
		if got := remaining(); got != 4750-106 {
			t.Errorf("core has %d left, want %d", got, 4750-106)
		}
		time.Sleep(time.Until(reset))
		if got := remaining(); got < 4750-6 {
			t.Errorf("core has %d left after the reset, want %d or more", got, 4750-6)
		}
	})
}

// A query's cost is known when it has been answered.
func TestGraphQLCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
		for _, points := range []int{1, 7, 2, 40} {
			must.Do(t, m.query(t.Context(), points))
		}
		upstream.SameAs(t, m.budget, &m.server.Tally)
		if drifts := m.seen.Drifts(); len(drifts) != 0 {
			t.Errorf("the drift is %+v", drifts)
		}
	})
}

// GraphQL refuses with status 200.
func TestGraphQLRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
		reset := time.Now().Add(17 * time.Minute)
		m.server.scripted <- m.server.spentUp("graphql", http.StatusOK, reset, map[string]any{
			"errors": []any{map[string]any{"type": "RATE_LIMITED", "message": "API rate limit exceeded for user ID 1."}},
		})
		if err := m.query(t.Context(), 1); !errors.Is(err, errUpstream) {
			t.Fatalf("the upstream's refusal is %v", err)
		}
		upstream.LockedUntil(t, m.budget, "graphql", reset)
		upstream.RefusedHere(t, m.query(t.Context(), 1), "graphql", reset, "")
		check.NoError(t, get(t.Context(), m.Client))
		time.Sleep(time.Until(reset))
		check.NoError(t, m.query(t.Context(), 1))
		if got := m.server.Of("graphql").Calls; got != 2 {
			t.Errorf("%d queries came, want 2", got)
		}
	})
}
