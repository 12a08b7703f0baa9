package jobs

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/checkpoint"
	"github.com/quotactl/quotactl/internal/must"
)

// An interrupted run is resumed where it was: it does not fetch its pages again, and one file
// has all of them.
func TestACutRunIsGoneOnWith(t *testing.T) {
	for name, cut := range map[string]func(*resumable){
		"failed": func(r *resumable) { r.cut(3) },
		"exhausted": func(r *resumable) {
			r.options.Budgets["youtube/key1"] = r.limited(2)
			if p := r.once(); p.Outcome != Exhausted || p.Runs[0].Pages != 2 {
				r.t.Fatalf("%+v", p.Runs)
			}
			r.options.Budgets["youtube/key1"] = r.limited(1000)
		},
		"drained": func(r *resumable) {
			r.options.Transport = direct{slow(4*time.Second, r.upstream)}
			drain := make(chan struct{})
			time.AfterFunc(7*time.Second, func() { close(drain) })
			if p := r.runner().Once(r.t.Context(), drain)[0]; p.Outcome != Drained || p.Runs[0].Pages != 2 {
				r.t.Fatalf("%+v", p.Runs)
			}
			r.options.Transport = direct{r.upstream}
		},
		"timed out": func(r *resumable) {
			r.options.Transport = direct{slow(4*time.Second, r.upstream)}
			r.list[0].Timeout = 9 * time.Second
			if p := r.once(); p.Outcome != TimedOut || p.Runs[0].Pages != 2 {
				r.t.Fatalf("%+v", p.Runs)
			}
			r.options.Transport, r.list[0].Timeout = direct{r.upstream}, time.Minute
		},
		"lost": func(r *resumable) { // two pages are fetched, and its process is gone
			r.cut(3)
			claimed := r.claimed(r.runner(), midnight, "crashed/1/x")
			after(2 * time.Minute)
			if claimed.Until > time.Now().UnixMicro() {
				r.t.Fatal("the claim stands")
			}
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newResumable(t, setup{})
			cut(r)
			if from := r.checkpoint(); from == nil || from.Pages != 2 || from.Token == "" {
				t.Fatalf("checkpoint %+v", from)
			}
			tokens := r.asked()
			if len(r.files()) != 1 || !strings.HasSuffix(r.files()[0], partialSuffix) {
				t.Errorf("files %v", r.files())
			}
			p := r.once()
			run := p.Runs[0]
			if run.Outcome != Succeeded || !run.Resumed || run.Pages != 2 || run.Units != 2 || run.Error != "" {
				t.Fatalf("run %+v, want the last two pages", run)
			}
			if again := r.asked(); len(again) != 2 || again[0] == "-" || len(tokens) > 2 && again[0] != tokens[2] {
				t.Errorf("asked for %v after %v", again, tokens)
			}
			if want := filepath.Join(r.dir, "data/trending/US", p.Tick.Format(TickFormat)+".ndjson"); run.Output != want {
				t.Errorf("output %s, want %s", run.Output, want)
			}
			r.holds(run.Output, 0)
			if files := r.files(); len(files) != 1 || r.checkpoint() != nil {
				t.Errorf("files %v, checkpoint %+v; want one file and no checkpoint", files, r.checkpoint())
			}
			r.logged("level=INFO msg=resumed", "pages=2", "region=US")
			if p = r.once(); p.Runs[0].Resumed || p.Runs[0].Pages != 4 {
				t.Errorf("the next run %+v, want all pages", p.Runs[0])
			}
		})
	}
}

// limited is the world's budget with another limit.
func (w *world) limited(units int64) *budget.Budget {
	w.t.Helper()
	spec := w.options.Budgets["youtube/key1"].Spec()
	spec.Limits = append([]limit.Limit(nil), spec.Limits...)
	spec.Limits[0].Limit = units
	b, err := budget.New(w.store, spec)
	must.Do(w.t, err)
	return b
}

// The page that a run was cut at is begun with again and again, until it comes.
func TestARunIsGoneOnWithSeveralTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, setup{})
		first := r.cut(2)
		second := r.cut(2)
		if second.Output == first.Output || len(r.files()) != 1 {
			t.Errorf("%s is in %v", second.Output, r.files())
		}
		for range 3 {
			if third := r.cut(1); third.Output != second.Output || !third.Resumed {
				t.Errorf("run %+v, want the file as it was", third)
			}
			if files := r.files(); len(files) != 1 || r.checkpoint().Pages != 2 {
				t.Errorf("files %v, checkpoint %+v", files, r.checkpoint())
			}
		}
		run := r.once().Runs[0]
		if run.Outcome != Succeeded || run.Pages != 2 || len(r.files()) != 1 {
			t.Errorf("run %+v, files %v", run, r.files())
		}
		r.holds(run.Output, 0)
	})
}

// events notes, in order, what is made safe on disk and what is kept in the store.
type events struct {
	State
	list []string
	fail bool // the store does not take values
}

func (e *events) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	for key, text := range swap.Values {
		if e.fail {
			return false, errAway
		}
		if text == nil {
			e.list = append(e.list, "remove "+key)
			continue
		}
		value, err := checkpoint.Read(text)
		if err != nil {
			return false, err
		}
		e.list = append(e.list, fmt.Sprintf("keep %s", pagesOf(value.Fetch)))
	}
	return e.State.SwapJob(ctx, swap)
}

