package door_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/door"
	"github.com/quotactl/quotactl/internal/must"
)

// The cookie holds a random id and nothing else, and no script and no other site gets at it.
func TestCookie(t *testing.T) {
	for _, c := range []struct {
		options func(*door.Options)
		host    string
		name    string
		secure  bool
	}{
		{nil, "localhost:9090", "quotactl-9090", false},
		{nil, "[::1]:8811", "quotactl-8811", false},
		{nil, "localhost", "quotactl", false},
		{func(o *door.Options) { o.Certificate = certificate(t) }, "127.0.0.1:9090", "__Host-quotactl", true},
		{func(o *door.Options) { o.Loopback = false }, "quota.example", "quotactl", true}, // behind a server with TLS
	} {
		w := newWorld(t, c.options)
		r := w.request(http.MethodPost, "/login", url.Values{"token": {token}})
		r.Host = c.host
		scheme := "http://"
		if c.secure {
			scheme = "https://"
		}
		r.Header.Set("Origin", scheme+c.host)
		got := w.do(r)
		must.Equal(t, got.Code, 303, c.host)
		must.Equal(t, len(got.Result().Cookies()), 1, c.host)
		cookie := got.Result().Cookies()[0]
		check.Equal(t, cookie.Name, c.name, c.host)
		check.Equal(t, cookie.Secure, c.secure, c.host)
		check.Equal(t, cookie.HttpOnly, true, c.host)
		check.Equal(t, cookie.SameSite, http.SameSiteStrictMode, c.host)
		check.Equal(t, cookie.Path, "/", c.host)
		check.Equal(t, cookie.Domain, "", c.host)
		check.Equal(t, cookie.MaxAge == 0 && cookie.Expires.IsZero(), true, "a session cookie", c.host)
		check.Equal(t, len(cookie.Value), 43, "256 bits", c.host)
		secrets(t, got.Header().Get("Set-Cookie"), c.host)
	}
}

// An idle session ends, and each ends some day.
func TestSessionsEnd(t *testing.T) {
	w := newWorld(t, nil)
	v := w.signIn(token)
	status := func(after time.Duration, path string) int {
		w.now = w.now.Add(after)
		return v.get(path).Code
	}
	check.Equal(t, status(12*time.Hour-time.Second, "/"), 200, "before it is idle for too long")
	check.Equal(t, status(12*time.Hour-time.Second, "/"), 200, "it was used meanwhile")
	check.Equal(t, status(12*time.Hour, "/"), 303, "it was not used")
	check.Equal(t, status(-12*time.Hour, "/"), 303, "it has ended for good")
	v = w.signIn(token)
	for range 13 {
		must.Equal(t, status(12*time.Hour, "/jobs"), 303)
		v = w.signIn(token)
	}
	for begun := w.now; w.now.Sub(begun) < 7*24*time.Hour-11*time.Hour; {
		must.Equal(t, status(11*time.Hour, "/"), 200, "after", w.now.Sub(begun))
	}
	check.Equal(t, status(11*time.Hour, "/"), 303, "after seven days")
}

// What the script of an open page asks for is no use of a session, and does not take what an
// action has said.
func TestAnOpenPage(t *testing.T) {
	w := newWorld(t, nil)
	v := w.signIn(token)
	script := func(method, path, dest string) int {
		r := v.with(w.request(method, path, nil))
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Sec-Fetch-Dest", dest)
		return w.do(r).Code
	}
	must.Equal(t, v.post("/do/resume", "job", "trending").Code, 303)
	w.now = w.now.Add(11 * time.Hour)
	check.Equal(t, script(http.MethodGet, "/", "empty"), 200)
	check.Equal(t, script(http.MethodHead, "/", "document"), 200)
	check.Equal(t, script(http.MethodGet, "/assets/page.css", "style"), 200)
	w.now = w.now.Add(time.Hour - time.Second)
	check.Contains(t, v.get("/").Body.String(), `said="trending was not paused."`)
	w.now = w.now.Add(11 * time.Hour)
	check.Equal(t, script(http.MethodGet, "/", "empty"), 200)
	w.now = w.now.Add(time.Hour)
	check.Equal(t, v.get("/").Code, 303, "it was idle for twelve hours")
	v = w.signIn(token)
	w.now = w.now.Add(11 * time.Hour)
	check.Equal(t, v.post("/do/resume", "job", "trending").Code, 303)
	w.now = w.now.Add(11 * time.Hour)
	check.Equal(t, v.get("/").Code, 200, "an action is a use")
}

