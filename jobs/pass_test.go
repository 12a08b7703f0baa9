package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// served is what the sandbox answers for a region, a compact line a page.
func served(t *testing.T, region string) string {
	t.Helper()
	upstream := must.Get(sandbox.New(sandbox.Config{}))(t)
	query := url.Values{"key": {"k"}, "part": {"snippet,statistics"}, "chart": {"mostPopular"}, "maxResults": {"50"}, "regionCode": {region}}
	var lines bytes.Buffer
	for {
		answer := httptest.NewRecorder()
		upstream.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/youtube/v3/videos?"+query.Encode(), nil))
		body := answer.Body.Bytes()
		must.Do(t, json.Compact(&lines, body))
		lines.WriteByte('\n')
		var page struct{ NextPageToken string }
		must.Do(t, json.Unmarshal(body, &page))
		if page.NextPageToken == "" {
			must.Do(t, upstream.Close())
			return lines.String()
		}
		query.Set("pageToken", page.NextPageToken)
	}
}

func TestAPassFetchesEveryRegionInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{upstream: upstream})
		p := w.once()
		if p.Outcome != Succeeded || p.Units != 32 || p.Job != "trending" {
			t.Fatalf("pass %s of %d units: %v\n%s", p.Outcome, p.Units, p.Runs, w.log)
		}
		check.EqualSlices(t, upstream.firsts(), allRegions, "order")
		for i, run := range p.Runs {
			if run.Region != allRegions[i] || run.Pages != 4 || run.Units != 4 || run.Calls != 4 {
				t.Errorf("run %d: %+v", i, run)
			}
			want := filepath.Join(w.dir, "data/trending", run.Region, p.Tick.Format(TickFormat)+".ndjson")
			check.Equal(t, run.Output, want, "output")
			got := readFile(t, want)
			check.Equal(t, got, served(t, run.Region), "region", run.Region, "the file is not what the sandbox served")
		}
		if u := w.sandbox.Usage(); u.Units != 32 || u.Requests != 32 || u.Rejected != 0 {
			t.Errorf("sandbox counted %+v", u)
		}
		check.Equal(t, w.used(), 32, "ledger counted … units")
		check.Equal(t, len(w.files()), 8, "files", w.files())
	})
}

// The limit cuts the fourth pass in the middle of its first region: what was
// fetched is kept, nothing after it is started, and the next pass begins with
// the first region that was not.
func TestThePassIsCutExactlyAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{limit: 98, quota: 98, upstream: upstream})
		for i := range 3 {
			if p := w.once(); p.Outcome != Succeeded || p.Units != 32 {
				t.Fatalf("pass %d: %s, %d units", i+1, p.Outcome, p.Units)
			}
		}
		upstream.forget()
		p := w.once()
		if p.Outcome != Exhausted || p.Reason != ReasonLimit || p.Units != 2 {
			t.Errorf("fourth pass: %s (%s), %d units; want exhausted (limit), 2 units", p.Outcome, p.Reason, p.Units)
		}
		want := []string{"US exhausted limit"}
		for _, region := range allRegions[1:] {
			want = append(want, region+" skipped exhausted")
		}
		check.EqualSlices(t, outcomes(p), want, "runs")
		cut := p.Runs[0]
		if cut.Pages != 2 || cut.Units != 2 || !strings.HasSuffix(cut.Output, ".ndjson.partial") {
			t.Errorf("the region that was cut: %+v", cut)
		}
		kept := readFile(t, cut.Output)
		whole := slices.Collect(strings.Lines(served(t, "US")))
		check.Equal(t, kept, whole[0]+whole[1], "what was kept is not the first two pages")
		if _, err := os.Stat(strings.TrimSuffix(cut.Output, ".partial")); !os.IsNotExist(err) {
			t.Errorf("a cut run has a file under its final name: %v", err)
		}
		check.EqualSlices(t, upstream.firsts(), []string{"US"}, "regions asked for")
		if u := w.sandbox.Usage(); u.Units != 98 || u.Rejected != 0 {
			t.Errorf("sandbox counted %+v, want 98 units and none rejected", u)
		}
		check.Equal(t, w.used(), 98, "ledger has … units")
		w.nextIs("US")
		w.logged("msg=refused", "job=trending", "budget=youtube/key1", "region=US", "operation=videos.list",
			"run=trending/"+p.Tick.Format(TickFormat)+"/US", "retry_at=2000-01-02T00:00:00.000000Z")

		after(24 * time.Hour)
		upstream.forget()
		w.succeeds()
		check.EqualSlices(t, upstream.firsts(), allRegions, "order of the next pass")
		w.nextIs("")
	})
}

