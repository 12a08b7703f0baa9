package door

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/internal/serve"
)

// Wrong tokens are few: a person types or pastes one.
const (
	mostTries = 10
	triesFor  = time.Minute
)

// tries bounds how many wrong tokens are tried, by all together: an address says little about
// who tries.
type tries struct {
	now func() time.Time

	mu   sync.Mutex  // guards all below
	made []time.Time // the wrong ones of the last minute and those that are being checked, oldest first
	told bool        // since the last try it was logged that there were too many
}

// begin counts a try as a wrong one. If there were too many, it says how long to wait, and
// whether this is the first that has to: only that one is worth a line of the log.
func (t *tries) begin() (wait time.Duration, first bool) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.made) > 0 && now.Sub(t.made[0]) >= triesFor {
		t.made = t.made[1:]
	}
	if len(t.made) >= mostTries {
		first, t.told = !t.told, true
		return triesFor - now.Sub(t.made[0]), first
	}
	t.made, t.told = append(t.made, now), false
	return 0, false
}

// right takes back the last try.
func (t *tries) right() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.made); n > 0 {
		t.made = t.made[:n-1]
	}
}

// noSession answers a request for a page without a session.
func (d *Door) noSession(w http.ResponseWriter, r *http.Request) {
	switch {
	case IsStream(r.URL.Path), len(r.Header["Authorization"]) > 0:
		serve.Refuse(w, "no_token", "sign in, or send this daemon's token or its read token as Authorization: Bearer TOKEN")
	case d.arrives(r):
		goOn(w, r)
	case fromElsewhere(r): // it has arrived, and the browser still says so: it is not sent any further
		d.askToken(w, r, http.StatusUnauthorized, r.URL.RequestURI(), "")
	default:
		redirect(w, signInAt(d.back(r.URL.RequestURI())))
	}
}

// signInAt is the address of the form that leads back to a page.
func signInAt(back string) string {
	return (&url.URL{Path: pathSignIn, RawQuery: url.Values{"back": {back}}.Encode()}).String()
}

// askToken answers with the form to sign in, which leads back to a page.
func (d *Door) askToken(w http.ResponseWriter, r *http.Request, status int, back, wrong string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="quotactl"`)
	}
	asked := r.Clone(r.Context())
	asked.RequestURI = signInAt(d.back(back))
	asked.URL, _ = url.Parse(asked.RequestURI) // it is right
	d.o.Site.SignIn(w, asked, status, wrong)
}

// mark is a query of a page that [goOn] has opened.
const mark = "arrived"

// arrives reports whether a link of another site has opened a page. The browser has then left
// out the session's cookie, which is SameSite=Strict, so it is not known yet whether there is a
// session.
func (d *Door) arrives(r *http.Request) bool {
	return fromElsewhere(r) && !r.URL.Query().Has(mark)
}

// fromElsewhere reports whether another site has made the browser send a request.
func fromElsewhere(r *http.Request) bool { return r.Header.Get("Sec-Fetch-Site") == "cross-site" }

// goOn answers with a page that opens the same page once more: the browser then sends the
// cookie. The mark keeps it from doing so again, whatever the browser says.
func goOn(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	query.Set(mark, "1")
	to := html.EscapeString((&url.URL{Path: r.URL.Path, RawQuery: query.Encode()}).String())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprintf(w, `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="0; url=%s">
<link rel="icon" href="data:,">
<title>quotactl</title>
<p><a href="%s">Open the page</a></p>
</html>
`, to, to) // an error means that the client has left
}

// withoutMark is a request without the mark in its URL.
func withoutMark(r *http.Request) *http.Request {
	query := r.URL.Query()
	if !query.Has(mark) {
		return r
	}
	query.Del(mark)
	clean := r.Clone(r.Context())
	clean.URL.RawQuery = query.Encode()
	clean.RequestURI = clean.URL.RequestURI()
	return clean
}

// redirects sends a browser from a page with the mark to the page's own address: the mark is not
// to be in a bookmark, or in a link that somebody passes on.
func (d *Door) redirects(w http.ResponseWriter, r *http.Request) bool {
	if !r.URL.Query().Has(mark) || fromElsewhere(r) {
		return false
	}
	redirect(w, d.back(r.URL.RequestURI()))
	return true
}

func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// mostBack is how long the address of a page may be.
const mostBack = 2048

// back is where a form leads: a page of the site, else the first page.
func (d *Door) back(to string) string {
	const first = "/"
	if len(to) > mostBack || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.HasPrefix(to, `/\`) {
		return first
	}
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || u.User != nil || u.RawPath != "" {
		return first
	}
	if strings.HasPrefix(u.Path, pathAssets) || IsStream(u.Path) || !d.o.Site.Serves(u.Path) {
		return first
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return first
	}
	query.Del(mark)
	return (&url.URL{Path: u.Path, RawQuery: query.Encode()}).String()
}

// signInForm serves GET /login.
func (d *Door) signInForm(w http.ResponseWriter, r *http.Request) {
	back := d.back(r.URL.Query().Get("back"))
	switch {
	case !d.o.Tokens.Needed() || d.sessionOf(r) != nil:
		redirect(w, back)
	case d.arrives(r):
		goOn(w, r)
	default:
		d.askToken(w, r, http.StatusOK, back, "")
	}
}

// signIn serves POST /login. The session's id is always a new one: what the browser has sent may
// have been given to it by somebody else.
func (d *Door) signIn(w http.ResponseWriter, r *http.Request) {
	if !d.o.Tokens.Needed() {
		serve.Refuse(w, "no_action", "this daemon has no token: there is nothing to sign in to")
		return
	}
	f, ok := readForm(w, r)
	if !ok {
		return
	}
	back := f.text("back")
	if wait, first := d.tries.begin(); wait > 0 {
		seconds := int64((wait + time.Second - 1) / time.Second)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
		if first {
			d.o.Log.Warn("sign-ins are refused: there were too many wrong tokens", "remote", r.RemoteAddr)
		}
		d.askToken(w, r, http.StatusTooManyRequests, back, fmt.Sprintf("There were too many wrong tokens. Try again in %d seconds.", seconds))
		return
	}
	may := d.o.Tokens.Right(f.text("token"))
	if may == serve.NoRight {
		d.o.Log.Warn("a sign-in was refused: the token is wrong", "remote", r.RemoteAddr)
		d.askToken(w, r, http.StatusUnauthorized, back, "This is neither the daemon's token nor its read token.")
		return
	}
	d.tries.right()
	if before := d.sessionOf(r); before != nil {
		d.sessions.finish(before)
	}
	setCookie(w, r, d.sessions.begin(may))
	d.o.Log.Info("signed in on the page", "may_spend", may >= serve.MaySpend, "remote", r.RemoteAddr)
	redirect(w, d.back(back))
}

// signOut serves POST /logout.
func (d *Door) signOut(w http.ResponseWriter, r *http.Request) {
	f, ok := readForm(w, r)
	if !ok {
		return
	}
	if s := d.sessionOf(r); s != nil {
		if !s.own(f.text("csrf")) {
			refuseForm(w)
			return
		}
		d.sessions.finish(s)
		d.o.Log.Info("signed out on the page", "remote", r.RemoteAddr)
	}
	setCookie(w, r, "")
	redirect(w, "/")
}