// Of too many sessions the oldest ends.
func TestMostSessions(t *testing.T) {
	w := newWorld(t, nil)
	first := w.signIn(token)
	w.now = w.now.Add(time.Second)
	second := w.signIn(token)
	for range 998 {
		w.now = w.now.Add(time.Millisecond)
		w.signIn(readToken)
	}
	check.Equal(t, first.get("/").Code, 200)
	w.signIn(token)
	check.Equal(t, first.get("/").Code, 303)
	check.Equal(t, second.get("/").Code, 200)
}

// An id that the browser sends is never taken over: who has planted it does not know the
// session's. Signing in again ends the session before.
func TestFixation(t *testing.T) {
	w := newWorld(t, nil)
	r := w.request(http.MethodPost, "/login", url.Values{"token": {token}})
	planted := strings.Repeat("A", 43)
	r.AddCookie(&http.Cookie{Name: "quotactl-9090", Value: planted})
	got := w.do(r)
	must.Equal(t, got.Code, 303)
	id := got.Result().Cookies()[0].Value
	check.Equal(t, id == planted, false)
	r = w.request(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: "quotactl-9090", Value: planted})
	check.Equal(t, w.do(r).Code, 303, "the planted id")

	before := w.signIn(readToken)
	got = before.post("/login", "token", token)
	must.Equal(t, got.Code, 303)
	check.Equal(t, got.Result().Cookies()[0].Value == before.cookie.Value, false)
	check.Equal(t, before.get("/").Code, 303, "the session before")
}

// Signing out ends the session on the server, and has the browser forget it.
func TestSignOut(t *testing.T) {
	w := newWorld(t, nil)
	v, other := w.signIn(token), w.signIn(token)
	got := v.post("/logout")
	must.Equal(t, got.Code, 303)
	check.Equal(t, got.Header().Get("Location"), "/")
	gone := got.Result().Cookies()[0]
	check.Equal(t, gone.Name, v.cookie.Name)
	check.Equal(t, gone.Value, "")
	check.Equal(t, gone.MaxAge, -1)
	check.Equal(t, v.get("/").Code, 303)
	check.Equal(t, v.post("/do/resume", "job", "trending").Code, 403)
	check.Equal(t, other.get("/").Code, 200, "another session")
	check.Equal(t, v.post("/logout").Code, 303, "once more")
}

// Each session has a CSRF token of its own, which is not its id.
func TestCSRF(t *testing.T) {
	w := newWorld(t, nil)
	v, other := w.signIn(token), w.signIn(token)
	check.Equal(t, v.csrf == other.csrf, false)
	check.Equal(t, v.csrf == v.cookie.Value, false)
	check.Equal(t, len(v.csrf), 43)
	right := v.csrf
	for _, csrf := range []string{"", other.csrf, right[1:], right + "x", v.cookie.Value} {
		v.csrf = csrf
		for _, path := range []string{"/do/trigger", "/do/withdraw", "/do/pause", "/do/resume", "/do/cancel", "/do/lock", "/do/unlock", "/logout"} {
			shows(t, v.post(path, "job", "trending", "note", "n", "budget", "shop/main", "for", "1h"), 403, "old_form", path, csrf)
		}
	}
	check.Equal(t, w.site.changed, 0)
	v.csrf = right
	check.Equal(t, v.post("/do/resume", "job", "trending").Code, 303)
}
