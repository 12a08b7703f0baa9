package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/checkpoint"
	"github.com/quotactl/quotactl/internal/must"
)

// partial is the one partial file.
func (r *resumable) partial() string {
	r.t.Helper()
	files := r.files()
	if len(files) != 1 || !strings.HasSuffix(files[0], partialSuffix) {
		r.t.Fatalf("files %v, want a partial one", files)
	}
	return filepath.Join(r.dir, "data", files[0])
}

// Where the file of the pages before is not what was kept, the run goes on with the
// next page all the same, into a file of its own, and says so. Nothing outside of the
// folder is read or changed, and a pipe in the file's place does not hang the run.
func TestARunGoesOnWithoutItsFile(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, partial string) error{
		"moved away": func(_ *testing.T, partial string) error { return os.Rename(partial, partial+".old") },
		"cut short":  func(_ *testing.T, partial string) error { return os.Truncate(partial, 10) },
		"a folder": func(_ *testing.T, partial string) error {
			return errors.Join(os.Remove(partial), os.Mkdir(partial, 0o700))
		},
		"a pipe": func(_ *testing.T, partial string) error {
			return errors.Join(os.Remove(partial), syscall.Mkfifo(partial, 0o600))
		},
		"a link out of the folder": func(t *testing.T, partial string) error {
			secret := filepath.Join(t.TempDir(), "secret")
			return errors.Join(os.WriteFile(secret, []byte(strings.Repeat("x", 1<<20)), 0o600), os.Remove(partial), os.Symlink(secret, partial))
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newResumable(t, setup{})
			r.cut(3)
			must.Do(t, change(t, r.partial()))
			run := r.once().Runs[0]
			if run.Outcome != Succeeded || !run.Resumed || run.Pages != 2 || r.checkpoint() != nil {
				t.Errorf("run %+v, want the last two pages", run)
			}
			r.holds(run.Output, 2)
			r.logged("level=WARN", "the file with the earlier pages is missing here", "pages=2", `error="`)
		})
	}
}

// A process that still has the earlier file open writes into its own.
func TestAnEarlierRunThatLivesWritesIntoItsOwnFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, setup{})
		r.cut(3)
		zombie := must.Get(os.OpenFile(r.partial(), os.O_WRONLY|os.O_APPEND, 0))(t)
		defer func() { _ = zombie.Close() }()
		r.upstream.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			check.NoError(t, check.Err(zombie.WriteString("late\n")))
			r.sandbox.ServeHTTP(w, q)
		})
		run := r.once().Runs[0]
		check.Equal(t, run.Outcome, Succeeded, "run")
		check.Equal(t, run.Pages, 2, "run")
		r.holds(run.Output, 0)
	})
}

// A checkpoint that must not be resumed is removed, and the run begins anew.
func TestARunBeginsAnew(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*resumable)
		says   string
	}{
		"expired":     {func(*resumable) { after(time.Hour) }, "the checkpoint has expired"},
		"another url": {func(r *resumable) { r.list[0].Fetch.URL += "&hl=en" }, "the checkpoint is for another url"},
		"another key": {func(r *resumable) {
			r.list[0].Budget, r.options.Budgets["youtube/key2"] = "youtube/key2", r.options.Budgets["youtube/key1"]
		}, "the checkpoint is for another url"},
		"other items": {func(r *resumable) { r.list[0].Fetch.Items = "items" }, "the checkpoint is for another url"},
		"a program's": {func(r *resumable) { r.value(checkpoint.Value{Expires: 1 << 60, Data: []byte("x")}.Text()) }, "the checkpoint was written by a program"},
		"not JSON":    {func(r *resumable) { r.value([]byte("x")) }, "the checkpoint cannot be read"},
		"finished": {func(r *resumable) {
			must.Do(r.t, os.Rename(r.partial(), strings.TrimSuffix(r.partial(), partialSuffix)))
		}, "run with the checkpoint was complete"},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newResumable(t, setup{})
			r.cut(3)
			test.change(r)
			r.asked()
			r.upstream.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if text, err := r.store.JobValue(t.Context(), "trending", "checkpoint/US"); err != nil || text != nil && r.upstream.count() == 1 {
					t.Errorf("the checkpoint was not removed before the first page: %v", err)
				}
				r.sandbox.ServeHTTP(w, q)
			})
			run := r.once().Runs[0]
			if run.Outcome != Succeeded || run.Resumed || run.Pages != 4 || r.asked()[0] != "-" {
				t.Errorf("run %+v, want all four pages", run)
			}
			r.logged("level=INFO", "starting over", test.says)
		})
	}
	synctest.Test(t, func(t *testing.T) { // one microsecond before its end it stands
		r := newResumable(t, setup{})
		r.cut(3)
		after(time.Hour - time.Microsecond)
		if run := r.once().Runs[0]; !run.Resumed {
			t.Errorf("run %+v", run)
		}
	})
}

