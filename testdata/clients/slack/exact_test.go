package slack_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slack-go/slack"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

// Each page costs, and each message, those that fail too.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
		if came, err := m.list(t.Context()); err != nil || came != pages {
			t.Fatalf("%d pages, %v", came, err)
		}
		m.server.scripted <- unavailable
		var failed slack.StatusCodeError
		if err := m.post(t.Context()); !errors.As(err, &failed) || failed.Code != 503 {
			t.Fatalf("the API's error is %v", err)
		}
		must.Do(t, errors.Join(m.post(t.Context()), m.user(t.Context())))
		upstream.SameAs(t, m.budget, &m.server.Tally)
		if list, post := m.server.Of("conversations.list"), m.server.Of("chat.postMessage"); list.Calls != pages || post.Calls != 2 {
			t.Errorf("%+v and %+v", list, post)
		}
	})
}

// A 429 locks its method, and no other, for as long as it tells.
func TestMethodLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{}, menu{}, nil)
		m.server.scripted <- m.server.limited.Answer
		until := time.Now().Add(30 * time.Second)
		var limited *slack.RateLimitedError
		if _, err := m.list(t.Context()); !errors.As(err, &limited) || limited.RetryAfter != 30*time.Second || errors.Is(err, budget.ErrExhausted) {
			t.Fatalf("the API's refusal is %v", err)
		}
		const method = "tier4:conversations.list"
		told := budgethttp.Verdict{Rule: "method", Means: feedback.Throttled, Operation: "conversations.list", Limit: method, Until: until.UTC()}
		if got := m.seen.Verdicts(); len(got) != 1 || got[0] != told {
			t.Errorf("the verdicts are %+v, want %+v", got, told)
		}
		upstream.LockedUntil(t, m.budget, method, until)
		_, err := m.list(t.Context())
		upstream.RefusedHere(t, err, method, until, token)
		if err := errors.Join(m.post(t.Context()), m.user(t.Context())); err != nil {
			t.Errorf("other methods: %v", err)
		}
		time.Sleep(time.Until(until) - time.Microsecond)
		_, err = m.list(t.Context())
		upstream.RefusedHere(t, err, method, until, token)
		if got := m.server.Of("conversations.list").Calls; got != 1 {
			t.Errorf("%d requests came while it was locked", got-1)
		}
		time.Sleep(time.Microsecond)
		if came, err := m.list(t.Context()); err != nil || came != pages {
			t.Errorf("%d pages, %v", came, err)
		}
		upstream.SameAs(t, m.budget, &m.server.Tally)
	})
}

// The client takes a 429 of the transport's own for the API's; one that tries again
// waits it out, and touches the network once.
func TestAnswer429(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetered(t, upstream.Memory, budgethttp.Options{Refused: budgethttp.Answer429}, menu{}, nil)
		must.Get(m.budget.Lock(t.Context(), budget.LockOrder{Limit: "posting:chat.postMessage", Until: budget.Until{After: 42 * time.Second}, ByHand: true}))(t)
		var limited *slack.RateLimitedError
		if err := m.post(t.Context()); !errors.As(err, &limited) || limited.RetryAfter != 42*time.Second || m.server.Calls() != 0 {
			t.Errorf("%d requests, and the client's error is %v", m.server.Calls(), err)
		}
		again := slack.DefaultRetryConfig()
		again.RetryAfterJitter = 0
		m.Client = slack.New(token, slack.OptionHTTPClient(m.http), slack.OptionRetryConfig(again))
		start := time.Now()
		if err := m.post(t.Context()); err != nil || time.Since(start) != 42*time.Second || m.server.Calls() != 1 {
			t.Errorf("after %s: %d requests, %v", time.Since(start), m.server.Calls(), err)
		}
		upstream.SameAs(t, m.budget, &m.server.Tally)
	})
}
