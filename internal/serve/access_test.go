package serve_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/serve"
)

const (
	token     = "c0rrect-h0rse_battery~staple"
	readToken = "c0rrect-h0rse_battery~stapler"
)

// An overview names at most so many budgets.
func TestOverviewNames(t *testing.T) {
	w := newWorld(t, serve.Options{})
	var query strings.Builder
	for i := range serve.MaxNamed {
		fmt.Fprintf(&query, "&budget=shop/b%d", i)
	}
	w.do(w.request(http.MethodGet, "/v1/overview?"+query.String()[1:], "")).is(200)
	w.do(w.request(http.MethodGet, "/v1/overview?budget=shop/main"+query.String(), "")).is(400, "reason", "invalid")
}

// The read token opens what spends nothing, and only that.
func TestReadToken(t *testing.T) {
	o := serve.Options{Token: token, ReadToken: readToken}
	w := newWorld(t, o)
	guarded := w.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, c := range []struct {
		method, path string
		read, full   int
	}{
		{http.MethodGet, "/v1/status", 200, 200},
		{http.MethodGet, "/v1/overview", 200, 200},
		{http.MethodGet, "/v1/why?budget=shop/main&operation=get", 200, 200},
		{http.MethodGet, "/v1/openapi.json", 200, 200},
		{http.MethodPost, "/v1/charge", 403, 200},
		{http.MethodPost, "/v1/settle", 403, 410},
		{http.MethodPost, "/v1/release", 403, 410},
		{http.MethodGet, "/v1/charge", 405, 405},
		{http.MethodGet, "/v1/nothing", 404, 404},
	} {
		for sent, status := range map[string]int{readToken: c.read, token: c.full, readToken + "r": 401, token[1:]: 401} {
			body := ""
			if path := c.path; c.method == http.MethodPost {
				body = posts[path]
			}
			r := w.request(c.method, c.path, body)
			r.Header.Set("Authorization", "Bearer "+sent)
			got := w.do(r)
			check.Equal(t, got.status, status, c.method, c.path, sent)
			if status == 403 {
				got.is(403, "reason", "read_token")
			}
		}
	}
	for sent, status := range map[string]int{readToken: 204, token: 204, "": 401} {
		r := w.request(http.MethodGet, "/metrics", "")
		r.Header.Set("Authorization", "Bearer "+sent)
		recorder := httptest.NewRecorder()
		guarded.ServeHTTP(recorder, r)
		check.Equal(t, recorder.Code, status, "guarded, with", sent)
	}
	// Without a read token nothing opens for an empty one.
	w = newWorld(t, serve.Options{Token: token})
	r := w.request(http.MethodGet, "/v1/status", "")
	r.Header.Set("Authorization", "Bearer ")
	w.do(r).is(401)
}

func TestToken(t *testing.T) {
	w := newWorld(t, serve.Options{Token: token})
	for sent, status := range map[string]int{
		"Bearer " + token: 200, "bearer  " + token: 200,
		"": 401, "Bearer": 401, "Bearer ": 401, token: 401, "Basic " + token: 401, "Bearer " + token + "x": 401, "Bearer " + token[1:]: 401, "Bearer " + token + " ": 401,
	} {
		for _, path := range []string{"/v1/charge", "/v1/nothing"} {
			r := w.request(http.MethodPost, path, chargeGet)
			if sent != "" {
				r.Header.Set("Authorization", sent)
			}
			got := w.do(r)
			switch {
			case status == 401:
				got.is(401, "reason", "no_token")
				got.has("WWW-Authenticate", `Bearer realm="quotactl"`)
			case path == "/v1/charge":
				got.is(200)
			default:
				got.is(404)
			}
		}
	}
	r := w.request(http.MethodPost, "/v1/charge", chargeGet)
	r.Header["Authorization"] = []string{"Bearer " + token, "Bearer " + token}
	w.do(r).is(401)
}

// Loopback refuses every request that a web page could send, whatever its Host.
func TestWebPages(t *testing.T) {
	w := newWorld(t, serve.Options{Loopback: true})
	for host, status := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:9090": 200, "localhost": 200, "LOCALHOST:9090": 200, "localhost.:80": 200, "[::1]": 200, "[::1]:9090": 200, "127.9.9.9:1": 200,
		"evil.example": 403, "evil.example:9090": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "192.0.2.1:9090": 403, "0.0.0.0:9090": 403, "": 403, ":9090": 403, "[::2]": 403,
	} {
		r := w.request(http.MethodPost, "/v1/charge", chargeGet)
		r.Host = host
		check.Equal(t, w.do(r).status, status, "Host", host)
	}
	for _, origin := range []string{"https://evil.example", "null", "http://127.0.0.1:9090", ""} {
		for _, o := range []serve.Options{{Loopback: true}, {}} {
			w := newWorld(t, o)
			r := w.request(http.MethodGet, "/v1/status", "")
			r.Header.Set("Origin", origin)
			w.do(r).is(403, "reason", "not_local")
		}
	}
	// What a browser sends for an image, a link or a program of another site, and what
	// a person has it send.
	for site, status := range map[string]int{"cross-site": 403, "same-site": 403, "none": 200, "same-origin": 200} {
		for _, o := range []serve.Options{{Loopback: true}, {}} {
			w := newWorld(t, o)
			r := w.request(http.MethodGet, "/v1/status", "")
			r.Header.Set("Sec-Fetch-Site", site)
			check.Equal(t, w.do(r).status, status, "Sec-Fetch-Site", site)
		}
	}
	// Elsewhere the token says who asks, and the host may have any name.
	w = newWorld(t, serve.Options{Token: token})
	r := w.request(http.MethodGet, "/v1/status", "")
	r.Host = "quota.example"
	r.Header.Set("Authorization", "Bearer "+token)
	w.do(r).is(200)
}

// Guard protects other handlers like the server's own paths.
func TestGuard(t *testing.T) {
	s := serve.New(serve.Options{Token: token, Loopback: true})
	guarded := s.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, c := range []struct {
		host, origin, token string
		status              int
	}{
		{"localhost:9090", "", token, http.StatusNoContent},
		{"localhost:9090", "", "", http.StatusUnauthorized},
		{"localhost:9090", "", token + "x", http.StatusUnauthorized},
		{"evil.example", "", token, http.StatusForbidden},
		{"localhost:9090", "https://evil.example", token, http.StatusForbidden},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		check.Equal(t, w.Code, c.status, c)
	}
}

func TestLoopbackName(t *testing.T) {
	for _, host := range []string{"localhost", "LocalHost.", "127.0.0.1", "127.8.9.1:1", "localhost:9090", "[::1]", "[::1]:65535", "[::ffff:127.0.0.1]:80"} {
		check.Equal(t, serve.LoopbackName(host), true, host)
	}
	for _, host := range []string{
		"", ":80", "localhost:", "localhost:x", "localhost:909\xa6", "localhost:+80", "localhost:65536", "localhost:80:80", "localhost]", "[localhost", "[localhost]", "[localhost]:80",
		"::1", "::1:80", "[::1", "::1]", "[[::1]]", "[::1]]", "[::1%lo]:80", "127.1", "0.0.0.0", "evil.example", "localhost@evil.example", "evil.example#localhost", "localhoſt", "localhoſt:80",
	} {
		check.Equal(t, serve.LoopbackName(host), false, host)
	}
}