// value puts a value in the place of the region's checkpoint.
func (r *resumable) value(text []byte) {
	r.t.Helper()
	found, err := r.store.Job(context.Background(), "trending")
	must.Do(r.t, err)
	if ok, err := r.store.SwapJob(context.Background(), driver.JobSwap{Job: "trending", Version: found.Version, Values: map[string][]byte{"checkpoint/US": text}}); err != nil || !ok {
		r.t.Fatal(ok, err)
	}
}

// A page that the upstream does not know any more is not asked for again: the run
// begins anew, once.
func TestATokenThatTheUpstreamRefuses(t *testing.T) {
	for status, anew := range map[int]bool{400: true, 404: true, 410: true, 422: true, 401: false, 403: false, 429: false, 500: false} {
		synctest.Test(t, func(t *testing.T) {
			r := newResumable(t, setup{})
			r.cut(3)
			r.asked()
			r.refuse, r.status = 1, status
			run := r.once().Runs[0]
			if !anew {
				if run.Outcome != Failed || run.Pages != 0 || r.checkpoint().Pages != 2 {
					t.Errorf("%d: run %+v, checkpoint %+v", status, run, r.checkpoint())
				}
				return
			}
			if run.Outcome != Succeeded || run.Resumed || run.Pages != 4 || run.Calls != 5 || r.checkpoint() != nil {
				t.Errorf("%d: run %+v, want all four pages", status, run)
			}
			r.holds(run.Output, 0)
			r.logged("level=WARN", "starting over: the upstream no longer knows the page", fmt.Sprintf("reason=\"status %d\"", status))
		})
	}
	synctest.Test(t, func(t *testing.T) { // once: a first page that is refused fails the run
		r := newResumable(t, setup{})
		r.cut(3)
		r.asked()
		r.upstream.Handler = answering(404, "", "")
		if run := r.once().Runs[0]; run.Outcome != Failed || run.Reason != "status 404" || run.Calls != 2 || r.checkpoint() != nil {
			t.Errorf("run %+v, checkpoint %+v", run, r.checkpoint())
		}
		check.Equal(t, len(r.files()), 1, "files", r.files())
	})
	synctest.Test(t, func(t *testing.T) { // a later page says nothing of the token that was kept
		r := newResumable(t, setup{})
		r.cut(2)
		r.asked()
		r.refuse, r.status = 2, 404
		if run := r.once().Runs[0]; run.Outcome != Failed || run.Pages != 1 || !run.Resumed || r.checkpoint().Pages != 2 {
			t.Errorf("run %+v, checkpoint %+v", run, r.checkpoint())
		}
	})
}

// A run that had all its pages, and whose process was gone before its file had its
// name, costs nothing more.
func TestARunThatHadAllItsPages(t *testing.T) {
	for _, file := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newResumable(t, setup{})
			final := ""
			r.options.Now = func() time.Time { return time.Now() }
			runner := r.runner()
			runner.flush = func(f *os.File) error {
				if r.upstream.count() == 4 && final == "" { // its name is taken before it has it
					final = strings.TrimSuffix(r.partial(), partialSuffix)
					return os.WriteFile(final, nil, 0o600)
				}
				return f.Sync()
			}
			must.Equal(t, runner.Once(t.Context(), nil)[0].Runs[0].Reason, ReasonOutput, "run")
			must.Do(t, os.Remove(final))
			if from := r.checkpoint(); !from.Done || from.Pages != 4 {
				t.Fatalf("checkpoint %+v", from)
			}
			if !file {
				must.Do(t, os.Remove(r.partial()))
			}
			r.asked()
			run := r.once().Runs[0]
			if file && (run.Outcome != Succeeded || !run.Resumed || run.Calls != 0 || run.Pages != 0) || !file && (run.Resumed || run.Pages != 4) {
				t.Errorf("run %+v", run)
			}
			r.holds(run.Output, 0)
			if len(r.files()) != 1 || r.checkpoint() != nil {
				t.Errorf("files %v, checkpoint %+v", r.files(), r.checkpoint())
			}
		})
	}
}

// max_pages is of all runs together.
func TestMaxPagesOfARunThatIsGoneOnWith(t *testing.T) {
	for most, want := range map[int]int{3: 1, 2: 0, 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			r := newResumable(t, setup{})
			r.cut(3)
			r.list[0].Fetch.MaxPages = most
			run := r.once().Runs[0]
			if run.Outcome != Succeeded || run.Pages != want || r.checkpoint() != nil {
				t.Errorf("of %d: run %+v, want %d pages more", most, run, want)
			}
			r.holdsFirst(run.Output, 2+want)
		})
	}
}

