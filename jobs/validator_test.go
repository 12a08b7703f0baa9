package jobs

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A page that has not changed is not written again; each request is charged all the same.
func TestUnchangedPagesAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, upstream := conditional(t, setup{})
		run, pages := w.fetched()
		check.EqualSlices(t, pages, []string{"0.1", "1.1", "2.1"}, "first")
		check.EqualSlices(t, upstream.forget(), []string{"0", "1", "2"}, "asked")
		check.Equal(t, run.Unchanged, 0, "run")
		check.Equal(t, run.Reason, "", "run")
		for range 2 {
			p := w.once()
			run = p.Runs[0]
			if p.Outcome != Succeeded || run.Outcome != Succeeded || run.Reason != ReasonUnchanged || run.Pages != 0 || run.Unchanged != 3 || run.Units != 3 || run.Calls != 3 || run.Output != "" || run.Error != "" {
				t.Errorf("run %+v, want all unchanged", run)
			}
			check.EqualSlices(t, upstream.forget(), []string{`0 "0.1"`, `1 "1.1"`, `2 "2.1"`}, "asked")
			check.Equal(t, len(w.files()), 1, "files", w.files())
		}
		w.logged("level=INFO", "run ended", "reason=unchanged", "unchanged=3")
		upstream.pages[1] = 2
		run, pages = w.fetched()
		check.EqualSlices(t, pages, []string{"1.2"}, "changed")
		if run.Pages != 1 || run.Unchanged != 2 || run.Reason != "" || run.Units != 3 {
			t.Errorf("run %+v", run)
		}
		upstream.forget()
		if run, _ = w.fetched(); run.Reason != ReasonUnchanged {
			t.Errorf("run %+v", run)
		}
		check.EqualSlices(t, upstream.forget(), []string{`0 "0.1"`, `1 "1.2"`, `2 "2.1"`}, "asked")
		upstream.pages = append(upstream.pages[:2], 2, 1) // one more
		_, pages = w.fetched()
		check.EqualSlices(t, pages, []string{"2.2", "3.1"}, "grown")
	})
}

// Weak and strong ETags go back as they came, and before Last-Modified.
func TestWhatIsAskedWith(t *testing.T) {
	const day = "Sat, 01 Jan 2000 00:00:00 GMT"
	for name, test := range map[string]struct {
		head func(int, http.Header)
		want string
	}{
		"weak":     {func(_ int, h http.Header) { h.Set("ETag", `W/"x"`) }, `0 W/"x"`},
		"strange":  {func(_ int, h http.Header) { h.Set("ETag", `x, y`) }, `0 x, y`},
		"modified": {func(_ int, h http.Header) { h.Set("Last-Modified", day) }, "0 " + day},
		"both":     {func(_ int, h http.Header) { h.Set("ETag", `"x"`); h.Set("Last-Modified", day) }, `0 "x"`},
		"long ETag": {func(_ int, h http.Header) {
			h.Set("ETag", strings.Repeat("x", maxValidator+1))
			h.Set("Last-Modified", day)
		}, "0 " + day},
		"as long as it may be": {func(_ int, h http.Header) { h.Set("ETag", strings.Repeat("x", maxValidator)) }, "0 " + strings.Repeat("x", maxValidator)},
		"nothing":              {func(int, http.Header) {}, "0"},
		"only long":            {func(_ int, h http.Header) { h.Set("ETag", strings.Repeat("x", maxValidator+1)) }, "0"},
		"the secret":           {func(_ int, h http.Header) { h.Set("ETag", "\""+secretKey+"\"") }, "0"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, upstream := conditional(t, setup{fetch: "max_pages = 1"})
			upstream.head = test.head
			w.fetched()
			upstream.forget()
			w.fetched()
			check.EqualSlices(t, upstream.forget(), []string{test.want}, name, "asked")
		})
	}
	synctest.Test(t, func(t *testing.T) { // an answer of 304 may tell another
		w, upstream := conditional(t, setup{fetch: "max_pages = 1"})
		n := 0
		upstream.head = func(_ int, h http.Header) {
			n++
			h.Set("ETag", fmt.Sprint(n))
			h.Set("Last-Modified", strconv.Itoa(n-1))
		}
		for range 3 {
			w.fetched()
		}
		check.EqualSlices(t, upstream.forget(), []string{"0", "0 1", "0 2"}, "asked")
	})
}

