package github_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/google/go-github/v90/github"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

// Random calls of goroutines are charged as the server counts them, to the unit,
// with refusals, 503s and lost connections thrown in; and what the server reports,
// in whatever order that comes, is not taken for another's spend.
func TestChargesAreWhatTheServerCounts(t *testing.T) {
	thrown := menu{secondary: 15, unavailable: 8, drop: 8}
	for _, network := range []upstream.Network{upstream.HTTP1, upstream.HTTP2} {
		for name, refused := range map[string]budgethttp.Refused{"fail": budgethttp.Fail, "answer 429": budgethttp.Answer429} {
			t.Run(string(network)+", "+name, func(t *testing.T) {
				m := newMetered(t, network, budgethttp.Options{Refused: refused}, thrown, upstream.NewFaults(effort.Seed(t)))
				refusals := m.walk(t, 25, 6)
				upstream.SameAs(t, m.budget, &m.server.Tally)
				m.seen.Finished(t)
				m.noDrift(t)
				if refusals == 0 {
					t.Errorf("a quiet walk: %v", m.server.Rows())
				}
			})
		}
	}
}

// A caller that waits passes no quota of the upstream's.
func TestWaitingNeverPassesTheQuota(t *testing.T) {
	seed := effort.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		thrown := menu{secondary: 60, unavailable: 10, drop: 10}
		m := newMetered(t, upstream.Memory, budgethttp.Options{Refused: budgethttp.Wait}, thrown, upstream.NewFaults(seed))
		if refusals := m.walk(t, 80, 2); refusals != 0 {
			t.Errorf("%d refusals of those who wait", refusals)
		}
		m.seen.Finished(t)
		for operation, row := range m.server.Rows() {
			if got := m.seen.Settles.Of(operation).Units; got != row.Units {
				t.Errorf("%s: settled %d, and the server counted %d", operation, got, row.Units)
			}
		}
		for name, x := range m.server.resources {
			if x.most > x.limit || name == "search" && x.most < 20 {
				t.Errorf("a period has %d of %s, which has %d", x.most, name, x.limit)
			}
		}
		m.noDrift(t)
	})
}

// noDrift fails where the server's reports were not explained. GraphQL's may be: a
// report has the points of queries whose answer, which tells them, is still to come.
func (m *metered) noDrift(t *testing.T) {
	t.Helper()
	for _, drift := range m.seen.Drifts() {
		if drift.Limit != "graphql" {
			t.Errorf("drift %+v", drift)
		}
	}
}

// walk has goroutines do so many things each at random, of which one in some
// is a search, and is how often the budget refused. It opens locks, as by hand, so that it goes on.
func (m *metered) walk(t *testing.T, steps, searches int) (refusals int) {
	client := m.another(t, github.WithDisableRateLimitCheck()) // else it remembers what is opened
	return upstream.Walk(t, m.budget, m.server.faults, steps, isRefusal, func(ctx context.Context, random *rand.Rand, _ int) error {
		return m.step(ctx, client, random, searches)
	})
}

func (m *metered) step(ctx context.Context, client *github.Client, random *rand.Rand, searches int) error {
	if random.IntN(searches) == 0 {
		return search(ctx, client)
	}
	switch random.IntN(5) {
	case 1:
		return create(ctx, client)
	case 2:
		_, err := changed(ctx, client)
		return err
	case 3:
		return m.query(ctx, 1+random.IntN(9))
	case 0:
		return get(ctx, client)
	default:
		_, err := list(ctx, client)
		return err
	}
}

// isRefusal reports whether the budget refused: with its error, or with a response
// of the transport's own. All else is a fault of the server's.
func isRefusal(t *testing.T, err error) bool {
	var refused *budget.RefusedError
	var said *github.ErrorResponse
	var limited *github.AbuseRateLimitError
	var lost *url.Error
	switch {
	case err == nil, errors.As(err, &limited), errors.Is(err, errUpstream):
		return false
	case errors.As(err, &refused), errors.Is(err, errAnswered):
		return true
	case errors.As(err, &said):
		if said.Response.StatusCode == 400 {
			t.Error(err)
		}
		return said.Response.Header.Get(budgethttp.RefusedHeader) != ""
	case errors.As(err, &lost):
		return false
	}
	t.Errorf("%T %v", err, err)
	return false
}
