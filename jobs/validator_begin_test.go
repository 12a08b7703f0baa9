package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// The token that an unchanged page had may be none by now: the run begins anew, and
// asks for all pages as they are.
func TestATokenOfAnUnchangedPageThatIsRefused(t *testing.T) {
	for _, job := range []string{"", "checkpoint = \"1h\""} {
		for status, anew := range map[int]bool{400: true, 404: true, 410: true, 422: true, 403: false} {
			synctest.Test(t, func(t *testing.T) {
				w, upstream := conditional(t, setup{job: job})
				w.fetched()
				upstream.pages[0] = 2
				_, pages := w.fetched()
				check.EqualSlices(t, pages, []string{"0.2"}, "changed")
				upstream.forget()
				upstream.fault = func(page, n int) int {
					if page == 2 && strings.Contains(upstream.asked[n-2], `"`) { // by the token of a page that was not sent
						return status
					}
					return 0
				}
				upstream.pages[0] = 3
				run := w.once().Runs[0]
				if !anew {
					if run.Outcome != Failed || run.Reason != fmt.Sprintf("status %d", status) || run.Calls != 3 {
						t.Errorf("run %+v", run)
					}
					return
				}
				if run.Outcome != Succeeded || run.Pages != 3 || run.Unchanged != 0 || run.Calls != 6 || run.Resumed {
					t.Fatalf("%d: run %+v, want all pages", status, run)
				}
				check.EqualSlices(t, upstream.forget(), []string{`0 "0.2"`, `1 "1.1"`, `2 "2.1"`, "0", "1", "2"}, "asked")
				check.EqualSlices(t, w.pagesOf(run.Output), []string{"0.3", "1.1", "2.1"}, "pages")
				w.logged("level=WARN", "starting over: the upstream no longer knows the page")
				kept, err := w.store.JobValue(t.Context(), "trending", "checkpoint/US")
				if err != nil || kept != nil {
					t.Errorf("checkpoint %s, %v", kept, err)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) { // the token of a page that came just now is the upstream's own
		w, upstream := conditional(t, setup{})
		w.fetched()
		upstream.pages[0] = 2
		upstream.fault = func(page, _ int) int {
			if page == 1 {
				return http.StatusNotFound
			}
			return 0
		}
		if run := w.once().Runs[0]; run.Outcome != Failed || run.Pages != 1 || run.Calls != 2 {
			t.Errorf("run %+v", run)
		}
	})
}

// A checkpoint that the store does not let go of tells of a file that stays unchanged.
func TestBeginningAnewBesideACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, upstream := conditional(t, setup{job: "checkpoint = \"1h\""})
		w.fetched()
		upstream.pages[0] = 2
		upstream.fault = func(page, n int) int {
			if page == 2 && strings.Contains(upstream.asked[n-1], `"`) {
				return http.StatusGone
			}
			return 0
		}
		w.options.State = withoutKey{w.store, "checkpoint/US", true}
		run := w.once().Runs[0]
		if run.Outcome != Failed || run.Reason != "status 410" || run.Calls != 3 {
			t.Errorf("run %+v", run)
		}
		check.EqualSlices(t, w.pagesOf(run.Output), []string{"0.2"}, "pages")
		w.options.State = w.store
		run, pages := w.fetched()
		if run.Calls != 4 || run.Resumed {
			t.Errorf("run %+v", run)
		}
		check.EqualSlices(t, pages, []string{"0.2", "1.1", "2.1"}, "pages")
	})
}

// withoutKey is a state that does not answer who keeps a value of this key, or who
// removes it.
type withoutKey struct {
	State
	key     string
	removed bool
}

func (s withoutKey) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	if value, has := swap.Values[s.key]; has && (value == nil || !s.removed) {
		return false, errFails
	}
	return s.State.SwapJob(ctx, swap)
}

// A run whose pages were all unchanged has left no file to go on with: where its end
// was not kept, the next one asks again.
func TestAnUnchangedRunWhoseEndIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, upstream := conditional(t, setup{job: "checkpoint = \"1h\""})
		w.fetched()
		w.options.State = withoutKey{w.store, "validators/US", false}
		if run, _ := w.fetched(); run.Reason != ReasonUnchanged {
			t.Fatalf("run %+v", run)
		}
		w.options.State = w.store
		for version, want := range [][]string{nil, {"0.2"}} {
			upstream.pages[0] = version + 1
			upstream.forget()
			run, pages := w.fetched()
			if run.Calls != 3 || run.Resumed || (run.Output == "") != (want == nil) {
				t.Errorf("run %+v, want it to ask for all", run)
			}
			check.EqualSlices(t, pages, want, "pages")
		}
	})
}

// A run that is resumed from unchanged pages alone, and is cut before its first,
// names no file: there is none.
func TestARunCutAfterUnchangedPagesHasNoFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, upstream := conditional(t, setup{job: "checkpoint = \"1h\""})
		w.fetched()
		upstream.fault = func(page, _ int) int {
			if page == 1 {
				return http.StatusForbidden
			}
			return 0
		}
		for _, resumed := range []bool{false, true} {
			if run := w.once().Runs[0]; run.Outcome != Failed || run.Resumed != resumed || run.Output != "" {
				t.Errorf("run %+v, want no file", run)
			}
		}
		check.Equal(t, len(w.files()), 1, "files", w.files())
	})
}

// What an upstream tells of a page is not kept where it holds the secret.
func TestAValidatorWithTheSecretIsNotKept(t *testing.T) {
	for _, name := range []string{"ETag", "Last-Modified"} {
		synctest.Test(t, func(t *testing.T) {
			w, upstream := conditional(t, setup{fetch: "max_pages = 1"})
			upstream.head = func(_ int, h http.Header) { h.Set(name, "of "+secretKey) }
			w.fetched()
			if text, err := w.store.JobValue(t.Context(), "trending", "validators/US"); text != nil || err != nil {
				t.Errorf("%s: %s is kept, %v", name, text, err)
			}
		})
	}
}

// The earlier run's file stays until a checkpoint that does not need it is kept.
func TestTheEarlierFileStaysWhileItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, setup{})
		earlier := r.cut(3).Output
		r.options.State = withoutKey{r.store, "checkpoint/US", false}
		r.cut(2)
		r.holdsFirst(earlier, 2)
		r.options.State = r.store
		run := r.once().Runs[0]
		check.Equal(t, run.Outcome, Succeeded, "run")
		check.Equal(t, run.Pages, 2, "run")
		r.holds(run.Output, 0)
		if _, err := os.Stat(earlier); !os.IsNotExist(err) {
			t.Errorf("the earlier file is there: %v", err)
		}
	})
}

// shelf is an upstream of pages that are asked for with conditions. Its tokens are
// the pages' numbers.
type shelf struct {
	t     *testing.T
	pages []int                            // the version of each
	head  func(page int, h http.Header)    // the header of a page; nil: an ETag
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
	check.NoError(s.t, json.NewEncoder(w).Encode(body))
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
	must.Equal(w.t, run.Outcome, Succeeded, "run", run)
	return run, w.pagesOf(run.Output)
}

// pagesOf are those in a file; none where it has no name.
func (w *world) pagesOf(path string) (list []string) {
	w.t.Helper()
	if path == "" {
		return nil
	}
	text := readFile(w.t, path)
	for line := range strings.Lines(text) {
		var page struct{ Page, Version int }
		must.Do(w.t, json.Unmarshal([]byte(line), &page))
		list = append(list, fmt.Sprintf("%d.%d", page.Page, page.Version))
	}
	return list
}