// A store that does not say where a run was cut has it begin anew and keep nothing:
// what is kept stays.
func TestACheckpointThatIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, setup{})
		r.cut(3)
		r.asked()
		r.options.State = noValues{r.store}
		began := time.Now()
		run := r.once().Runs[0]
		if run.Outcome != Succeeded || run.Resumed || run.Pages != 4 || time.Since(began) != finalWriteTimeout {
			t.Errorf("run %+v after %s", run, time.Since(began))
		}
		check.Equal(t, r.checkpoint().Pages, 2, "checkpoint")
		r.logged("level=WARN", "starting over, without checkpoints", "connection refused")
	})
	synctest.Test(t, func(t *testing.T) { // a store that comes back meanwhile does say
		r := newResumable(t, setup{})
		r.cut(3)
		back := time.Now().Add(2 * time.Second)
		r.options.State = noValuesUntil{r.store, back}
		if run := r.once().Runs[0]; !run.Resumed || run.Pages != 2 {
			t.Errorf("run %+v", run)
		}
	})
}

type noValues struct{ State }

func (noValues) JobValue(context.Context, string, string) ([]byte, error) { return nil, errAway }

type noValuesUntil struct {
	State
	back time.Time
}

func (n noValuesUntil) JobValue(ctx context.Context, job, key string) ([]byte, error) {
	if time.Now().Before(n.back) {
		return nil, errAway
	}
	return n.State.JobValue(ctx, job, key)
}

// A run asks as the one did that it goes on with: the url holds that one's tick.
func TestARunGoesOnWithTheTickOfItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, setup{})
		r.list[0].Fetch.URL += "&publishedBefore={tick}"
		r.cut(2)
		after(10 * time.Minute)
		r.cut(2)
		after(10 * time.Minute)
		var ticks []string
		r.succeeds()
		for _, q := range r.upstream.requests {
			ticks = append(ticks, q.query.Get("publishedBefore"))
		}
		check.EqualSlices(t, ticks, []string{"20000101T000001Z", "20000101T000001Z", "20000101T000001Z", "20000101T000001Z"}[:len(ticks)], "ticks")
		if len(ticks) < 2 {
			t.Errorf("%d requests", len(ticks))
		}
	})
}

// A token that holds the secret, or is of no end, is not kept.
func TestATokenThatIsNotKept(t *testing.T) {
	for name, token := range map[string]string{"the secret": "page2?key=" + secretKey, "escaped": "page2?key=AIza-s3cret%26key", "long": strings.Repeat("x", maxToken+1)} {
		inBubble(t, name, func(t *testing.T) {
			r := newResumable(t, setup{})
			r.upstream.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.URL.Query().Get("pageToken") != "" {
					w.WriteHeader(http.StatusForbidden)
					return
				}
				check.NoError(t, json.NewEncoder(w).Encode(map[string]string{"nextPageToken": token}))
			})
			if run := r.once().Runs[0]; run.Pages != 1 || run.Outcome != Failed {
				t.Errorf("run %+v", run)
			}
			if text, err := r.store.JobValue(t.Context(), "trending", "checkpoint/US"); text != nil || err != nil {
				t.Errorf("%s is kept, %v", text, err)
			}
			r.logged("level=WARN", "no checkpoint is stored after this page", "page=1")
		})
	}
}

// One region's checkpoint is no other's.
func TestCheckpointsAreOfRegions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{job: "regions = [\"US\", \"GB\"]\ncheckpoint = \"1h\"", upstream: upstream})
		upstream.Handler = http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
			if n := upstream.count(); n == 2 || n == 5 {
				rw.WriteHeader(http.StatusForbidden)
				return
			}
			w.sandbox.ServeHTTP(rw, q)
		})
		check.EqualSlices(t, outcomes(w.once()), []string{"US failed status 403", "GB failed status 403"}, "runs")
		p := w.once()
		if us, gb := p.Runs[0], p.Runs[1]; us.Pages != 3 || gb.Pages != 2 || !us.Resumed || !gb.Resumed {
			t.Errorf("%+v", p.Runs)
		}
		for _, run := range p.Runs {
			if got, err := os.ReadFile(run.Output); err != nil || string(got) != served(t, run.Region) {
				t.Errorf("%s does not hold what was served: %v", run.Output, err)
			}
		}
	})
}

// Without the key nothing is kept.
func TestWithoutCheckpointNothingIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, setup{})
		r.list[0].Checkpoint = 0
		r.cut(3)
		if r.checkpoint() != nil {
			t.Errorf("checkpoint %+v", r.checkpoint())
		}
		if run := r.once().Runs[0]; run.Resumed || run.Pages != 4 || len(r.files()) != 2 {
			t.Errorf("run %+v, files %v", run, r.files())
		}
	})
}
