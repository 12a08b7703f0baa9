package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
)

// When the daemon stops, and when a reload puts another server in force, leases are settled
// with what was taken from them.
func TestLeasesAreSettled(t *testing.T) {
	w := watch(t, nil)
	w.m.admit(map[string]*budget.Budget{"shop/main": w.b}, nil)
	leasing := func() *serve.Server {
		return serve.New(serve.Options{Budgets: []*budget.Budget{w.b}, Leased: w.m.leased})
	}
	w.l.servers.swap(leasing())
	under := must.Get(w.l.serve(t.Context(), &Endpoint{network: "tcp", address: "127.0.0.1:0", loopback: true}, slog.New(slog.DiscardHandler)))(t)
	hit := func() {
		t.Helper()
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, under.called+"/v1/charge", strings.NewReader(`{"budget":"shop/main","operation":"hit"}`)))(t)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		must.Do(t, err)
		must.Do(t, response.Body.Close())
		must.Equal(t, response.StatusCode, http.StatusOK)
	}
	used := func() int64 { return must.Get(w.b.Status(t.Context()))(t).Limits[0].Used }
	hit()
	hit()
	check.Equal(t, used(), 20, "with a lease")
	before := w.l.servers.now.Load()
	w.l.servers.swap(leasing())
	before.AwaitLeases(context.Background())
	check.Equal(t, used(), 2, "after a reload")
	hit()
	check.Equal(t, used(), 22, "with another lease")
	must.Do(t, under.stop())
	check.Equal(t, used(), 3, "after the stop")
	w.has(`quotactl_leased_takes_total{budget="shop/main",operation="hit"} 3`, `quotactl_leased_units_total{budget="shop/main",operation="hit"} 3`)
}
