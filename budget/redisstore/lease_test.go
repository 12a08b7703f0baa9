package redisstore_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/serve"
	"github.com/quotactl/quotactl/internal/storetest"
)

func leaseSpec(most int64) budget.Spec {
	return budget.Spec{
		Name: "shop/main", Costs: map[string]budget.Cost{"get": {Units: 1}, "hit": {Units: 1, LeaseUnits: 10_000}}, Timeout: patient,
		Limits: []limit.Limit{{Name: "hourly", Limit: most, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}},
	}
}

// A server that loses its data stops a lease within a second, with and without a host that
// remembers what it charged. The units that were charged are not handed out beside the new
// ledger's.
func TestLeaseOnALostLedger(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(driver.Store) driver.Store{
		"alone": func(s driver.Store) driver.Store { return s },
		"with host": func(s driver.Store) driver.Store {
			return outage.New(s, outage.Options{Dir: t.TempDir(), Timeout: patient})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			store := wrap(must.Get(redisstore.Open(t.Context(), server.URL(0), redisstore.Options{Timeout: patient}))(t))
			looks := storetest.TellLooks(store)
			b := must.Get(budget.New(looks, leaseSpec(1000), budget.WithClosers(store.(io.Closer))))(t)
			defer func() { _ = b.Close() }()
			l := must.Get(b.Lease(t.Context(), budget.Call{Operation: "get"}, 400, time.Hour))(t)
			must.Do(t, l.Take(t.Context(), 100))
			first := l.Receipt()
			must.Do(t, server.Client().FlushAll(t.Context()).Err())
			storetest.AwaitNewCharge(t, looks, l, first, budget.ErrLost)
			must.Do(t, l.Close(t.Context()))
			used := must.Get(b.Status(t.Context()))(t).Limits[0].Used
			if want := map[string]int64{"alone": 0, "with host": 400}[name]; used != want {
				t.Errorf("%d are used, want %d", used, want)
			}
		})
	}
}

// BenchmarkHTTPLeased compares requests over 200 kept connections that take from a lease,
// requests that Redis decides, and requests to a handler that only answers as much, turn by
// turn in one run. All include the client.
func BenchmarkHTTPLeased(b *testing.B) {
	const connections = 200
	server := redistest.Start(b)
	store := must.Get(redisstore.Open(b.Context(), server.URL(0), redisstore.Options{Timeout: patient}))(b)
	b.Cleanup(func() { _ = store.Close() })
	serving := serve.New(serve.Options{Budgets: []*budget.Budget{must.Get(budget.New(store, leaseSpec(limit.MaxUnits)))(b)}, Loopback: true})
	deciding := httptest.NewServer(serving)
	b.Cleanup(deciding.Close)
	answer := strings.Repeat("x", 300)
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, answer)
	}))
	b.Cleanup(empty.Close)
	const hit, get = `{"budget":"shop/main","operation":"hit"}`, `{"budget":"shop/main","operation":"get"}`
	asks := []*keptAlive{
		dial(b, empty.Listener.Addr().String(), connections, get), dial(b, deciding.Listener.Addr().String(), connections, get),
		dial(b, deciding.Listener.Addr().String(), connections, hit),
	}
	sums := make([]float64, len(asks))
	rounds := 0.0
	for b.Loop() {
		rounds++
		for i, ask := range asks {
			sums[i] += storetest.Rate(b, connections, 200*time.Millisecond, ask.ask)
		}
	}
	b.ReportMetric(sums[0]/rounds, "requests/s")
	b.ReportMetric(sums[1]/sums[0], "decided-ratio")
	b.ReportMetric(sums[2]/sums[0], "leased-ratio")
	b.StopTimer()
	serving.EndLeases()
	serving.AwaitLeases(b.Context())
}
