package door_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/certtest"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/door"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
	"github.com/quotactl/quotactl/jobs"
)

const (
	token     = "the-token-that-may-spend"
	readToken = "the-token-that-may-look"
	home      = "localhost:9090"
)

const costs = `
[store]
url = "sqlite:quotactl.db"

[upstream.shop.costs]
get = 1

[upstream.shop.limit.daily]
limit = 100
window = "24h"

[upstream.shop.limit.gets]
limit = 50
window = "1h"
operations = ["get"]

[upstream.shop.credential.main]

[job.trending]
budget = "shop/main"
schedule = "0 * * * *"
regions = ["US", "GB"]
command = ["true"]
`

// site is a site that shows what it is given.
type site struct {
	mu      sync.Mutex
	changed int
	hold    chan struct{} // requests wait for it, unless it is nil
	came    chan struct{} // and say here that they have come
}

func (s *site) Serves(path string) bool {
	switch path {
	case "/", "/jobs", "/job", "/events", "/assets/page.css":
		return true
	}
	return false
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.hold != nil {
		s.came <- struct{}{}
		<-s.hold
	}
	if r.URL.Path == "/events" {
		s.came <- struct{}{}
		<-r.Context().Done()
		return
	}
	v := door.VisitorOf(r)
	_, _ = fmt.Fprintf(w, "page %s act=%t signed_in=%t token=%t csrf=%q said=%q", r.URL.RequestURI(), v.MayAct, v.SignedIn, v.Token, v.CSRF, v.Said)
}

func (s *site) SignIn(w http.ResponseWriter, r *http.Request, status int, wrong string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "sign in at %s back=%q wrong=%q", r.URL.Path, r.URL.Query().Get("back"), wrong)
}

func (s *site) Changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed++
}

// world is a Door before a site, on a store in memory.
type world struct {
	t      testing.TB
	now    time.Time
	site   *site
	store  *memstore.Store
	reader *look.Reader
	log    bytes.Buffer
	tls    bool
	*door.Door
}

func newWorld(t testing.TB, change func(*door.Options)) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC), site: &site{came: make(chan struct{}, 100)}}
	w.store = memstore.New(func() int64 { return time.Now().UnixMicro() })
	file := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(file, []byte(costs), 0o600))
	cfg := must.Get(config.Parse(file))(t)
	list := jobs.Load(cfg)
	must.Do(t, cfg.Err())
	opened := map[string]*budget.Budget{}
	w.reader = &look.Reader{Config: cfg, Jobs: list, Store: w.store, Now: time.Now, Log: slog.New(slog.DiscardHandler), Open: func(name string) (*budget.Budget, error) {
		var err error
		if opened[name] == nil {
			opened[name], err = open.BudgetOn(w.store, cfg, cfg.Store.URL, name)
		}
		return opened[name], err
	}}
	o := door.Options{
		Site: w.site, Tokens: serve.NewTokens(token, readToken), Loopback: true, AllowActions: true,
		Reader: func() *look.Reader { return w.reader }, Machine: "host-1",
		Log: slog.New(slog.NewTextHandler(&w.log, nil)), Now: func() time.Time { return w.now },
	}
	if change != nil {
		change(&o)
	}
	w.tls = o.Certificate != nil
	w.Door = door.New(o)
	return w
}

// request is one that a browser sends from a page of the daemon's own.
func (w *world) request(method, path string, form url.Values) *http.Request {
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, body)
	r.Host, r.RemoteAddr = home, "127.0.0.1:54321"
	scheme := "http://"
	if w.tls {
		r.Host, r.TLS, scheme = "127.0.0.1:9090", &tls.ConnectionState{}, "https://"
	}
	if method == http.MethodPost {
		r.Header.Set("Origin", scheme+r.Host)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}

func (w *world) do(r *http.Request) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	w.ServeHTTP(recorder, r)
	return recorder
}

// visitor is a browser with a session.
type visitor struct {
	w      *world
	cookie *http.Cookie
	csrf   string
}

var csrfShown = regexp.MustCompile(`csrf="([^"]*)"`)

// signIn signs in, and reads the first page.
func (w *world) signIn(with string) *visitor {
	w.t.Helper()
	got := w.do(w.request(http.MethodPost, "/login", url.Values{"token": {with}}))
	cookies := got.Result().Cookies()
	if got.Code != http.StatusSeeOther || len(cookies) != 1 {
		w.t.Fatalf("signed in: %d, %s, cookies %v", got.Code, got.Body, cookies)
	}
	v := &visitor{w: w, cookie: cookies[0]}
	v.csrf = csrfShown.FindStringSubmatch(v.get("/").Body.String())[1]
	return v
}

func (v *visitor) with(r *http.Request) *http.Request {
	r.AddCookie(&http.Cookie{Name: v.cookie.Name, Value: v.cookie.Value})
	return r
}

func (v *visitor) get(path string) *httptest.ResponseRecorder {
	return v.w.do(v.with(v.w.request(http.MethodGet, path, nil)))
}

// post sends a form with the session's CSRF token.
func (v *visitor) post(path string, fields ...string) *httptest.ResponseRecorder {
	form := url.Values{"csrf": {v.csrf}}
	for i := 0; i < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return v.w.do(v.with(v.w.request(http.MethodPost, path, form)))
}

// shows checks a status and a part of the body.
func shows(t testing.TB, got *httptest.ResponseRecorder, status int, part string, about ...any) {
	t.Helper()
	if got.Code != status || !strings.Contains(got.Body.String(), part) {
		t.Errorf("%v: %d %s, want %d with %q", about, got.Code, got.Body, status, part)
	}
}

// certificate is one for 127.0.0.1 alone.
func certificate(t testing.TB) *x509.Certificate {
	t.Helper()
	test, ok := t.(*testing.T)
	if !ok {
		t.Fatal("a fuzz test has no certificate")
	}
	cert, key := certtest.SelfSigned(test, t.TempDir())
	return must.Get(tls.LoadX509KeyPair(cert, key))(t).Leaf
}

// secrets fails if a token is in a text.
func secrets(t testing.TB, text string, about ...any) {
	t.Helper()
	for _, secret := range []string{token, readToken} {
		check.Equal(t, strings.Contains(text, secret), false, append([]any{"a token is shown:"}, about...)...)
	}
}
