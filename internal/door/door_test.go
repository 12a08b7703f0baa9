package door_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/door"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
)

// Which requests the door lets in. Fields are of the header; an empty value
// takes one out.
func TestWhoComesIn(t *testing.T) {
	type fields = map[string]string
	const (
		signIn = "sign in at /login"
		page   = "page /"
	)
	link := fields{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
	sibling := fields{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
	with := func(base, more fields) fields {
		all := fields{}
		for _, one := range []fields{base, more} {
			for name, value := range one {
				all[name] = value
			}
		}
		return all
	}
	none := fields{"Origin": "", "Sec-Fetch-Site": ""}
	open := func(o *door.Options) { o.Tokens, o.AllowActions = serve.Tokens{}, false }
	reads := func(o *door.Options) { o.AllowActions = false }
	named := func(o *door.Options) { o.Loopback, o.Certificate = false, certificate(t) }
	socket := func(o *door.Options) { o.Loopback = false }
	for _, c := range []struct {
		name         string
		options      func(*door.Options)
		method, path string
		header       fields
		session      string // the token it was made with
		status       int
		part         string // of the body or Location
	}{
		// Without a token everybody on this machine may look, and nobody may act.
		{"open: a page", open, "GET", "/", nil, "", 200, `page / act=false signed_in=false token=false csrf="" said=""`},
		{"open: a page's head", open, "HEAD", "/jobs", nil, "", 200, ""},
		{"open: a link", open, "GET", "/jobs", link, "", 200, "page /jobs"},
		{"open: assets", open, "GET", "/assets/page.css", nil, "", 200, ""},
		{"open: another host", open, "GET", "/", fields{"Host": "evil.example:9090"}, "", 403, "not_local"},
		{"open: a frame", open, "GET", "/", with(link, fields{"Sec-Fetch-Dest": "iframe"}), "", 403, "not_local"},
		{"open: the form to sign in", open, "GET", "/login", nil, "", 303, "/"},
		{"open: signing in", open, "POST", "/login", nil, "", 403, "no_action"},
		{"open: an action", open, "POST", "/do/trigger", nil, "", 403, "no_action"},
		{"open: signing out", open, "POST", "/logout", nil, "", 303, ""},

		// A token asks for a session, or to be sent.
		{"no session", nil, "GET", "/", nil, "", 303, "/login?back=%2F"},
		{"no session, of a job", nil, "GET", "/job?name=trending", nil, "", 303, "/login?back=%2Fjob%3Fname%3Dtrending"},
		{"no session: events", nil, "GET", "/events", nil, "", 401, "no_token"},
		{"no session: assets", nil, "GET", "/assets/page.css", nil, "", 200, "page"},
		{"no session: the form", nil, "GET", "/login?back=/jobs", nil, "", 200, `back="/jobs"`},
		{"no session: an action", nil, "POST", "/do/pause", nil, "", 403, signIn},
		{"a session", nil, "GET", "/", nil, token, 200, "page / act=true signed_in=true token=true"},
		{"a session: the form", nil, "GET", "/login?back=/jobs", nil, token, 303, "/jobs"},
		{"a reader's session", nil, "GET", "/jobs", nil, readToken, 200, "page /jobs act=false signed_in=true token=true"},
		{"a reader's session: an action", nil, "POST", "/do/pause", nil, readToken, 403, "no_action"},
		{"a session without actions", reads, "GET", "/", nil, token, 200, "page / act=false"},
		{"an action without actions", reads, "POST", "/do/pause", nil, token, 403, "--allow-actions"},
		{"a forged session", nil, "GET", "/", fields{"Cookie": "quotactl-9090=AAAA"}, "", 303, "/login?"},
		{"a bearer", nil, "GET", "/", fields{"Authorization": "Bearer " + token}, "", 200, `page / act=false signed_in=false token=true csrf=""`},
		{"a bearer who reads", nil, "GET", "/", fields{"Authorization": "Bearer " + readToken}, "", 200, "page / act=false"},
		{"a wrong bearer", nil, "GET", "/", fields{"Authorization": "Bearer " + token + "x"}, "", 401, "no_token"},
		{"a bearer: an action", nil, "POST", "/do/pause", fields{"Authorization": "Bearer " + token}, "", 403, signIn},
		{"credentials of another server, and a session", nil, "GET", "/", fields{"Authorization": "Basic eDp5"}, token, 200, page},

		// Other sites may link to a page, and nothing else.
		{"typed", nil, "GET", "/", fields{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, token, 200, page},
		{"an own link", nil, "GET", "/jobs", fields{"Sec-Fetch-Site": "same-origin"}, token, 200, "page /jobs"},
		{"another port's link", nil, "GET", "/jobs", sibling, token, 200, "page /jobs"},
		{"another port's link, no session", nil, "GET", "/jobs", sibling, "", 303, "/login?back=%2Fjobs"},
		{"another site's link, no cookie", nil, "GET", "/jobs", link, "", 200, `content="0; url=/jobs?arrived=1"`},
		{"another site's link to the form", nil, "GET", "/login?back=/jobs", link, "", 200, `content="0; url=/login?arrived=1&amp;back=%2Fjobs"`},
		{"another site's link that has arrived", nil, "GET", "/jobs?arrived=1", link, "", 401, `back="/jobs"`},
		{"another site's link with the cookie", nil, "GET", "/jobs", link, token, 200, "page /jobs"},
		{"arrived", nil, "GET", "/job?name=x&arrived=1", fields{"Sec-Fetch-Site": "same-origin"}, token, 303, "/job?name=x"},
		{"arrived, no session", nil, "GET", "/job?name=x&arrived=1", fields{"Sec-Fetch-Site": "same-origin"}, "", 303, "/login?back=%2Fjob%3Fname%3Dx"},
		{"a frame", nil, "GET", "/", with(link, fields{"Sec-Fetch-Dest": "iframe"}), token, 403, "not_local"},
		{"an embed", nil, "GET", "/", with(link, fields{"Sec-Fetch-Dest": "embed"}), token, 403, "not_local"},
		{"an object of another port", nil, "GET", "/", with(sibling, fields{"Sec-Fetch-Dest": "object"}), token, 403, "not_local"},
		{"an image", nil, "GET", "/", with(link, fields{"Sec-Fetch-Dest": "image", "Sec-Fetch-Mode": "no-cors"}), token, 403, "not_local"},
		{"an image's document", nil, "GET", "/", with(link, fields{"Sec-Fetch-Mode": "no-cors"}), token, 403, "not_local"},
		{"a script's request", nil, "GET", "/", fields{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, token, 403, "not_local"},
		{"another port's script", nil, "GET", "/", fields{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, token, 403, "not_local"},
		{"a script's request with Origin only", nil, "GET", "/", fields{"Origin": "https://evil.example"}, token, 403, "not_local"},
		{"an own script's request with Origin", nil, "GET", "/", fields{"Origin": "http://" + home}, token, 200, page},
		{"a head from elsewhere", nil, "HEAD", "/", link, token, 403, ""},
		{"a link to events", nil, "GET", "/events", link, token, 403, "not_local"},
		{"a link to an asset", nil, "GET", "/assets/page.css", link, token, 403, "not_local"},
		{"a link to signing out", nil, "GET", "/logout", link, token, 403, "not_local"},
		{"a link to an action", nil, "GET", "/do/pause", link, token, 403, "not_local"},
		{"a word that browsers do not say", nil, "GET", "/", fields{"Sec-Fetch-Site": "elsewhere"}, token, 403, "not_local"},
		{"another host", nil, "GET", "/", fields{"Host": "evil.example"}, token, 403, "not_local"},
		{"this machine by number", nil, "GET", "/login", fields{"Host": "127.0.0.1:9090"}, "", 200, signIn},

		// A POST must say that it comes from an own page.
		{"a form", nil, "POST", "/do/resume", nil, token, 403, "old_form"}, // it has no csrf
		{"a form of an old browser", nil, "POST", "/do/resume", fields{"Sec-Fetch-Site": ""}, token, 403, "old_form"},
		{"a form without Origin", nil, "POST", "/do/resume", fields{"Origin": ""}, token, 403, "old_form"},
		{"a form that says nothing", nil, "POST", "/do/resume", none, token, 403, "not_local"},
		{"a form from elsewhere", nil, "POST", "/do/resume", fields{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, token, 403, "not_local"},
		{"a form from elsewhere, old browser", nil, "POST", "/do/resume", fields{"Origin": "https://evil.example", "Sec-Fetch-Site": ""}, token, 403, "not_local"},
		{"a form of nobody", nil, "POST", "/do/resume", fields{"Origin": "null"}, token, 403, "not_local"},
		{"a form of another port", nil, "POST", "/do/resume", fields{"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}, token, 403, "not_local"},
		{"a form of another port, old browser", nil, "POST", "/do/resume", fields{"Origin": "http://localhost:3000", "Sec-Fetch-Site": ""}, token, 403, "not_local"},
		{"a form of another scheme", nil, "POST", "/do/resume", fields{"Origin": "https://" + home}, token, 403, "not_local"},
		{"a form that was typed", nil, "POST", "/do/resume", fields{"Sec-Fetch-Site": "none"}, token, 403, "not_local"},
		{"a form as a link", nil, "POST", "/do/resume", with(link, fields{"Origin": ""}), token, 403, "not_local"},
		{"signing in from elsewhere", nil, "POST", "/login", fields{"Origin": "https://evil.example"}, "", 403, "not_local"},
		{"signing in, saying nothing", nil, "POST", "/login", none, "", 403, "not_local"},
		{"signing out from elsewhere", nil, "POST", "/logout", fields{"Sec-Fetch-Site": "cross-site"}, token, 403, "not_local"},
		{"signing out without csrf", nil, "POST", "/logout", nil, token, 403, "old_form"},
		{"JSON", nil, "POST", "/do/pause", fields{"Content-Type": "application/json"}, token, 415, "media_type"},
		{"a form with a file", nil, "POST", "/login", fields{"Content-Type": "multipart/form-data; boundary=x"}, "", 415, "media_type"},
		{"no type", nil, "POST", "/login", fields{"Content-Type": ""}, "", 415, "media_type"},

		{"a method of a page", nil, "POST", "/jobs", nil, token, 405, "method"},
		{"a method of an action", nil, "GET", "/do/pause", nil, token, 405, "method"},
		{"a method of signing out", nil, "GET", "/logout", nil, token, 405, "method"},
		{"a method of signing in", nil, "PUT", "/login", fields{"Sec-Fetch-Site": "same-origin"}, token, 405, "method"},
		{"an action that there is not", nil, "POST", "/do/forget", nil, token, 404, "no_path"},

		// On other addresses Host is a name of the certificate, or the address itself.
		{"the certificate's name", named, "GET", "/", nil, token, 200, page},
		{"another name", named, "GET", "/", fields{"Host": "evil.example:9090"}, token, 403, "not_local"},
		{"localhost", named, "GET", "/", fields{"Host": "localhost:9090"}, token, 403, "not_local"},
		{"another address", named, "GET", "/", fields{"Host": "192.0.2.9:9090"}, token, 403, "not_local"},
		{"no host", named, "GET", "/", fields{"Host": ""}, token, 403, "not_local"},
		{"a form over TLS", named, "POST", "/do/resume", nil, token, 403, "old_form"},
		{"a form without TLS", named, "POST", "/do/resume", fields{"Origin": "http://127.0.0.1:9090"}, token, 403, "not_local"},

		// A Unix socket is behind a server with a name of its own.
		{"socket: any host", socket, "GET", "/login", fields{"Host": "quota.example"}, "", 200, signIn},
		{"socket: a form over TLS", socket, "POST", "/logout", fields{"Host": "quota.example", "Origin": "https://quota.example"}, "", 303, ""},
		{"socket: a form from elsewhere", socket, "POST", "/logout", fields{"Host": "quota.example", "Origin": "https://evil.example"}, "", 403, "not_local"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.options)
			var form url.Values
			if c.method == http.MethodPost {
				form = url.Values{}
			}
			r := w.request(c.method, c.path, form)
			for name, value := range c.header {
				switch {
				case name == "Host":
					r.Host = value
				case value == "":
					r.Header.Del(name)
				default:
					r.Header.Set(name, value)
				}
			}
			if c.session != "" {
				w.signIn(c.session).with(r)
			}
			got := w.do(r)
			if c.status == http.StatusSeeOther && c.method == http.MethodGet {
				check.Equal(t, got.Code, c.status)
				check.Contains(t, got.Header().Get("Location"), c.part)
			} else {
				shows(t, got, c.status, c.part)
			}
			hardened(t, got)
			if said := got.Header().Get("Location"); strings.Contains(said, "arrived") {
				t.Errorf("it leads to %s", said)
			}
			check.Equal(t, w.site.changed, 0, "actions")
		})
	}
}

// hardened checks what every answer has.
func hardened(t testing.TB, got *httptest.ResponseRecorder) {
	t.Helper()
	for name, part := range map[string]string{
		"Content-Security-Policy": "frame-ancestors 'none'", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "X-Content-Type-Options": "nosniff",
		"Permissions-Policy": "camera=()", "Cache-Control": "no-store",
	} {
		check.Contains(t, got.Header().Get(name), part, name)
	}
	check.Equal(t, got.Header().Get("Strict-Transport-Security"), "")
	check.Equal(t, len(got.Header()["Access-Control-Allow-Origin"]), 0)
}

// Several values of one field are refused: servers and browsers may take different ones.
func TestSeveralFields(t *testing.T) {
	w := newWorld(t, nil)
	for _, field := range []string{"Origin", "Sec-Fetch-Site"} {
		r := w.request(http.MethodPost, "/login", url.Values{"token": {token}})
		r.Header.Add(field, r.Header.Get(field))
		shows(t, w.do(r), 403, "not_local", field)
	}
	v := w.signIn(token)
	r := v.with(w.request(http.MethodGet, "/", nil))
	r.AddCookie(&http.Cookie{Name: v.cookie.Name, Value: "planted"})
	shows(t, w.do(r), 303, "", "two cookies")
	r = w.request(http.MethodPost, "/login", url.Values{"token": {token}})
	r.Header.Add("Content-Type", "text/plain")
	shows(t, w.do(r), 415, "media_type")
}

// On another address than loopback the listening address is a name of the daemon, too, whatever
// the certificate has.
func TestListeningAddress(t *testing.T) {
	w := newWorld(t, func(o *door.Options) { o.Loopback, o.Certificate = false, certificate(t) })
	v := w.signIn(token)
	for host, status := range map[string]int{
		"192.0.2.7:9090": 200, "192.0.2.7": 200, "[2001:db8::7]:9090": 403, "192.0.2.8:9090": 403, "192.0.2.7.evil.example:9090": 403, "127.0.0.1:9090": 200, "localhost:9090": 403,
	} {
		r := v.with(w.request(http.MethodGet, "/", nil))
		r.Host = host
		at := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 9090}
		check.Equal(t, w.do(r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, at))).Code, status, host)
	}
}

// A link from a chat opens the page: the page that the browser gets first opens it once more,
// and never again, whatever the browser says then.
func TestALinkArrives(t *testing.T) {
	w := newWorld(t, nil)
	v := w.signIn(token)
	open := func(path, site string, with *visitor) *httptest.ResponseRecorder {
		r := w.request(http.MethodGet, path, nil)
		r.Header.Set("Sec-Fetch-Site", site)
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		r.Header.Set("Sec-Fetch-Dest", "document")
		if with != nil {
			with.with(r)
		}
		return w.do(r)
	}
	first := open(`/job?name="><b>&b=1`, "cross-site", nil)
	must.Equal(t, first.Code, 200)
	_, rest, _ := strings.Cut(first.Body.String(), `content="0; url=`)
	again, _, _ := strings.Cut(rest, `"`)
	again = strings.ReplaceAll(again, "&amp;", "&")
	must.Equal(t, again, "/job?arrived=1&b=1&name=%22%3E%3Cb%3E")
	check.Equal(t, strings.Contains(first.Body.String(), "<b>"), false, "it is escaped")

	clean := open(again, "same-origin", v)
	must.Equal(t, clean.Code, 303)
	must.Equal(t, clean.Header().Get("Location"), "/job?b=1&name=%22%3E%3Cb%3E")
	shows(t, open(clean.Header().Get("Location"), "same-origin", v), 200, "page /job?b=1")

	for _, site := range []string{"same-origin", "same-site", "none"} {
		got := open(again, site, nil)
		check.Equal(t, got.Code, 303, "signed out,", site)
		check.Equal(t, got.Header().Get("Location"), "/login?back=%2Fjob%3Fb%3D1%26name%3D%2522%253E%253Cb%253E", "signed out,", site)
		shows(t, open(got.Header().Get("Location"), site, nil), 200, `sign in at /login back="/job?b=1&name=%22%3E%3Cb%3E"`, site)
	}
	shows(t, open(again, "cross-site", nil), 401, "sign in", "signed out, and the browser still says cross-site")
	shows(t, open(again, "cross-site", v), 200, "page /job?b=1&name=%22%3E%3Cb%3E act=true", "the browser still says cross-site")
}

// At most so many requests are under way; event streams are not among them.
func TestPagesUnderWay(t *testing.T) {
	w := newWorld(t, func(o *door.Options) { o.UnderWay = 2 })
	v := w.signIn(token)
	w.site.hold = make(chan struct{})
	over := make(chan int, 3)
	for range 2 {
		go func() { over <- v.get("/").Code }()
		<-w.site.came
	}
	busy := v.get("/")
	shows(t, busy, 503, "busy")
	check.Equal(t, busy.Header().Get("Retry-After"), "1")
	go func() { over <- v.get("/events").Code }()
	<-w.site.came
	close(w.site.hold)
	check.Equal(t, <-over, 200)
	check.Equal(t, <-over, 200)
}

// An event stream ends with its session: at once, or when it would end unless it is used.
func TestStreamsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(*visitor)
		after time.Duration
	}{
		"signed out":      {func(v *visitor) { check.Equal(t, v.post("/logout").Code, 303) }, 0},
		"signed in again": {func(v *visitor) { check.Equal(t, v.post("/login", "token", readToken).Code, 303) }, 0},
		"idle":            {func(*visitor) {}, 12 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				v := w.signIn(token)
				began := time.Now()
				over := make(chan int)
				go func() { over <- v.get("/events").Code }()
				<-w.site.came
				synctest.Wait()
				select {
				case <-over:
					t.Error("the stream has ended before its session")
				default:
				}
				c.end(v)
				<-over
				check.Equal(t, time.Since(began), c.after)
			})
		})
	}
}
