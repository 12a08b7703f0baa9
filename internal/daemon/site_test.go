package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/certtest"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

const (
	spends = "the-token-that-may-spend"
	looks  = "the-token-that-may-look"
)

// browsed is a daemon that is looked at.
type browsed struct {
	t   *testing.T
	log bytes.Buffer
	*Daemon
	http.Handler
}

func browse(t *testing.T, e Endpoint) *browsed {
	b := &browsed{t: t}
	e.token, e.readToken = spends, looks
	b.Daemon = livingWith(t, Options{Env: nothing, Endpoint: &e, Log: slog.New(slog.NewTextHandler(&b.log, nil))})
	b.Handler = (&listener{metrics: b.metrics, budgets: b.Budgets, servers: b.servers, door: b.door, drain: make(chan struct{}), timeout: b.timeout}).handler()
	return b
}

// ask sends a request with a bearer token and a cookie, unless they are empty.
func (b *browsed) ask(method, path, token string, cookie *http.Cookie, form url.Values) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, path, strings.NewReader(form.Encode()))
	r.Host = "localhost:9090"
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if cookie != nil {
		r.AddCookie(cookie)
	}
	if form != nil {
		r.Header.Set("Origin", "http://localhost:9090")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	for _, secret := range []string{spends, looks} {
		check.Equal(b.t, strings.Contains(w.Body.String()+w.Header().Get("Set-Cookie")+w.Header().Get("Location"), secret), false, method, path, "shows a token")
	}
	return w
}

// A person signs in, acts and signs out. A reload ends no session, and a session opens nothing
// but the pages.
func TestPages(t *testing.T) {
	b := browse(t, Endpoint{loopback: true, act: true})
	for _, path := range []string{"/", "/jobs", "/job?name=stays", "/budget?name=shop/main", "/runs", "/plan", "/why", "/alerts"} {
		check.Equal(t, b.ask(http.MethodGet, path, "", nil, nil).Code, 303, path)
		check.Equal(t, b.ask(http.MethodGet, path, looks, nil, nil).Code, 200, path)
		check.Equal(t, b.ask(http.MethodGet, path, "wrong", nil, nil).Code, 401, path)
	}
	in := b.ask(http.MethodPost, "/login", "", nil, url.Values{"token": {spends}, "back": {"/job?name=stays"}})
	must.Equal(t, in.Code, 303)
	check.Equal(t, in.Header().Get("Location"), "/job?name=stays")
	cookie := in.Result().Cookies()[0]
	page := b.ask(http.MethodGet, "/job?name=stays", "", cookie, nil)
	must.Equal(t, page.Code, 200)
	found := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(page.Body.String())
	must.Equal(t, len(found), 2)
	csrf := found[1]
	check.Contains(t, page.Body.String(), `action="/do/pause"`)

	done := b.ask(http.MethodPost, "/do/pause", "", cookie, url.Values{"csrf": {csrf}, "job": {"stays"}, "note": {"it moves"}, "back": {"/job?name=stays"}})
	must.Equal(t, done.Code, 303, done.Body)
	check.Contains(t, b.ask(http.MethodGet, "/job?name=stays", "", cookie, nil).Body.String(), "Paused stays.")
	seen := must.Get(jobs.Look(t.Context(), b.store, b.jobs()))(t)[0]
	check.Contains(t, seen.Pause.Note, "it moves; by the page of ")

	b.write(t, "[job.goes]", "[job.comes]")
	must.Do(t, b.reloads(t, jobs.Options{Secrets: b.Secrets}))
	check.Equal(t, b.ask(http.MethodGet, "/job?name=stays", "", cookie, nil).Code, 200, "after a reload")
	done = b.ask(http.MethodPost, "/do/pause", "", cookie, url.Values{"csrf": {csrf}, "job": {"comes"}, "note": {"n"}})
	check.Equal(t, done.Code, 303, "a job of the next configuration")
	check.Contains(t, b.ask(http.MethodGet, "/jobs", "", cookie, nil).Body.String(), "Paused comes.")

	for _, path := range []string{"/v1/status", "/v1/overview", "/metrics", "/readyz"} {
		check.Equal(t, b.ask(http.MethodGet, path, "", cookie, nil).Code, 401, path)
		check.Equal(t, b.ask(http.MethodGet, path, looks, nil, nil).Code, 200, path)
	}
	check.Equal(t, b.ask(http.MethodPost, "/v1/charge", "", cookie, nil).Code, 401)
	check.Equal(t, b.ask(http.MethodPost, "/v1/charge", looks, nil, nil).Code, 403)
	check.Equal(t, b.ask(http.MethodGet, "/healthz", "", nil, nil).Code, 200)
	check.Equal(t, b.ask(http.MethodGet, "/elsewhere", "", cookie, nil).Code, 401)
	check.Equal(t, b.ask(http.MethodGet, "/elsewhere", looks, nil, nil).Code, 404)

	out := b.ask(http.MethodPost, "/logout", "", cookie, url.Values{"csrf": {csrf}})
	check.Equal(t, out.Code, 303)
	check.Equal(t, b.ask(http.MethodGet, "/", "", cookie, nil).Code, 303)
	b.ask(http.MethodPost, "/login", "", nil, url.Values{"token": {spends + "x"}})
	check.Contains(t, b.log.String(), "operation=pause job=stays")
	for _, secret := range []string{spends, looks, csrf, cookie.Value} {
		check.Equal(t, strings.Contains(b.log.String(), secret), false, "in the log")
	}
}

