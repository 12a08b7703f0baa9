package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// What requests take from leases is in the daemon's own metrics: one decision of the store,
// and each of the takes.
func TestServeCountsLeasedTakes(t *testing.T) {
	t.Parallel()
	config := strings.NewReplacer(`"get" = 1`, `"get" = { units = 1, lease_units = 100 }`, "limit  = 3", "limit = 1000").Replace(serveConfig)
	s := startServing(t, config, "run", "--listen", "127.0.0.1:0")
	const takes = 3
	for range takes {
		body := s.answers(http.StatusOK, http.MethodPost, "/v1/charge", `{"budget":"shop/main","operation":"get"}`)
		must.Equal(t, strings.Contains(body, `"allowed":true`), true, body)
	}
	metrics := s.answers(http.StatusOK, http.MethodGet, "/metrics", "")
	for _, want := range []string{
		`quotactl_leased_takes_total{budget="shop/main",operation="get"} 3`,
		`quotactl_leased_units_total{budget="shop/main",operation="get"} 3`,
		`quotactl_decisions_total{budget="shop/main",operation="get",result="granted",source="store"} 1`,
	} {
		check.Equal(t, strings.Contains(metrics, want+"\n"), true, want)
	}
}
