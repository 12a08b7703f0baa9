package door_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/door"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
)

// Wrong tokens are refused, and after ten of them all, until the oldest is a minute old. Open
// sessions do not notice.
func TestWrongTokens(t *testing.T) {
	w := newWorld(t, nil)
	open := w.signIn(token)
	try := func(with string) *httptest.ResponseRecorder {
		got := w.do(w.request(http.MethodPost, "/login", url.Values{"token": {with}, "back": {"/jobs"}}))
		if got.Code != 303 {
			check.Equal(t, len(got.Result().Cookies()), 0, "cookies")
			check.Contains(t, got.Body.String(), `back="/jobs"`)
		}
		return got
	}
	for i, wrong := range []string{"", "x", token + "x", token[1:], strings.ToUpper(token), "Bearer " + token, readToken + token, "ü", "a", "b"} {
		got := try(wrong)
		shows(t, got, 401, "neither the daemon's token nor its read token", wrong)
		check.Equal(t, got.Header().Get("WWW-Authenticate"), `Bearer realm="quotactl"`)
		w.now = w.now.Add(time.Second)
		if i < 9 {
			check.Equal(t, try(" "+token+" ").Code, 303, "the right one, pasted with spaces, counts for nothing")
		}
	}
	w.now = w.now.Add(time.Second / 2)
	got := try(token)
	shows(t, got, 429, "too many wrong tokens")
	check.Equal(t, got.Header().Get("Retry-After"), "50")
	check.Equal(t, open.get("/").Code, 200)
	w.now = w.now.Add(49 * time.Second)
	check.Equal(t, try(token).Code, 429)
	w.now = w.now.Add(time.Second / 2)
	check.Equal(t, try(token).Code, 303)
	check.Equal(t, try("wrong").Code, 401)
	check.Equal(t, try(token).Code, 429, "the others are younger")
	check.Equal(t, try(token).Code, 429)
	check.Equal(t, strings.Count(w.log.String(), "the token is wrong"), 11)
	check.Equal(t, strings.Count(w.log.String(), "too many wrong tokens"), 2, "once for each time that it begins")
	check.Contains(t, w.log.String(), "remote=127.0.0.1:54321")
	secrets(t, w.log.String(), "in the log")
}

// Without a read token nobody signs in with an empty one.
func TestNoReadToken(t *testing.T) {
	w := newWorld(t, func(o *door.Options) { o.Tokens = serve.NewTokens(token, "") })
	shows(t, w.do(w.request(http.MethodPost, "/login", url.Values{"token": {""}})), 401, "neither")
	shows(t, w.do(w.request(http.MethodPost, "/login", url.Values{})), 401, "neither")
	check.Equal(t, w.signIn(token).get("/").Code, 200)
}

// backs are where a form asks to lead, and where it leads.
var backs = map[string]string{
	"": "/", "/": "/", "/jobs": "/jobs", "/job?name=trending": "/job?name=trending", "/job?name=a%20b&x=1#top": "/job?name=a+b&x=1",
	"/jobs?arrived=1": "/jobs", "/login": "/", "/logout": "/", "/do/pause": "/", "/events": "/", "/assets/page.css": "/", "/elsewhere": "/", "/v1/status": "/",
	"//evil.example": "/", "//evil.example/jobs": "/", `/\evil.example`: "/", `\\evil.example`: "/", "https://evil.example/jobs": "/", "http:/jobs": "/",
	"javascript:alert(1)": "/", "jobs": "/", "?x": "/", "/jobs/../..//evil.example": "/", "/%2fjobs": "/", "/%6aobs": "/", "/jobs;x": "/", "/jobs?a;b": "/",
	"/.": "/", "/" + strings.Repeat("x", 3000): "/", "/jobs?" + strings.Repeat("x", 3000): "/", "/jobs?x=%": "/", "/%zz": "/", "///jobs": "/",
}

// A form leads to a page of the site, and nowhere else.
func TestBack(t *testing.T) {
	w := newWorld(t, nil)
	for asked, want := range backs {
		got := w.do(w.request(http.MethodPost, "/login", url.Values{"token": {token}, "back": {asked}}))
		must.Equal(t, got.Code, 303, asked)
		check.Equal(t, got.Header().Get("Location"), want, asked)
	}
	v := w.signIn(token)
	for asked, want := range backs {
		got := v.get("/login?" + url.Values{"back": {asked}}.Encode())
		must.Equal(t, got.Code, 303, asked)
		check.Equal(t, got.Header().Get("Location"), want, asked)
		got = v.post("/do/resume", "job", "trending", "back", asked)
		must.Equal(t, got.Code, 303, asked)
		check.Equal(t, got.Header().Get("Location"), want, asked)
	}
}

func FuzzBack(f *testing.F) {
	for asked := range backs {
		f.Add(asked)
	}
	const most = 16 << 10 // bytes of a form
	f.Add("/" + strings.Repeat("x", most))
	w := newWorld(f, nil)
	f.Fuzz(func(t *testing.T, asked string) {
		w.t = t
		form := url.Values{"token": {token}, "back": {asked}}
		got := w.do(w.request(http.MethodPost, "/login", form))
		if len(form.Encode()) > most {
			must.Equal(t, got.Code, http.StatusRequestEntityTooLarge)
			return
		}
		if got.Code == http.StatusBadRequest { // a control character
			return
		}
		must.Equal(t, got.Code, 303)
		to := got.Header().Get("Location")
		at := must.Get(url.Parse("http://localhost:9090/login"))(t)
		led := must.Get(at.Parse(to))(t)
		if led.Scheme != "http" || led.Host != "localhost:9090" || !w.site.Serves(led.Path) || led.Path == "/events" || strings.ContainsAny(to, "\\\r\n\t ") {
			t.Errorf("%q leads to %q", asked, to)
		}
	})
}

// However Host and Origin are written, a form is admitted only with the daemon's own.
func FuzzOrigin(f *testing.F) {
	for _, one := range [][2]string{
		{"localhost:9090", "http://localhost:9090"}, {"127.0.0.1", "http://127.0.0.1"}, {"[::1]:1", "http://[::1]:1"}, {"localhost:9090", "http://localhost:9090.evil.example"},
		{"evil.example", "http://evil.example"}, {"localhost@evil.example", "http://localhost@evil.example"}, {"localhost:9090", "null"}, {"localhost:9090", "HTTP://LOCALHOST:9090"},
		{"localhost:", "http://localhost:"}, {"localhost:80:80", "http://localhost:80:80"}, {"localhost.:1", "http://localhost.:1"}, {"", "http://"}, {"127.1:1", "http://127.1:1"},
		{"localhost:909\xa6", "http://localhost:909\xa6"}, {"::1", "http://::1"},
	} {
		f.Add(one[0], one[1])
	}
	w := newWorld(f, nil)
	f.Fuzz(func(t *testing.T, host, origin string) {
		w.t = t
		r := w.request(http.MethodPost, "/login", url.Values{"token": {token}})
		r.Host = host
		r.Header["Origin"] = []string{origin}
		got := w.do(r)
		if got.Code == 403 {
			return
		}
		must.Equal(t, got.Code, 303)
		from, err := url.Parse(origin)
		must.Do(t, err)
		if from.Scheme != "http" || !serve.IsLoopback(from.Hostname()) || !strings.EqualFold(from.Host, host) || from.User != nil {
			t.Errorf("a form of %q was admitted under %q", origin, host)
		}
	})
}
