package jobs

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// slow answers each page after a span, or when it is given up.
func slow(d time.Duration, pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			pages.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}

// stopping is a pass of three regions, told to stop on the way.
type stopping struct {
	job   string
	slow  time.Duration // each page takes
	drain time.Duration // after which it is asked to stop; 0 for never
	halt  time.Duration // after which it is asked again
}

func (s stopping) run(t *testing.T) (w *world, p Pass, took time.Duration) {
	t.Helper()
	upstream := &recorded{}
	w = newWorld(t, setup{job: "regions = [\"US\", \"GB\", \"DE\"]\n" + s.job, upstream: upstream})
	upstream.Handler = slow(s.slow, w.sandbox)
	drain := make(chan struct{})
	ctx, halt := context.WithCancelCause(t.Context())
	defer halt(nil)
	if s.drain > 0 {
		time.AfterFunc(s.drain, func() { close(drain) })
	}
	if s.halt > 0 {
		time.AfterFunc(s.halt, func() { halt(errors.New("second signal")) })
	}
	began := time.Now()
	passes := w.runner().Once(ctx, drain)
	must.Equal(t, len(passes), 1, "passes")
	if s.slow > 0 {
		calls := 0
		for _, run := range passes[0].Runs {
			calls += run.Calls
		}
		check.Equal(t, upstream.count(), calls)
		check.Equal(t, int64(calls), w.used())
	}
	if state := w.state(); len(state.Active) > 0 || state.Last == nil {
		t.Errorf("the claim stands, or nothing was recorded: %+v", state)
	}
	return w, passes[0], time.Since(began)
}

func TestARunEndsAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, took := stopping{job: `timeout = "25s"`, slow: 10 * time.Second}.run(t)
		check.EqualSlices(t, outcomes(p), []string{"US timed_out timeout", "GB timed_out timeout", "DE timed_out timeout"}, "runs")
		check.Equal(t, p.Outcome, TimedOut)
		check.Equal(t, took, 75*time.Second)
		for _, run := range p.Runs {
			if run.Pages != 2 || run.Units != 3 || !strings.HasSuffix(run.Output, partialSuffix) {
				t.Errorf("run %+v", run)
			}
		}
		w.nextIs("")
	})
}

// A page under way is finished, and no other is charged or asked for.
func TestADrainEndsAtAPageBoundary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, took := stopping{slow: 4 * time.Second, drain: 21 * time.Second}.run(t)
		check.EqualSlices(t, outcomes(p), []string{"US succeeded", "GB drained stop", "DE skipped drained"}, "runs")
		if p.Outcome != Drained || p.Reason != ReasonStop || took != 24*time.Second {
			t.Errorf("%s (%s) after %s, want drained (stop) after 24s", p.Outcome, p.Reason, took)
		}
		if run := p.Runs[1]; run.Pages != 2 || run.Units != 2 || !strings.HasSuffix(run.Output, partialSuffix) {
			t.Errorf("the interrupted run: %+v", run)
		}
		if run := p.Runs[2]; run.Calls != 0 || run.Output != "" {
			t.Errorf("the run that was not started: %+v", run)
		}
		w.nextIs("GB")
	})
}

func TestAPageThatOutlivesTheGraceIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p, took := stopping{job: "grace = \"5s\"\ntimeout = \"10m\"", slow: 2 * time.Minute, drain: 30 * time.Second}.run(t)
		check.EqualSlices(t, outcomes(p), []string{"US drained stop", "GB skipped drained", "DE skipped drained"}, "runs")
		check.Equal(t, took, 35*time.Second+arrives, "took, want the drain and the grace, and until the page cannot arrive any more")
	})
}

func TestASecondSignalStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p, took := stopping{slow: time.Minute, drain: 30 * time.Second, halt: 31 * time.Second}.run(t)
		check.EqualSlices(t, outcomes(p), []string{"US drained interrupted", "GB skipped drained", "DE skipped drained"}, "runs")
		check.Equal(t, took, 31*time.Second+arrives, "took")
	})
}