// When what a region needs does not fit at its start, it is not started: it
// costs nothing, leaves no file, and is the next pass's first.
func TestARegionThatDoesNotFitIsNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{limit: 100, quota: 100})
		for range 3 {
			w.once()
		}
		p := w.once()
		want := []string{"US succeeded", "GB exhausted limit"}
		for _, region := range allRegions[2:] {
			want = append(want, region+" skipped exhausted")
		}
		check.EqualSlices(t, outcomes(p), want, "runs")
		if run := p.Runs[1]; run.Units != 0 || run.Pages != 0 || run.Output != "" || run.Error == "" {
			t.Errorf("the region that did not fit: %+v", run)
		}
		if u := w.sandbox.Usage(); u.Units != 100 || u.Rejected != 0 {
			t.Errorf("sandbox counted %+v", u)
		}
		w.nextIs("GB")
		check.Equal(t, len(w.files()), 25, "files")
		before := w.sandbox.Usage()
		if p := w.once(); p.Outcome != Exhausted || p.Runs[0].Region != "GB" || w.sandbox.Usage() != before {
			t.Errorf("a pass on a spent budget: %s %v", p.Outcome, outcomes(p))
		}
	})
}

// With the limiter out of the way the same sandbox refuses, and says so: the
// count of none rejected is worth something.
func TestWithoutALimitTheUpstreamRejects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{limit: 1_000_000, quota: 98})
		for range 3 {
			w.once()
		}
		p := w.once()
		check.Equal(t, p.Outcome, Failed, "pass")
		check.Equal(t, p.Reason, "status 403", "pass")
		want := make([]string, 0, len(allRegions))
		for _, region := range allRegions {
			want = append(want, region+" failed status 403")
		}
		check.EqualSlices(t, outcomes(p), want, "runs")
		if u := w.sandbox.Usage(); u.Units != 98 || u.Rejected != 8 {
			t.Errorf("sandbox counted %+v, want 98 units and 8 rejected", u)
		}
		check.Contains(t, p.Runs[0].Error, "exceeded your", "error … does not tell what the upstream said")
	})
}

// A refusal that lasts no longer than max_wait is waited out, before a run and
// between its pages.
func TestAShortRefusalIsWaitedOut(t *testing.T) {
	for _, test := range []struct {
		name, wait string
		outcome    Outcome
		took       time.Duration
		pages      int
	}{
		{"as long as the wait", "10s", Succeeded, 10 * time.Second, 4},
		{"a microsecond longer", "9.999999s", Exhausted, 0, 3},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			w := newWorld(t, setup{
				job: `regions = ["US"]` + "\nmax_wait = \"" + test.wait + `"`,
				more: `
[upstream.youtube.limit.burst]
limit = 3
window = "10s"`,
			})
			began := time.Now()
			p := w.once()
			if p.Outcome != test.outcome || p.Runs[0].Pages != test.pages {
				t.Errorf("%s after %d pages, want %s after %d", p.Outcome, p.Runs[0].Pages, test.outcome, test.pages)
			}
			// Entries of one instant stand a microsecond apart, so the
			// first to come back is exactly its window away.
			if took := time.Since(began).Truncate(time.Millisecond); took != test.took {
				t.Errorf("took %s, want %s", took, test.took)
			}
		})
	}
}

func TestARunWaitsForRoomBeforeItStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{
			job:   "regions = [\"US\", \"GB\"]\nneeds = { \"videos.list\" = 4 }",
			fetch: "max_pages = 4",
			more:  "[upstream.youtube.limit.burst]\nlimit = 4\nwindow = \"20s\"", upstream: upstream,
		})
		began := time.Now()
		w.succeeds()
		// The last of the four charges stands 3 µs after the first.
		if at := upstream.requests[4].at.Sub(began); at != 20*time.Second+3*time.Microsecond {
			t.Errorf("the second region started at %s, want all four units back at 20.000003s", at)
		}
		w.logged("refused; waiting", "limit=burst", "retry_at=2000-01-01T00:00:20.000003Z")
	})
}

func TestTheRecordIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: `regions = ["US", "GB"]`})
		p := w.once()
		kept := func(region, output string) string {
			return fmt.Sprintf(`{"region":%q,"outcome":"succeeded","reason":"","started":"2000-01-01T00:00:00.000000Z","ended":"2000-01-01T00:00:00.000000Z",`+
				`"units":4,"calls":4,"spent":[{"operation":"videos.list","units":4,"calls":4}],"pages":4,"attempts":1,"output":%q,"error":""}`, region, output)
		}
		want := fmt.Sprintf(`{"tick":"2000-01-01T00:00:01.000000Z","kind":"manual","outcome":"succeeded","reason":"",`+
			`"started":"2000-01-01T00:00:00.000000Z","ended":"2000-01-01T00:00:00.000000Z","host":%q,"units":8,"error":"","runs":[%s,%s]}`,
			placeOf(newHolder()), kept("US", p.Runs[0].Output), kept("GB", p.Runs[1].Output))
		check.Equal(t, string(w.state().Last), want, "record")
		var read Record
		if err := json.Unmarshal(w.state().Last, &read); err != nil || !read.Tick.Equal(p.Tick.Time) {
			t.Errorf("read back: %v, tick %s", err, read.Tick)
		}
		if state := w.state(); len(state.Active) > 0 || state.LastManual != p.Tick.UnixMicro() || state.Until != 0 {
			t.Errorf("state %+v", state)
		}
	})
}

func TestAtMostParallelRunsGoAtOnce(t *testing.T) {
	for _, test := range []struct {
		parallel string
		want     int
	}{{"", 1}, {"parallel = 3", 3}} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // guards the two below
			running, most := 0, 0
			count := func(by int) {
				mu.Lock()
				defer mu.Unlock()
				running += by
				most = max(most, running)
			}
			w := newWorld(t, setup{job: test.parallel, fetch: "max_pages = 1", upstream: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				count(1)
				after(time.Second)
				count(-1)
				_, _ = rw.Write([]byte("{}"))
			})})
			w.succeeds()
			check.Equal(t, most, test.want, test.parallel, "… at once")
		})
	}
}

// A page that is refused waits in line: a call that comes later and needs less is charged after it,
// although its units are there.
func TestARefusedPageIsNotOvertaken(t *testing.T) {
	inBubble(t, "in line", func(t *testing.T) {
		w := newWorld(t, setup{
			cost: "2",
			job:  `regions = ["US"]` + "\nmax_wait = \"30s\"",
			more: `
[upstream.youtube.limit.burst]
limit = 3
window = "10s"`,
		})
		began := time.Now()
		after := make(chan time.Duration, 1)
		go func() {
			time.Sleep(time.Second)
			one := int64(1)
			receipt, err := w.options.Budgets["youtube/key1"].Wait(t.Context(), budget.Call{Operation: "videos.list", Units: &one})
			check.NoError(t, err)
			after <- receipt.At.Sub(began).Truncate(time.Second)
		}()
		must.Equal(t, w.once().Outcome, Succeeded, "the pass")
		check.Equal(t, <-after, 10*time.Second, "the small call was charged after")
	})
}