// Every answer to a browser is hardened, whoever made it.
func TestEveryAnswerIsHardened(t *testing.T) {
	b := browse(t, Endpoint{loopback: true, act: true})
	listening, leave := context.WithCancel(t.Context())
	leave() // the streams end at once
	for _, test := range []struct {
		method, path, token string
		status              int
	}{
		{http.MethodGet, "/", looks, 200}, {http.MethodGet, "/job?name=stays", looks, 200}, {http.MethodGet, "/job?name=none", looks, 404}, {http.MethodGet, "/", "", 303},
		{http.MethodGet, "/assets/page.css", "", 200}, {http.MethodGet, "/assets/page.js", "", 200}, {http.MethodGet, "/events", looks, 200}, {http.MethodGet, "/events", "", 401},
		{http.MethodGet, "/login", "", 200}, {http.MethodPost, "/login", "", 401}, {http.MethodPost, "/do/pause", "", 403}, {http.MethodDelete, "/jobs", "", 405},
	} {
		r := httptest.NewRequestWithContext(listening, test.method, test.path, strings.NewReader(url.Values{"token": {"wrong"}}.Encode()))
		r.Host = "localhost:9090"
		r.Header.Set("Origin", "http://localhost:9090")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if test.token != "" {
			r.Header.Set("Authorization", "Bearer "+test.token)
		}
		got := httptest.NewRecorder()
		b.ServeHTTP(got, r)
		check.Equal(t, got.Code, test.status, test.method, test.path)
		for name, parts := range map[string][]string{
			"Content-Security-Policy": {"default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"},
			"X-Content-Type-Options":  {"nosniff"}, "X-Frame-Options": {"DENY"}, "Referrer-Policy": {"same-origin"},
			"Cross-Origin-Opener-Policy": {"same-origin"}, "Cross-Origin-Resource-Policy": {"same-origin"},
		} {
			for _, part := range parts {
				check.Contains(t, strings.Join(got.Header()[name], " + "), part, test.method, test.path, name)
			}
			check.Equal(t, len(got.Header()[name]), 1, test.method, test.path, name)
		}
	}
}

