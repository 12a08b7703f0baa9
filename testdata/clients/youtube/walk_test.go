package youtube_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"testing"
	"testing/synctest"

	"google.golang.org/api/googleapi"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

// Random calls of goroutines are charged as the server counts them, to the unit,
// with refusals, 503s and lost connections thrown in.
func TestChargesAreWhatTheServerCounts(t *testing.T) {
	thrown := menu{spent: 30, burst: 15, unavailable: 8, drop: 8}
	for _, network := range []upstream.Network{upstream.HTTP1, upstream.HTTP2} {
		for name, refused := range map[string]budgethttp.Refused{"fail": budgethttp.Fail, "answer 429": budgethttp.Answer429} {
			t.Run(string(network)+", "+name, func(t *testing.T) {
				m := newMetered(t, network, budgethttp.Options{Refused: refused}, thrown, upstream.NewFaults(effort.Seed(t)))
				refusals := m.walk(t, 20, 10)
				upstream.SameAs(t, m.budget, &m.server.Tally)
				m.seen.Finished(t)
				if refusals == 0 || m.server.Of("videos.insert").Calls == 0 {
					t.Errorf("a quiet walk: %v, %d refusals", m.server.Rows(), refusals)
				}
			})
		}
	}
}

// What net/http sends again by itself, because a kept connection had died, is
// charged again.
func TestLostConnections(t *testing.T) {
	for _, network := range []upstream.Network{upstream.HTTP1, upstream.HTTP2} {
		t.Run(string(network), func(t *testing.T) {
			m := newMetered(t, network, budgethttp.Options{}, menu{drop: 4, dropGET: 4}, upstream.NewFaults(effort.Seed(t)))
			if refusals := m.walk(t, 20, 10); refusals != 0 {
				t.Errorf("%d refusals", refusals)
			}
			upstream.SameAs(t, m.budget, &m.server.Tally)
			m.seen.Finished(t)
		})
	}
}

// A caller that waits goes on for days, and no Pacific day has more than its quota.
func TestWaitingNeverPassesTheQuota(t *testing.T) {
	seed := effort.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		thrown := menu{spent: 400, burst: 20, unavailable: 10, drop: 10}
		m := newMetered(t, upstream.Memory, budgethttp.Options{Refused: budgethttp.Wait}, thrown, upstream.NewFaults(seed))
		if refusals := m.walk(t, 100, 50); refusals != 0 {
			t.Errorf("%d refusals of those who wait", refusals)
		}
		m.seen.Finished(t)
		for operation, row := range m.server.Rows() {
			if got := m.seen.Settles.Of(operation).Units; got != row.Units {
				t.Errorf("%s: settled %d, and the server counted %d", operation, got, row.Units)
			}
		}
		for bucket, quota := range map[string]int64{"pool": 10_000, "search": 100, "uploads": 100} {
			if units, _ := m.server.most(bucket); units > quota {
				t.Errorf("a day has %d of %s, more than %d", units, bucket, quota)
			}
		}
		if _, days := m.server.most("search"); days < 2 {
			t.Errorf("a walk of %d days", days)
		}
	})
}

// walk has goroutines do so many things each at random, of which the first and
// one in some are uploads, and is how often the budget refused. It opens locks, as by hand,
// so that it goes on.
func (m *metered) walk(t *testing.T, steps, uploads int) (refusals int) {
	return upstream.Walk(t, m.budget, m.server.faults, steps, isRefusal, func(ctx context.Context, random *rand.Rand, step int) error {
		if step == 0 {
			return m.step(ctx, random, 1)
		}
		return m.step(ctx, random, uploads)
	})
}

func (m *metered) step(ctx context.Context, random *rand.Rand, uploads int) error {
	if random.IntN(uploads) == 0 {
		return m.upload(ctx)
	}
	switch random.IntN(3) {
	case 0:
		return m.search(ctx)
	case 1:
		return m.insert(ctx)
	default:
		_, err := m.list(ctx)
		return err
	}
}

// isRefusal reports whether the budget refused: with its error, or with a response
// of the transport's own. All else is a fault of the server's.
func isRefusal(t *testing.T, err error) bool {
	var said *googleapi.Error
	var lost *url.Error
	var refused *budget.RefusedError
	switch {
	case err == nil:
		return false
	case errors.As(err, &refused):
		if !errors.Is(err, budget.ErrLocked) {
			t.Errorf("refused, and nothing is locked: %v", err)
		}
		return true
	case errors.As(err, &said):
		if said.Code == 400 {
			t.Error(err)
		}
		return said.Header.Get(budgethttp.RefusedHeader) != ""
	case errors.As(err, &lost):
		return false
	}
	t.Error(err)
	return false
}
