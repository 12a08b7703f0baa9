package openai_test

import (
	"context"
	"maps"
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

// Each call costs what its answer tells, streams too.
func TestTokensAreSettled(t *testing.T) {
	for _, c := range []struct {
		operation string
		call      func(*metered, context.Context) error
	}{
		{"chat.completions", (*metered).chat},
		{"chat.completions", (*metered).streamChat},
		{"responses", (*metered).respond},
		{"responses", (*metered).streamResponse},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
			must.Do(t, c.call(m, t.Context()))
			upstream.SameAs(t, m.budget, &m.server.Tally)
			if got, want := m.server.Of(c.operation), (upstream.Row{Calls: 1, Units: took(most)}); got != want {
				t.Errorf("%s came to %+v, want %+v", c.operation, got, want)
			}
			if drifts := m.seen.Drifts(); len(drifts) != 0 {
				t.Errorf("the drift is %+v", drifts)
			}
		})
	}
}

// The client tries three times: each is charged, one that succeeds at what it took.
func TestRetriesAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
		m.server.scripted <- unavailable
		m.server.scripted <- dropped
		must.Do(t, m.chat(t.Context()))
		upstream.SameAs(t, m.budget, &m.server.Tally)
		if got, want := m.server.Of("chat.completions"), (upstream.Row{Calls: 3, Units: 2*most + took(most)}); got != want {
			t.Errorf("it came to %+v, want %+v", got, want)
		}
		for range 3 {
			m.server.scripted <- unavailable
		}
		if said := apiError(m.chat(t.Context())); said == nil || said.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("the API said %+v", said)
		}
		upstream.SameAs(t, m.budget, &m.server.Tally)
		if got := m.server.Of("chat.completions").Calls; got != 6 {
			t.Errorf("%d requests came, want 6", got)
		}
	})
}

// A rate limit locks the limit that it names for as long as it tells. The client
// waits as long by itself, and its next try passes.
func TestRateLimit(t *testing.T) {
	for by, limit := range map[string]string{"requests per min (RPM)": "requests", "tokens per min (TPM)": "tokens"} {
		synctest.Test(t, func(t *testing.T) {
			m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
			m.server.scripted <- limited(by, "20")
			start := time.Now()
			if err := m.chat(t.Context()); err != nil || time.Since(start) != 20*time.Second {
				t.Fatalf("after %s: %v", time.Since(start), err)
			}
			told := budgethttp.Verdict{Rule: limit, Means: feedback.Throttled, Operation: "chat.completions", Limit: limit, Until: start.Add(20 * time.Second).UTC()}
			if got := m.seen.Verdicts(); len(got) != 1 || got[0] != told {
				t.Errorf("the verdicts are %+v, want %+v", got, told)
			}
			if got := m.server.Calls(); got != 2 {
				t.Errorf("%d requests came, want 2", got)
			}
			upstream.SameAs(t, m.budget, &m.server.Tally)
		})
	}
}

// Money that is spent locks everything, and the client's further tries touch no
// network.
func TestSpentMoney(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
		m.server.scripted <- m.server.spent.Answer
		until := time.Now().Add(15 * time.Minute)
		upstream.RefusedHere(t, m.chat(t.Context()), "", until, key)
		upstream.LockedUntil(t, m.budget, "", until)
		upstream.RefusedHere(t, m.streamChat(t.Context()), "", until, key)
		upstream.RefusedHere(t, m.respond(t.Context()), "", until, key)
		upstream.RefusedHere(t, m.streamResponse(t.Context()), "", until, key)
		if got := m.server.Calls(); got != 1 {
			t.Errorf("%d requests came, want 1", got)
		}
		time.Sleep(time.Until(until))
		check.NoError(t, m.chat(t.Context()))
		upstream.SameAs(t, m.budget, &m.server.Tally)
	})
}

// The client waits out a 429 of the transport's own as it does the API's, and its
// next try passes. What would be too long for it, it gives back at once.
func TestAnswer429(t *testing.T) {
	for _, c := range []struct {
		locked, waited time.Duration
		passes         bool
	}{{30 * time.Second, 30 * time.Second, true}, {29500 * time.Millisecond, 30 * time.Second, true}, {10 * time.Minute, 0, false}} {
		synctest.Test(t, func(t *testing.T) {
			m := newMetered(t, upstream.Memory, budgethttp.Options{Refused: budgethttp.Answer429}, menu{}, nil)
			lock(t, m, c.locked)
			start := time.Now()
			err := m.chat(t.Context())
			if time.Since(start) != c.waited {
				t.Errorf("locked for %s it waited %s, want %s", c.locked, time.Since(start), c.waited)
			}
			if !c.passes {
				said := apiError(err)
				if said == nil || said.StatusCode != http.StatusTooManyRequests || said.Response.Header.Get(budgethttp.RefusedHeader) != "requests" || m.server.Calls() != 0 {
					t.Errorf("%d requests, and the client's error is %v (%+v)", m.server.Calls(), err, said)
				}
				return
			}
			if err != nil || m.server.Calls() != 1 {
				t.Errorf("%d requests came, %v", m.server.Calls(), err)
			}
			upstream.SameAs(t, m.budget, &m.server.Tally)
		})
	}
}

// A caller that gets an error for a refusal is refused three times, since the client takes it
// for a lost connection; one that waits passes the first time.
func TestFailAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
		until := lock(t, m, 30*time.Second)
		start := time.Now()
		upstream.RefusedHere(t, m.chat(t.Context()), "requests", until, key)
		if waited := time.Since(start); waited < time.Second || waited > 2*time.Second || m.server.Calls() != 0 {
			t.Errorf("it gave up after %s and %d requests", waited, m.server.Calls())
		}
		waits := newMetered(t, upstream.Memory, budgethttp.Options{Refused: budgethttp.Wait}, menu{}, nil)
		lock(t, waits, 30*time.Second)
		start = time.Now()
		if err := waits.chat(t.Context()); err != nil || time.Since(start) != 30*time.Second || waits.server.Calls() != 1 {
			t.Errorf("after %s: %d requests, %v", time.Since(start), waits.server.Calls(), err)
		}
	})
}

// What somebody else spends is drift, in each limit what its headers tell.
func TestDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
		must.Do(t, m.chat(t.Context()))
		m.server.mu.Lock()
		m.server.requests.add(10)
		m.server.tokens.add(30_000)
		m.server.mu.Unlock()
		must.Do(t, m.streamChat(t.Context()))
		got := map[string]int64{}
		for _, drift := range m.seen.Drifts() {
			got[drift.Limit] += drift.Added
		}
		// Of the tokens our count has as many as the request asked for.
		if want := map[string]int64{"requests": 10, "tokens": 30_000 - (most - took(most))}; !maps.Equal(got, want) {
			t.Errorf("the drift is %v, want %v", got, want)
		}
	})
}

// lock closes the requests, as by hand.
func lock(t *testing.T, m *metered, span time.Duration) (until time.Time) {
	t.Helper()
	lock := must.Get(m.budget.Lock(t.Context(), budget.LockOrder{Limit: "requests", Until: budget.Until{After: span}, ByHand: true}))(t)
	return lock.Until
}
