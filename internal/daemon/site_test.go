package daemon

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
)

// The pages are served beside the decisions, behind the same guard, by the configuration in force.
func TestTheSiteIsServed(t *testing.T) {
	d := living(t, nothing, "[store]", "[store]")
	d.o.Endpoint = &Endpoint{token: "0123456789abcdef", loopback: true}
	d.servers, d.site = &servers{}, newSite(d)
	d.takeOver(d.current.Load())
	l := &listener{metrics: d.metrics, servers: d.servers, site: d.site, budgets: d.Budgets}
	handler := l.handler()
	ask := func(method, path, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		r.Host = "localhost"
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		got := httptest.NewRecorder()
		handler.ServeHTTP(got, r)
		return got
	}
	page := func() string { return ask(http.MethodGet, "/", "0123456789abcdef").Body.String() }
	check.Contains(t, page(), "shop/spare")
	check.Equal(t, ask(http.MethodGet, "/", "").Code, http.StatusUnauthorized, "without the token")
	check.Equal(t, ask(http.MethodPost, "/jobs", "0123456789abcdef").Code, http.StatusMethodNotAllowed)
	check.Equal(t, ask(http.MethodGet, "/v1/status", "0123456789abcdef").Code, http.StatusOK, "decisions")
	check.Equal(t, ask(http.MethodGet, "/elsewhere", "0123456789abcdef").Code, http.StatusNotFound)

	d.write(t, "[upstream.shop.credential.spare]", "[upstream.shop.credential.other]", "shop/spare", "shop/other")
	cfg, list, err := d.Read()
	check.NoError(t, err)
	next, err := d.open(cfg, list)
	check.NoError(t, err)
	d.takeOver(next)
	if got := page(); !strings.Contains(got, "shop/other") || strings.Contains(got, "shop/spare") {
		t.Errorf("after a reload the page is\n%s", got)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	d.site.Follow(ended)
	check.Equal(t, ask(http.MethodGet, "/events", "0123456789abcdef").Code, http.StatusServiceUnavailable, "once the daemon stops")
}