// Waiting for units is a page's boundary: a drain ends it at once.
func TestADrainEndsAWaitForUnits(t *testing.T) {
	for _, where := range []string{"needs = { \"videos.list\" = 1 }", "needs = { \"videos.list\" = 2 }"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{job: oneRegion + "\n" + where, more: "[upstream.youtube.limit.burst]\nlimit = 2\nwindow = \"30s\""})
			drain := make(chan struct{})
			first := w.runner()
			began := time.Now()
			time.AfterFunc(7*time.Second, func() { close(drain) })
			p := first.Once(t.Context(), drain)[0]
			if run := p.Runs[0]; run.Outcome != Drained || run.Reason != ReasonStop || run.Pages != 2 {
				t.Errorf("run %+v", run)
			}
			check.Equal(t, time.Since(began), 7*time.Second, "took")
		})
	}
}

func TestADrainedOnceStartsNoOtherJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		drain := make(chan struct{})
		close(drain)
		if passes := w.runner().Once(t.Context(), drain); len(passes) != 0 || w.state().LastManual != 0 {
			t.Errorf("passes %v", passes)
		}
	})
}

// While a page is on its way its run has no file under the final name.
func TestNothingHalfWrittenHasAFinalName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var w *world
		pages := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			asked++
			if files := w.files(); len(files) != 1 || !strings.HasSuffix(files[0], partialSuffix) {
				t.Errorf("while page %d is fetched there are %v", asked, files)
			}
			w.sandbox.ServeHTTP(rw, r)
		})
		w = newWorld(t, setup{job: oneRegion, upstream: pages})
		w.once()
		if files := w.files(); asked != 4 || len(files) != 1 || strings.HasSuffix(files[0], partialSuffix) {
			t.Errorf("after %d pages: %v", asked, files)
		}
	})
}

// killVariable holds what the process that is killed needs: folder and address.
const killVariable = "QUOTACTL_TEST_KILLED"

// A process killed in the middle of a page leaves whole pages under the
// partial name alone.
func TestAKilledRunLeavesNoFinalFile(t *testing.T) {
	effort.Processes(t)
	if given := os.Getenv(killVariable); given != "" {
		address, _ := strings.CutPrefix(given, "at ")
		w := newWorld(t, setup{job: oneRegion})
		w.options.Transport = nil
		w.list[0].Fetch.URL = address + "/?regionCode={region}"
		must.Get(os.Stdout.WriteString("\nFOLDER " + w.dir + "\n"))(t)
		w.once()
		t.Fatal("the run came to an end")
	}
	third := make(chan struct{})
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked < 3 {
			_, _ = w.Write([]byte(`{"nextPageToken":` + string('0'+rune(asked)) + `}`))
			return
		}
		_, _ = w.Write([]byte(`{"half":`))
		w.(http.Flusher).Flush()
		close(third)
		<-r.Context().Done()
	}))
	defer server.Close()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAKilledRunLeavesNoFinalFile$")
	child.Env = append(os.Environ(), killVariable+"=at "+server.URL, "TMPDIR="+t.TempDir())
	out := must.Get(child.StdoutPipe())(t)
	must.Do(t, child.Start())
	var folder string
	for lines := bufio.NewScanner(out); folder == "" && lines.Scan(); {
		folder, _ = strings.CutPrefix(lines.Text(), "FOLDER ")
		if folder == lines.Text() {
			folder = ""
		}
	}
	<-third
	must.Do(t, child.Process.Kill())
	_ = child.Wait() // it was killed, which is its error
	found, err := filepath.Glob(filepath.Join(folder, "data/trending/US/*"))
	if err != nil || len(found) != 1 || !strings.HasSuffix(found[0], partialSuffix) {
		t.Fatalf("left behind in %s: %v, %v", folder, found, err)
	}
	if text, err := os.ReadFile(found[0]); err != nil || string(text) != "{\"nextPageToken\":1}\n{\"nextPageToken\":2}\n" {
		t.Errorf("it holds %q: %v", text, err)
	}
}
