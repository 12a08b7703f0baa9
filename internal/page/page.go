// Package page serves the pages that show budgets, jobs, runs, plans and alerts in a browser. They
// are made on the server and readable without script; a script of the site's own replaces what has
// changed on an open page. The pages only look: where the visitor may act they have forms, whose
// paths under /do/ another handler serves.
//
// Numbers are read by package look, as for the command line. Each kind is read once and shared by
// all open pages, and every page says how old its numbers are.
package page

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/internal/look"
)

// Options configure a Site.
type Options struct {
	// Reader reads by the configuration in force.
	Reader func() *look.Reader
	// Visitor says who asks for a page; nil: one who may only look.
	Visitor func(*http.Request) Visitor
	Now     func() time.Time
	Log     *slog.Logger
	Version string
}

// Visitor is who asks for a page.
type Visitor struct {
	MayAct   bool   // forms for actions are shown
	CSRF     string // the token that each form sends as "csrf"; empty where MayAct is false
	SignedIn bool   // "Sign out" is shown, which is POST /logout with csrf
	Token    bool   // signing in is possible: "Sign in" is shown, which leads to /login, unless SignedIn
	Said     string // what the last action did: shown once, on top
}

// Site is an http.Handler for the paths that it [Site.Serves]. It is safe for concurrent use.
type Site struct {
	o         Options
	templates map[string]*template.Template
	assets    map[string]asset
	shelf     *shelf
	events    *events
	// working is what open pages and looks for changes have cost since the last look, in ns.
	working atomic.Int64
}

// New makes a Site.
func New(o Options) *Site {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Visitor == nil {
		o.Visitor = func(*http.Request) Visitor { return Visitor{} }
	}
	s := &Site{o: o, assets: readAssets(), events: newEvents()}
	s.templates = readTemplates(s.assets)
	base, stop := context.WithCancel(context.Background())
	s.shelf = &shelf{
		base: base, stop: stop, now: o.Now, slow: make(chan struct{}, 1), books: map[string]*book{},
		tell: s.events.tell,
		work: s.worked,
		log:  func(what string, err error) { s.unread(slog.LevelWarn, what, err) },
	}
	return s
}

// unread logs that something could not be read.
func (s *Site) unread(level slog.Level, what string, err error) {
	if _, mistake := errors.AsType[*panicked](err); mistake {
		level = slog.LevelError
	}
	s.o.Log.Log(context.Background(), level, "what a page shows could not be read", "what", what, "error", err)
}

// Changed has all pages read anew what they show: after an action, so that the next page shows
// what it did.
func (s *Site) Changed() {
	s.shelf.changed()
	s.events.tell()
}

// pages are the pages by their path.
var pages = map[string]func(*visit) sheet{
	"/":       (*visit).home,
	"/budget": (*visit).budget,
	"/jobs":   (*visit).jobs,
	"/job":    (*visit).job,
	"/runs":   (*visit).runs,
	"/plan":   (*visit).plan,
	"/why":    (*visit).why,
	"/alerts": (*visit).alerts,
}

// eventsPath is that of the stream of changes.
const eventsPath = "/events"

// Serves reports whether a path is one of the site's.
func (s *Site) Serves(path string) bool {
	_, isAsset := s.assets[path]
	return pages[path] != nil || isAsset || path == eventsPath
}

// ServeHTTP implements http.Handler. It serves GET and HEAD. The header fields that keep other
// sites out and harden every answer are those of whoever stands before the site.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the pages are read with GET", http.StatusMethodNotAllowed)
		return
	}
	if file, ok := s.assets[r.URL.Path]; ok {
		file.serve(w, r)
		return
	}
	if r.URL.Path == eventsPath {
		s.stream(w, r)
		return
	}
	show := pages[r.URL.Path]
	if show == nil {
		http.NotFound(w, r)
		return
	}
	began := time.Now()
	v := s.visit(r)
	s.answer(w, v, show(v))
	if v.live { // readings are counted where they are made
		s.worked(time.Since(began) - v.waited)
	}
}

// answer renders a page. It is rendered whole before anything is sent.
func (s *Site) answer(w http.ResponseWriter, v *visit, show sheet) {
	var body bytes.Buffer
	if err := s.templates[show.template].ExecuteTemplate(&body, "layout", v.frame(show)); err != nil {
		s.o.Log.Error("a page could not be made", "path", v.r.URL.Path, "error", err)
		http.Error(w, "this page could not be made; the daemon's log says why", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(cmp.Or(show.status, http.StatusOK))
	_, _ = w.Write(body.Bytes()) // an error means that the client has left
}

// SignIn answers with the form that sends a token to POST /login as "token", with the path to
// return to, which the request has in its query, as "back". wrong says what was wrong with the last try; empty: there was none.
func (s *Site) SignIn(w http.ResponseWriter, r *http.Request, status int, wrong string) {
	v := s.visit(r)
	back := r.URL.Query().Get("back")
	if !local(back) {
		back = "/"
	}
	s.answer(w, v, sheet{template: "signin", title: "Sign in", status: status, body: signIn{Wrong: wrong, Back: back}})
}

// signIn is the form to sign in.
type signIn struct{ Wrong, Back string }

// local reports whether a path to return to leads to this site.
func local(path string) bool {
	return len(path) > 0 && path[0] == '/' && (len(path) == 1 || path[1] != '/' && path[1] != '\\')
}