// The job remembers nothing of a run that is not complete: its pages may be in no file
// that anybody reads.
func TestAnIncompleteRunRemembersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, upstream := conditional(t, setup{})
		w.fetched()
		upstream.pages[0] = 2
		upstream.fault = func(page, _ int) int {
			if page == 2 {
				return http.StatusForbidden
			}
			return 0
		}
		if run := w.once().Runs[0]; run.Outcome != Failed || run.Pages != 1 || run.Unchanged != 1 {
			t.Fatalf("run %+v", run)
		}
		upstream.fault = nil
		upstream.forget()
		_, pages := w.fetched()
		check.EqualSlices(t, pages, []string{"0.2"}, "pages")
		check.EqualSlices(t, upstream.forget(), []string{`0 "0.1"`, `1 "1.1"`, `2 "2.1"`}, "asked")
	})
	synctest.Test(t, func(t *testing.T) { // nor of one whose file has no name
		w, upstream := conditional(t, setup{fetch: "max_pages = 1"})
		r := w.runner()
		upstream.fault = func(int, int) int {
			files := w.files()
			check.NoError(t, os.WriteFile(filepath.Join(w.dir, "data", strings.TrimSuffix(files[len(files)-1], partialSuffix)), nil, 0o600))
			return 0
		}
		must.Equal(t, r.Once(t.Context(), nil)[0].Runs[0].Reason, ReasonOutput, "run")
		upstream.fault = nil
		upstream.forget()
		w.fetched()
		check.EqualSlices(t, upstream.forget(), []string{"0"}, "asked")
	})
}

// A job that asks for something else, or writes it elsewhere, has fetched nothing yet.
func TestAnotherURLForgetsWhatWasAsked(t *testing.T) {
	for name, change := range map[string]func(*world){
		"url":    func(w *world) { w.list[0].Fetch.URL += "&hl=en" },
		"output": func(w *world) { w.list[0].Fetch.Output = filepath.Join(w.dir, "elsewhere/{tick}.ndjson") },
		"items":  func(w *world) { w.list[0].Fetch.Items = "list" },
		"key": func(w *world) {
			w.list[0].Budget, w.options.Budgets["youtube/key2"] = "youtube/key2", w.options.Budgets["youtube/key1"]
		},
		"tick": func(w *world) { w.list[0].Fetch.URL += "&at={tick}" },
	} {
		synctest.Test(t, func(t *testing.T) {
			w, upstream := conditional(t, setup{fetch: "max_pages = 1"})
			if name == "tick" {
				change(w)
			}
			w.fetched()
			if name != "tick" {
				change(w)
			}
			upstream.forget()
			check.Equal(t, w.once().Runs[0].Unchanged, 0, name, "run")
			check.EqualSlices(t, upstream.forget(), []string{"0"}, name)
		})
	}
}

// The memory of a region is bounded: of many pages the first are asked with conditions, the
// others without.
func TestValidatorsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, upstream := conditional(t, setup{})
		upstream.pages = slices.Repeat([]int{1}, maxValidators+2)
		w.fetched()
		text, err := w.store.JobValue(t.Context(), "trending", "validators/US")
		if err != nil || len(text) > 16<<10 {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		run, pages := w.fetched()
		check.Equal(t, run.Unchanged, maxValidators, "run", run)
		check.EqualSlices(t, pages, []string{"100.1", "101.1"}, "pages")
	})
}

// A page that has not changed costs what the upstream takes for it.
func TestUnchangedPagesCostWhatTheySay(t *testing.T) {
	for cost, want := range map[string]int64{"3": 9, "{ units = 3, not_modified = 1 }": 3, "{ units = 3, not_modified = 0 }": 0} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := conditional(t, setup{cost: cost})
			if run, _ := w.fetched(); run.Units != 9 {
				t.Errorf("run %+v", run)
			}
			before := w.used()
			run, _ := w.fetched()
			if run.Unchanged != 3 || run.Units != want || run.Calls != 3 || w.used()-before != want {
				t.Errorf("%s: run %+v, %d in the ledger; want %d units", cost, run, w.used()-before, want)
			}
		})
	}
}

