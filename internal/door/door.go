// Package door lets people in with a browser. A [Door] stands before the pages of a daemon and
// decides who may see them: it keeps other web sites out, signs people in with the daemon's
// token, and does what they ask of jobs and budgets, if the daemon allows that.
//
// A session's id is in a cookie, never the token. Sessions are kept in memory: they outlive a
// reload of the configuration, not the daemon.
package door

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/serve"
)

// DefaultUnderWay is how many requests for pages may be under way at once. Event streams do not
// count: the site bounds them.
const DefaultUnderWay = 64

// The paths that are the Door's own.
const (
	pathSignIn  = "/login"
	pathSignOut = "/logout"
	pathActions = "/do/"
)

// The paths of a [Site] other than pages. Assets hold nothing of budgets and jobs, so
// everybody may read them: the form to sign in needs them.
const (
	pathEvents = "/events"
	pathAssets = "/assets/"
)

// Site has the pages behind a Door. Serving them must change nothing: links of other web sites
// may open them.
type Site interface {
	http.Handler
	// Serves reports whether a path is one of the site's.
	Serves(path string) bool
	// SignIn answers with a form that posts token and back to /login. The request is for /login,
	// with back in its query; wrong says why the last try failed, and may be empty.
	SignIn(w http.ResponseWriter, r *http.Request, status int, wrong string)
	// Changed has the pages read anew what they show, after an action.
	Changed()
}

// Visitor is who looks at a page; see [VisitorOf].
type Visitor struct {
	MayAct   bool   // the page may offer actions
	CSRF     string // of the session, for its forms; empty: there is no session
	SignedIn bool   // there is a session, which can be signed out
	Token    bool   // the daemon has a token
	Said     string // what the visitor's last action did; shown once
}

// Options configure a Door.
type Options struct {
	Site   Site
	Tokens serve.Tokens
	// Loopback: the listener has a loopback address. Host must then name this machine.
	Loopback bool
	// Certificate is that of the listener: on other addresses than loopback, Host must be a
	// name that it is valid for. Nil: the listener has no TLS.
	Certificate *x509.Certificate
	// AllowActions lets people act who have signed in with the token that may spend.
	AllowActions bool
	// Reader has the jobs, the budgets and the store of the configuration in force.
	Reader func() *look.Reader
	// Machine is this machine's name, for the notes that actions leave.
	Machine string
	Log     *slog.Logger
	Now     func() time.Time
	// UnderWay is how many requests may be under way at once beside event streams; 0:
	// DefaultUnderWay.
	UnderWay int
}

// Door is an http.Handler. It is safe for concurrent use.
type Door struct {
	o        Options
	sessions *sessions
	tries    tries
	underWay chan struct{}
}

// New makes a Door.
func New(o Options) *Door {
	if o.UnderWay == 0 {
		o.UnderWay = DefaultUnderWay
	}
	return &Door{o: o, sessions: newSessions(o.Now), tries: tries{now: o.Now}, underWay: make(chan struct{}, o.UnderWay)}
}

// Serves reports whether a path is one of the Door's or the site's.
func (d *Door) Serves(path string) bool {
	return path == pathSignIn || path == pathSignOut || strings.HasPrefix(path, pathActions) || d.o.Site.Serves(path)
}

type visitorKey struct{}

// VisitorOf is the visitor of a request that a Door has handed to its site.
func VisitorOf(r *http.Request) Visitor {
	v, _ := r.Context().Value(visitorKey{}).(Visitor)
	return v
}

// IsStream reports whether a path is that of events, whose requests last.
func IsStream(path string) bool { return path == pathEvents }

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harden(w.Header())
	if !IsStream(r.URL.Path) {
		select {
		case d.underWay <- struct{}{}:
			defer func() { <-d.underWay }()
		default:
			serve.Refuse(w, "busy", "too many requests for pages are under way; try again in a moment")
			return
		}
	}
	if detail := d.foreign(r); detail != "" {
		serve.Refuse(w, "not_local", detail)
		return
	}
	path, reads := r.URL.Path, reading(r.Method)
	switch {
	case path == pathSignIn && reads:
		d.signInForm(w, r)
	case reads && d.o.Site.Serves(path):
		d.page(w, r)
	case r.Method == http.MethodPost && path == pathSignIn:
		d.signIn(w, r)
	case r.Method == http.MethodPost && path == pathSignOut:
		d.signOut(w, r)
	case r.Method == http.MethodPost && actions[path].do != nil:
		d.act(w, r, actions[path])
	case path == pathSignIn:
		serve.WrongMethod(w, serve.MethodsToRead+", "+http.MethodPost)
	case path == pathSignOut, actions[path].do != nil:
		serve.WrongMethod(w, http.MethodPost)
	case d.o.Site.Serves(path):
		serve.WrongMethod(w, serve.MethodsToRead)
	default:
		serve.Refuse(w, "no_path", "the page has no such action")
	}
}

// reading reports whether a method only reads.
func reading(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// page hands a request to the site, if its sender may look.
func (d *Door) page(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, pathAssets) {
		d.o.Site.ServeHTTP(w, r)
		return
	}
	if !d.o.Tokens.Needed() {
		d.show(w, r, Visitor{})
		return
	}
	if d.o.Tokens.Bearer(r) >= serve.MayLook {
		d.show(w, r, Visitor{Token: true})
		return
	}
	s := d.sessionOf(r)
	switch {
	case s == nil:
		d.noSession(w, r)
		return
	case IsStream(r.URL.Path):
		ctx, end := d.sessions.within(r.Context(), s)
		defer end()
		r = r.WithContext(ctx)
	}
	if d.redirects(w, r) {
		return
	}
	v := Visitor{MayAct: d.mayAct(s), CSRF: s.csrf, SignedIn: true, Token: true}
	if showsPage(r) {
		v.Said = d.sessions.takeSaid(s)
	}
	d.show(w, withoutMark(r), v)
}

// mayAct reports whether the visitor of a session may act.
func (d *Door) mayAct(s *session) bool { return d.o.AllowActions && s.may >= serve.MaySpend }

func (d *Door) show(w http.ResponseWriter, r *http.Request, v Visitor) {
	d.o.Site.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitorKey{}, v)))
}

// showsPage reports whether a person will read the answer. What has been said is then shown.
func showsPage(r *http.Request) bool {
	dest := r.Header.Get("Sec-Fetch-Dest")
	return r.Method == http.MethodGet && !IsStream(r.URL.Path) && (dest == "" || dest == "document")
}