// pagesOf is how many pages a checkpoint tells of.
func pagesOf(text []byte) string {
	_, rest, _ := strings.Cut(string(text), `"pages":`)
	return rest[:1]
}

// A page is in the file, and safe on disk, before the next run goes on after it.
func TestAPageIsSafeBeforeItsCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, setup{})
		seen := &events{State: r.store}
		r.options.State = seen
		runner := r.runner()
		runner.flush = func(file *os.File) error {
			text, err := os.ReadFile(file.Name())
			if err != nil {
				text, err = os.ReadFile(filepath.Join(r.dir, "data", file.Name()))
			}
			seen.list = append(seen.list, fmt.Sprintf("sync %d", strings.Count(string(text), "\n")))
			return err
		}
		if p := runner.Once(t.Context(), nil)[0]; p.Outcome != Succeeded {
			t.Fatalf("%+v", p.Runs)
		}
		check.EqualSlices(t, seen.list, []string{"sync 1", "keep 1", "sync 2", "keep 2", "sync 3", "keep 3", "sync 4", "keep 4", "remove checkpoint/US"}, "events")
	})
}

// What the disk does not take is not kept.
func TestAPageThatIsNotSafeIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, setup{})
		runner := r.runner()
		runner.flush = func(*os.File) error { return os.ErrClosed }
		if run := runner.Once(t.Context(), nil)[0].Runs[0]; run.Outcome != Failed || run.Reason != ReasonOutput || run.Calls != 1 {
			t.Errorf("run %+v", run)
		}
		if from := r.checkpoint(); from != nil {
			t.Errorf("checkpoint %+v", from)
		}
	})
}

// A store that does not answer in time leaves the checkpoint behind, and the run
// goes on. What the file has more is taken away by the next run, which asks for it
// again.
func TestACheckpointThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, setup{})
		seen := &events{State: r.store}
		r.options.State = seen
		r.upstream.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			seen.fail = r.upstream.count() >= 3 // the third page is not kept
			if r.upstream.count() == 4 {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			r.sandbox.ServeHTTP(w, q)
		})
		run := r.once().Runs[0]
		if run.Outcome != Failed || run.Pages != 3 || run.Reason != "status 403" {
			t.Fatalf("run %+v", run)
		}
		r.holdsFirst(run.Output, 3)
		r.logged("level=WARN", "the run's progress was not stored", "connection refused")
		seen.fail = false
		r.upstream.Handler, r.options.State = r.sandbox, r.store
		r.asked()
		must.Equal(t, r.checkpoint().Pages, 2, "checkpoint")
		run = r.once().Runs[0]
		if run.Outcome != Succeeded || run.Pages != 2 || len(r.files()) != 1 {
			t.Errorf("run %+v, files %v", run, r.files())
		}
		r.holds(run.Output, 0)
	})
}

// A checkpoint that is behind is kept with the next page, and else at the run's end.
func TestACheckpointCatchesUp(t *testing.T) {
	for _, until := range []int{3, 4} {
		synctest.Test(t, func(t *testing.T) {
			r := newResumable(t, setup{})
			seen := &events{State: r.store}
			r.options.State = seen
			r.upstream.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				n := r.upstream.count()
				seen.fail = n == 2 || n == 3 && until == 4
				if n == 4 {
					seen.fail = false
					w.WriteHeader(http.StatusForbidden)
					return
				}
				r.sandbox.ServeHTTP(w, q)
			})
			if run := r.once().Runs[0]; run.Outcome != Failed || run.Pages != 3 {
				t.Fatalf("run %+v", run)
			}
			check.EqualSlices(t, seen.list, []string{"keep 1", "keep 3"}, "events")
			check.Equal(t, r.checkpoint().Pages, 3, "checkpoint")
		})
	}
}

// A pass that is declared dead keeps nothing any more, and ends.
func TestALostPassKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, setup{})
		runner := r.runner()
		r.upstream.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if r.upstream.count() == 3 {
				r.takesForDead(runner)
			}
			r.sandbox.ServeHTTP(w, q)
		})
		run := runner.Once(t.Context(), nil)[0].Runs[0]
		if run.Outcome != Lost || run.Reason != ReasonFenced || run.Pages != 3 || run.Calls != 3 {
			t.Errorf("run %+v, want it lost after the third page", run)
		}
		check.Equal(t, r.checkpoint().Pages, 2, "checkpoint, want that of two pages")
	})
}

// What is kept at the end of a run is what was not kept on the way, and not a page
// more: one may be in the file that the run has failed by.
func TestACheckpointCatchesUpToItsPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, setup{})
		seen := &events{State: r.store}
		r.options.State = seen
		next := map[string]string{"": "a", "a": "b", "b": "a"} // the third page leads back
		r.upstream.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			seen.fail = r.upstream.count() == 2
			_, _ = fmt.Fprintf(w, `{"nextPageToken":%q}`, next[q.URL.Query().Get("pageToken")])
		})
		if run := r.once().Runs[0]; run.Outcome != Failed || run.Reason != ReasonBody || run.Pages != 3 {
			t.Fatalf("run %+v", run)
		}
		if from := r.checkpoint(); from.Pages != 2 || from.Token != "b" || from.Size != int64(len("{\"nextPageToken\":\"a\"}\n{\"nextPageToken\":\"b\"}\n")) {
			t.Errorf("checkpoint %+v, want that of the second page", from)
		}
	})
}
