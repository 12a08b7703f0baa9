package openai_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

// Random calls of goroutines are charged as the server counts them, to the token,
// with refusals, 503s and lost connections thrown in, all of which the client tries
// again.
func TestChargesAreWhatTheServerCounts(t *testing.T) {
	for _, network := range []upstream.Network{upstream.HTTP1, upstream.HTTP2} {
		t.Run(string(network), func(t *testing.T) {
			m := newMetered(t, network, budgethttp.Options{}, menu{limited: 15, unavailable: 5, drop: 15}, upstream.NewFaults(effort.Seed(t)))
			m.walk(t, 5)
			upstream.SameAs(t, m.budget, &m.server.Tally)
			m.seen.Finished(t)
		})
	}
}

// In fake time the walk goes past what a minute has, in each of the ways to be
// refused, and the upstream's limits are never passed.
func TestTheQuotaIsNeverPassed(t *testing.T) {
	for name, refused := range map[string]budgethttp.Refused{"fail": budgethttp.Fail, "answer 429": budgethttp.Answer429, "wait": budgethttp.Wait} {
		t.Run(name, func(t *testing.T) {
			seed := effort.Seed(t)
			synctest.Test(t, func(t *testing.T) {
				m := newMetered(t, upstream.Memory, budgethttp.Options{Refused: refused}, menu{limited: 15, unavailable: 5, drop: 15}, upstream.NewFaults(seed))
				refusals := m.walk(t, 40)
				m.seen.Finished(t)
				for operation, row := range m.server.Rows() {
					if got := m.seen.Settles.Of(operation).Units; got != row.Units {
						t.Errorf("%s: settled %d, and the server counted %d", operation, got, row.Units)
					}
				}
				if m.server.over != 0 || m.server.requests.most < 40 {
					t.Errorf("%d requests came above a limit; the most was %.1f requests and %.1f tokens", m.server.over, m.server.requests.most, m.server.tokens.most)
				}
				if drifts := m.seen.Drifts(); len(drifts) != 0 {
					t.Errorf("drift %+v", drifts)
				}
				if refusals != 0 && refused == budgethttp.Wait || refusals == 0 && refused == budgethttp.Fail {
					t.Errorf("%d refusals", refusals)
				}
			})
		})
	}
}

// walk has goroutines do so many things each at random, and is how often the
// budget refused in the end. It opens locks, as by hand, so that it goes on.
func (m *metered) walk(t *testing.T, steps int) (refusals int) {
	calls := []func(*metered, context.Context) error{(*metered).chat, (*metered).streamChat, (*metered).respond, (*metered).streamResponse}
	return upstream.Walk(t, m.budget, m.server.faults, steps, isRefusal, func(ctx context.Context, random *rand.Rand, _ int) error {
		return calls[random.IntN(len(calls))](m, ctx)
	})
}

// isRefusal reports whether the budget refused: with its error, or with a response
// of the transport's own. All else is a fault of the server's.
func isRefusal(t *testing.T, err error) bool {
	var refused *budget.RefusedError
	var lost *url.Error
	switch said := apiError(err); {
	case err == nil:
		return false
	case errors.As(err, &refused):
		return true
	case said != nil:
		if said.StatusCode == 400 {
			t.Error(err)
		}
		return said.Response.Header.Get(budgethttp.RefusedHeader) != ""
	case errors.As(err, &lost):
		return false
	}
	t.Errorf("%T %v", err, err)
	return false
}
