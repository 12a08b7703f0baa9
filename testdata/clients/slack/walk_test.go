package slack_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/slack-go/slack"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

// Random calls of goroutines are charged as the server counts them, to the unit,
// with refusals, 503s and lost connections thrown in.
func TestChargesAreWhatTheServerCounts(t *testing.T) {
	for _, network := range []upstream.Network{upstream.HTTP1, upstream.HTTP2} {
		for name, refused := range map[string]budgethttp.Refused{"fail": budgethttp.Fail, "answer 429": budgethttp.Answer429} {
			t.Run(string(network)+", "+name, func(t *testing.T) {
				m := newMetered(t, network, budgethttp.Options{Refused: refused}, menu{limited: 10, unavailable: 8, drop: 8}, upstream.NewFaults(effort.Seed(t)))
				m.walk(t, 25)
				upstream.SameAs(t, m.budget, &m.server.Tally)
				m.seen.Finished(t)
			})
		}
	}
}

// In fake time the walk goes past what a minute has, and whether the client's 429s
// or the transport waits, no method is called more often than its tier allows.
func TestTheTiersAreNeverPassed(t *testing.T) {
	for name, refused := range map[string]budgethttp.Refused{"answer 429": budgethttp.Answer429, "wait": budgethttp.Wait} {
		t.Run(name, func(t *testing.T) {
			seed := effort.Seed(t)
			synctest.Test(t, func(t *testing.T) {
				m := newMetered(t, upstream.Memory, budgethttp.Options{Refused: refused}, menu{limited: 40, unavailable: 8, drop: 8}, upstream.NewFaults(seed))
				m.Client = slack.New(token, slack.OptionHTTPClient(m.http), slack.OptionRetry(3))
				if refusals := m.walk(t, 80); refusals != 0 && refused == budgethttp.Wait {
					t.Errorf("%d refusals of those who wait", refusals)
				}
				m.seen.Finished(t)
				for operation, row := range m.server.Rows() {
					if got := m.seen.Settles.Of(operation).Units; got != row.Units {
						t.Errorf("%s: settled %d, and the server counted %d", operation, got, row.Units)
					}
				}
				if m.server.over != 0 || m.server.most < 19 {
					t.Errorf("%d requests came above a tier; the most in a minute was %d", m.server.over, m.server.most)
				}
			})
		})
	}
}

// walk has goroutines do so many things each at random, and is how often the
// budget refused. It opens locks, as by hand, so that it goes on.
func (m *metered) walk(t *testing.T, steps int) (refusals int) {
	return upstream.Walk(t, m.budget, m.server.faults, steps, isRefusal, func(ctx context.Context, random *rand.Rand, _ int) error {
		return m.step(ctx, random)
	})
}

func (m *metered) step(ctx context.Context, random *rand.Rand) error {
	switch random.IntN(4) {
	case 0:
		_, err := m.list(ctx)
		return err
	case 1:
		return m.user(ctx)
	default:
		return m.post(ctx)
	}
}

// isRefusal reports whether the budget refused with its error. All else is a fault
// of the server's, or a 429, of which this client does not tell whose it is.
func isRefusal(t *testing.T, err error) bool {
	var refused *budget.RefusedError
	var limited *slack.RateLimitedError
	var failed slack.StatusCodeError
	var lost *url.Error
	switch {
	case err == nil:
		return false
	case errors.As(err, &refused), errors.As(err, &limited):
		return true
	case errors.As(err, &failed) && failed.Code == 503, errors.As(err, &lost):
		return false
	}
	t.Errorf("%T %v", err, err)
	return false
}
