package page

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/quotactl/quotactl/internal/look"
)

// liveHeader marks the requests of the script of an open page.
const liveHeader = "Quotactl-Live"

// visitWaits bounds how long a page waits for its numbers, however many kinds it shows: then it
// says that they are being read. The server gives an answer more time than that.
const visitWaits = 10 * time.Second

// visit is one request for a page.
type visit struct {
	site    *Site
	r       *http.Request
	reader  *look.Reader
	now     time.Time
	visitor Visitor
	live    bool

	readings []reading
	waited   time.Duration // for readings: at most visitWaits in all
	pending  bool          // numbers are being read that the page has not
	problem  string        // why numbers are missing or old
}

// reading says when which numbers were read.
type reading struct {
	What string
	At   time.Time
}

func (s *Site) visit(r *http.Request) *visit {
	return &visit{
		site: s, r: r, reader: s.o.Reader(), now: s.o.Now().UTC(), visitor: s.o.Visitor(r), live: r.Header.Get(liveHeader) != "",
	}
}

// query is a parameter of the page's address, as it may be shown. No name has a character that may
// not.
func (v *visit) query(name string) string { return text(v.r.URL.Query().Get(name)) }

// take takes numbers from the shelf; what says in plain words which, and ok whether there are any.
func take[T any](v *visit, what, key string, t terms, read func(context.Context, *look.Reader) (T, error)) (value T, ok bool) {
	t.live = v.live
	left := max(0, visitWaits-v.waited)
	t.first, t.patient = min(t.first, left), min(t.patient, left)
	began := time.Now()
	got := v.site.shelf.get(v.r.Context(), key, t, v.reader, func(ctx context.Context, from *look.Reader) (any, error) { return read(ctx, from) })
	v.waited += time.Since(began)
	switch {
	case got.err != nil && got.known:
		v.problem = "Some of these numbers are old: " + cmp.Or(what, "what is newer") + " could not be read. " + sentence(got.err.Error())
	case got.err != nil:
		v.problem = "Not all could be read that belongs here. " + sentence(got.err.Error())
	case !got.known:
		v.pending = true
	}
	if !got.known {
		return value, false
	}
	v.readings = append(v.readings, reading{what, got.at})
	return got.value.(T), true
}

// sheet is what a page shows.
type sheet struct {
	template, title string
	place           string // of the page in the navigation, as a path
	status          int    // 0: 200
	body            any
}

// frame is what a page's layout is made of.
type frame struct {
	Title, Version, Store string
	Nav                   []navLink
	Visitor               Visitor
	Back                  string // the path of this page
	Stamp                 uint64 // of the events that it knows
	Now                   time.Time
	Readings              []reading // the first is that of the page's own numbers
	Pending               bool
	Problem               string
	Body                  any
}

type navLink struct {
	Path, Name string
	Here       bool
}

// frame completes a page.
func (v *visit) frame(show sheet) frame {
	f := frame{
		Title: show.title, Version: v.site.o.Version, Store: v.reader.URL, Visitor: v.visitor, Back: v.r.URL.RequestURI(), Stamp: v.site.events.stamp(),
		Now: v.now, Pending: v.pending, Problem: v.problem, Body: show.body,
	}
	if show.template == "signin" { // nothing leads there again
		f.Back, f.Visitor = "/", Visitor{}
		f.Version, f.Store = "", "" // whoever asks may not look yet
	}
	if !local(f.Back) {
		f.Back = "/"
	}
	for _, one := range []navLink{{Path: "/", Name: "Budgets"}, {Path: "/jobs", Name: "Jobs"}, {Path: "/runs", Name: "Runs"}, {Path: "/plan", Name: "Plan"}, {Path: "/why", Name: "Why"}, {Path: "/alerts", Name: "Alerts"}} {
		one.Here = one.Path == show.place
		f.Nav = append(f.Nav, one)
	}
	seen := map[string]bool{}
	for _, one := range v.readings {
		if !seen[one.What] {
			f.Readings = append(f.Readings, one)
		}
		seen[one.What] = true
	}
	return f
}

// missing is the page for what there is not.
func missing(place, what string) sheet {
	return sheet{template: "missing", title: "Not found", place: place, status: http.StatusNotFound, body: what}
}
