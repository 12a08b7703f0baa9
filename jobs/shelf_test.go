package jobs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// shelf is an upstream of pages that are asked for with conditions. Its tokens are
// the pages' numbers.
type shelf struct {
	t     *testing.T
	pages []int                            // the version of each
	head  func(page int, h http.Header)    // what is told of a page; nil: an ETag
	fault func(page int, n int) (code int) // instead of an answer to the nth request; nil or 0: none

	asked []string // "page condition" of each request
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, _ := strconv.Atoi(r.URL.Query().Get("pageToken"))
	condition := strings.TrimSpace(r.Header.Get("If-None-Match") + " " + r.Header.Get("If-Modified-Since"))
	s.asked = append(s.asked, strings.TrimSpace(fmt.Sprintf("%d %s", page, condition)))
	if s.fault != nil {
		if code := s.fault(page, len(s.asked)); code != 0 {
			w.WriteHeader(code)
			return
		}
	}
	if s.head == nil {
		w.Header().Set("ETag", s.etag(page))
	} else {
		s.head(page, w.Header())
	}
	unchanged := condition != "" && (condition == w.Header().Get("ETag") || condition == w.Header().Get("Last-Modified"))
	if unchanged {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := map[string]any{"page": page, "version": s.pages[page]}
	if page+1 < len(s.pages) {
		body["nextPageToken"] = strconv.Itoa(page + 1)
	}
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.t.Error(err)
	}
}

func (s *shelf) etag(page int) string { return fmt.Sprintf(`"%d.%d"`, page, s.pages[page]) }

// forget is asked, which is then empty.
func (s *shelf) forget() []string {
	asked := s.asked
	s.asked = nil
	return asked
}

// conditional is a world of one region whose pages are asked for with conditions.
func conditional(t *testing.T, s setup) (*world, *shelf) {
	t.Helper()
	upstream := &shelf{t: t, pages: []int{1, 1, 1}}
	s.job += "\n" + oneRegion
	s.fetch += "\nconditional = true"
	s.upstream = upstream
	return newWorld(t, s), upstream
}

// fetched is a run that succeeded, and the pages in its file: "page.version".
func (w *world) fetched() (Run, []string) {
	w.t.Helper()
	run := w.once().Runs[0]
	if run.Outcome != Succeeded {
		w.t.Fatalf("run %+v", run)
	}
	return run, w.pagesOf(run.Output)
}

// pagesOf are those in a file; none where it has no name.
func (w *world) pagesOf(path string) (list []string) {
	w.t.Helper()
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var page struct{ Page, Version int }
		if err := json.Unmarshal([]byte(line), &page); err != nil {
			w.t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%d.%d", page.Page, page.Version))
	}
	return list
}
