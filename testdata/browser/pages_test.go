package browser

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
)

// onePage is a page of the daemon, and some of what it says in a rich world.
type onePage struct {
	path  string
	shows []string
}

// pages are all pages.
var pages = []onePage{
	{"/", []string{"youtube/key1", "github/bot", "shop/main", "quota increase pending, ask Ann"}},
	{"/budget?name=youtube/key1", []string{"youtube/key1", "daily", "pacific-day", "search", "nightly", "charts"}},
	{"/budget?name=github/bot", []string{"hour", "day", "month", "quarter", "search", "points", "at-once", "writes", "graphql", "abuse detection"}},
	{"/budget?name=shop/main", []string{"hour", "quota increase pending, ask Ann"}},
	{"/jobs", []string{"trending", "trends", "nightly", "charts.music", "report", "mirror", "orders", "its consumer is being moved until Friday"}},
	{"/job?name=trending", []string{"trending", "youtube/key1", "US", "CA"}},
	{"/job?name=report", []string{"report", "exit code 3"}},
	{"/job?name=mirror", []string{"mirror", "its consumer is being moved until Friday"}},
	{"/runs", []string{"trending", "trends", "report", "exit code 3"}},
	{"/plan", []string{"trends", "youtube/key1"}},
	{"/why", []string{"youtube/key1"}},
	{"/why?budget=youtube/key1&operation=search.list&job=trends", []string{"youtube/key1", "search.list", "trends"}},
	{"/alerts", []string{"team", "night"}},
}

// view is how a page is looked at.
type view struct {
	width int64
	dark  bool
}

func (v view) String() string { return fmt.Sprintf("at %d pixels, dark %t", v.width, v.dark) }

// Each page is sound at the width of a desk and of a phone, in light and in dark (in two of
// these four ways unless the effort is full): no error, no
// request to another host, nothing that the page's policy blocks, nothing wider than the
// window, nothing that axe finds, and all that can be used is reached by Tab. It is not wider
// than the narrowest window, either, to which a reader may have enlarged it.
func TestPages(t *testing.T) {
	w := rich(t)
	w.start()
	two := []view{{desk, false}, {phone, true}}
	found := map[string]faults{}
	for _, page := range pages {
		found[page.path] = faults{}
	}
	for _, v := range effort.Of(two, two, append(two, view{desk, true}, view{phone, false})) {
		b := newTab(t, w.host())
		b.size(v.width, v.dark)
		for _, page := range pages {
			b.visit(w.url+page.path, http.StatusOK)
			found[page.path].add(v.String(), b.inspect(v.width))
		}
	}
	b := newTab(t, w.host())
	b.size(narrow, false)
	for _, page := range pages {
		b.visit(w.url+page.path, http.StatusOK)
		if wide := b.wide(narrow); wide != "" {
			found[page.path].add(fmt.Sprintf("at %d pixels", narrow), []string{wide})
		}
		found[page.path].report(t, page.path)
	}
}

// faults are what is wrong with a page, each with the ways of looking at it that show it.
type faults map[string][]string

func (f faults) add(when string, list []string) {
	for _, fault := range list {
		f[fault] = append(f[fault], when)
	}
}

func (f faults) report(t *testing.T, path string) {
	t.Helper()
	for _, fault := range slices.Sorted(maps.Keys(f)) {
		t.Errorf("%s: %s\n\t%s", path, fault, strings.Join(f[fault], "; "))
	}
}

// Without script each page says the same.
func TestPagesWithoutScript(t *testing.T) {
	w := rich(t)
	w.start()
	b := newTab(t, w.host())
	for _, on := range []bool{true, false} {
		b.scripts(on)
		for _, page := range pages {
			b.visit(w.url+page.path, http.StatusOK)
			// What takes longer is read beside the page. A page that never says it fails below.
			for n := 0; n < 1000 && eval[bool](b, `!!document.querySelector(".busy")`); n++ {
				b.visit(w.url+page.path, http.StatusOK)
			}
			text := eval[string](b, "document.body.textContent")
			for _, words := range page.shows {
				check.Contains(t, text, words, page.path, "with scripts:", on)
			}
		}
	}
	b.clean("without script")
}

// An address without a page says so in words, and is no error of the server.
func TestNoSuchPage(t *testing.T) {
	w := rich(t)
	w.start()
	for _, path := range []string{"/budget?name=youtube/key2", "/job?name=nobody"} {
		b := newTab(t, w.host())
		b.size(phone, false)
		b.visit(w.url+path, http.StatusNotFound)
		for _, fault := range b.inspect(phone) {
			if !strings.Contains(fault, "404") { // the browser logs the status of the page itself
				t.Error(path, fault)
			}
		}
		check.Equal(t, len(b.text()) > 0, true, path, "says something")
	}
}