// A 304 that nobody has asked for is no page.
func TestA304ThatNobodyAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, upstream := conditional(t, setup{})
		upstream.fault = func(int, int) int { return http.StatusNotModified }
		if run := w.once().Runs[0]; run.Outcome != Failed || run.Reason != "status 304" {
			t.Errorf("run %+v", run)
		}
	})
}

// Without the key nothing is asked with a condition, and nothing kept.
func TestWithoutConditional(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, upstream := conditional(t, setup{})
		w.fetched()
		w.list[0].Fetch.Conditional = false
		upstream.forget()
		_, pages := w.fetched()
		check.EqualSlices(t, pages, []string{"0.1", "1.1", "2.1"}, "pages")
		check.EqualSlices(t, upstream.forget(), []string{"0", "1", "2"}, "asked")
	})
}

// A run that is resumed remembers the pages of the earlier one, which are in its
// file; without that file they are fetched again by the next.
func TestConditionsOfARunThatIsGoneOnWith(t *testing.T) {
	for _, file := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w, upstream := conditional(t, setup{job: "checkpoint = \"1h\""})
			w.fetched()
			upstream.pages = []int{2, 1, 1}
			upstream.fault = func(page, _ int) int {
				if page == 2 {
					return http.StatusForbidden
				}
				return 0
			}
			cut := w.once().Runs[0]
			if cut.Outcome != Failed || cut.Pages != 1 || cut.Unchanged != 1 {
				t.Fatalf("run %+v", cut)
			}
			upstream.fault = nil
			upstream.forget()
			if !file {
				must.Do(t, os.Remove(cut.Output))
			}
			run, pages := w.fetched()
			check.EqualSlices(t, upstream.forget(), []string{`2 "2.1"`}, "asked")
			if run.Unchanged != 1 || run.Pages != 0 || !run.Resumed {
				t.Errorf("run %+v", run)
			}
			if file {
				check.EqualSlices(t, pages, []string{"0.2"}, "pages")
			} else if run.Reason != ReasonUnchanged || run.Output != "" {
				t.Errorf("run %+v, want no file", run)
			}
			_, pages = w.fetched()
			if file {
				check.EqualSlices(t, upstream.forget(), []string{`0 "0.2"`, `1 "1.1"`, `2 "2.1"`}, "asked")
				check.EqualSlices(t, pages, nil, "pages")
			} else {
				check.EqualSlices(t, upstream.forget(), []string{"0", "1", `2 "2.1"`}, "asked")
				check.EqualSlices(t, pages, []string{"0.2", "1.1"}, "pages")
			}
		})
	}
}

// A store that does not answer costs a condition, never the run.
func TestConditionsWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, upstream := conditional(t, setup{})
		w.fetched()
		upstream.forget()
		w.options.State = noValues{w.store}
		w.fetched()
		check.EqualSlices(t, upstream.forget(), []string{"0", "1", "2"}, "asked")
		w.logged("level=WARN", "the pages' validators could not be read", "connection refused")
		upstream.pages[0] = 2
		w.options.State = &events{State: w.store, fail: true}
		w.fetched()
		upstream.forget()
		w.options.State = w.store
		_, pages := w.fetched()
		check.EqualSlices(t, pages, []string{"0.2"}, "pages")
		w.logged("level=WARN", "the run's progress was not stored", "connection refused")
	})
	synctest.Test(t, func(t *testing.T) { // what cannot be read is no condition
		w, upstream := conditional(t, setup{fetch: "max_pages = 1"})
		found := must.Get(w.store.Job(context.Background(), "trending"))(t)
		if ok, err := w.store.SwapJob(context.Background(), driver.JobSwap{Job: "trending", Version: found.Version, Values: map[string][]byte{"validators/US": []byte("x")}}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		w.fetched()
		check.EqualSlices(t, upstream.forget(), []string{"0"}, "asked")
	})
}

// A pass that is declared dead remembers nothing.
func TestALostPassRemembersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, upstream := conditional(t, setup{fetch: "max_pages = 1"})
		r := w.runner()
		upstream.fault = func(int, int) int {
			w.takesForDead(r)
			return 0
		}
		if run := r.Once(t.Context(), nil)[0].Runs[0]; run.Outcome != Lost || run.Output == "" {
			t.Errorf("run %+v", run)
		}
		if text, err := w.store.JobValue(t.Context(), "trending", "validators/US"); text != nil || err != nil {
			t.Errorf("%s is kept, %v", text, err)
		}
	})
}