// The door goes by what the daemon was started with.
func TestPagesOfAnEndpoint(t *testing.T) {
	dir := t.TempDir()
	cert, key := certtest.SelfSigned(t, dir)
	secure := must.Get((&Listen{Cert: cert, Key: key}).tls("tcp"))(t)
	for name, c := range map[string]struct {
		endpoint Endpoint
		hosts    map[string]int
	}{
		"loopback":    {Endpoint{loopback: true}, map[string]int{"localhost:1": 200, "127.0.0.1": 200, "evil.example": 403}},
		"with TLS":    {Endpoint{secure: secure}, map[string]int{"127.0.0.1:1": 200, "localhost:1": 403, "evil.example": 403}},
		"on a socket": {Endpoint{network: "unix"}, map[string]int{"localhost": 200, "evil.example": 200}},
		"to act":      {Endpoint{loopback: true, act: true}, map[string]int{"localhost:1": 200}},
	} {
		b := browse(t, c.endpoint)
		for host, status := range c.hosts {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.Host = host
			r.Header.Set("Authorization", "Bearer "+looks)
			w := httptest.NewRecorder()
			b.ServeHTTP(w, r)
			check.Equal(t, w.Code, status, name, host)
		}
		if c.endpoint.loopback {
			got := b.ask(http.MethodPost, "/do/pause", "", nil, url.Values{})
			check.Equal(t, got.Code, 403, name)
			check.Equal(t, strings.Contains(got.Body.String(), "without --allow-actions"), !c.endpoint.act, name)
		}
	}
}

// The overview is what status shows: of all budgets and jobs, or of the budgets named.
func TestOverview(t *testing.T) {
	b := browse(t, Endpoint{loopback: true})
	for query, want := range map[string]string{
		"": "shop/main shop/spare: stays changes goes", "?budget=shop/spare": "shop/spare: goes", "?budget=shop/spare&budget=shop/main": "shop/spare shop/main: stays changes goes",
	} {
		got := b.ask(http.MethodGet, "/v1/overview"+query, looks, nil, nil)
		must.Equal(t, got.Code, 200, query)
		var seen struct {
			Store   string
			Budgets []struct{ Budget string }
			Jobs    []struct{ Job string }
		}
		must.Do(t, json.Unmarshal(got.Body.Bytes(), &seen))
		var budgets, names []string
		for _, one := range seen.Budgets {
			budgets = append(budgets, one.Budget)
		}
		for _, one := range seen.Jobs {
			names = append(names, one.Job)
		}
		check.Equal(t, strings.Join(budgets, " ")+": "+strings.Join(names, " "), want, query)
		check.Contains(t, seen.Store, "/quotactl.db")
	}
	check.Equal(t, b.ask(http.MethodGet, "/v1/overview?budget=shop/none", looks, nil, nil).Code, 404)
}

// However many watch a daemon, it plans once in a while: what is left is as it is now.
func TestOverviewsShareAForecast(t *testing.T) {
	b := browse(t, Endpoint{loopback: true})
	now := time.Now()
	b.o.Now = func() time.Time { return now }
	b.write(t, "schedule = \"0 0 1 1 *\"", "schedule = \"0 * * * *\"\nneeds = { get = 1 }") // an hourly job is planned
	must.Do(t, b.reloads(t, jobs.Options{}))
	seen := func() (left, least int64) {
		t.Helper()
		got := b.ask(http.MethodGet, "/v1/overview?budget=shop/main", looks, nil, nil)
		must.Equal(t, got.Code, 200)
		var says struct {
			Budgets []struct {
				Remaining int64
				Plan      struct{ Least struct{ Remaining int64 } }
			}
		}
		must.Do(t, json.Unmarshal(got.Body.Bytes(), &says))
		return says.Budgets[0].Remaining, says.Budgets[0].Plan.Least.Remaining
	}
	left, least := seen()
	units := int64(10)
	must.Get(b.Budgets()["shop/main"].Charge(t.Context(), budget.Call{Operation: "get", Units: &units}))(t)
	now = now.Add(forecastKept - time.Second)
	leftLater, leastLater := seen()
	check.Equal(t, leftLater, left-10, "left, now")
	check.Equal(t, leastLater, least, "fewest left by plan, of half a minute ago")
	now = now.Add(time.Second)
	_, leastLater = seen()
	check.Equal(t, leastLater < least, true, "fewest left by a new plan")
}
