package jobs

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// flaky is an upstream of one page that answers in turn, then well.
type flaky struct {
	answers []http.Handler
	asked   []time.Duration // since it began
	began   time.Time
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := len(f.asked)
	f.asked = append(f.asked, time.Since(f.began))
	if at < len(f.answers) {
		f.answers[at].ServeHTTP(w, r)
		return
	}
	_, _ = io.WriteString(w, "{}")
}

// fails makes an upstream that answers so many times as told.
func fails(times int, answer http.Handler) *flaky {
	return &flaky{answers: slices.Repeat([]http.Handler{answer}, times)}
}

// retried is a world in which the waits are three quarters of the whole.
func retried(t *testing.T, upstream *flaky, s setup) *world {
	t.Helper()
	if !strings.Contains(s.job, "regions") {
		s.job += "\n" + oneRegion
	}
	s.upstream = upstream
	w := newWorld(t, s)
	w.options.Jitter = func() float64 { return 0.5 }
	upstream.began = time.Now()
	return w
}

var resets = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })

// A failure that may pass by itself is tried again after waits that double, each try charged.
func TestAFailedPageIsTriedAgain(t *testing.T) {
	for name, answer := range map[string]http.Handler{
		"500": answering(500, "", ""), "502": answering(502, "", "<html>"), "503": answering(503, "Retry-After: 1", ""), "504": answering(504, "", ""), "600": answering(600, "", ""), "999": answering(999, "", "<html>"),
		"408": answering(408, "", ""), "429": answering(429, "", ""), "429 for nothing": answering(429, "Retry-After: 0", ""), "425": answering(425, "", ""), "no answer": resets,
		"a body that ends early": answering(200, "", `{"items":[1,`), "none": answering(200, "", ""),
	} {
		inBubble(t, name, func(t *testing.T) {
			upstream := fails(2, answer)
			w := retried(t, upstream, setup{job: "retries = 3\nretry_wait = \"4s\""})
			p := w.once()
			if run := p.Runs[0]; run.Outcome != Succeeded || run.Pages != 1 || run.Units != 3 || run.Calls != 3 || run.Attempts != 3 || w.used() != 3 {
				t.Errorf("run %+v, want three requests for a page", run)
			}
			check.EqualSlices(t, upstream.asked, []time.Duration{0, 3 * time.Second, 9 * time.Second}, "asked at")
			w.logged("level=WARN", "failed; trying again", "region=US", "attempt=2", "wait=3s")
			w.logged("failed; trying again", "attempt=3", "wait=6s")
			w.secretless(p)
		})
	}
}

// cutBodies ends the bodies that are marked in an error.
type cutBodies struct{ http.Handler }

func (b cutBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := direct{b.Handler}.RoundTrip(r)
	if err == nil && resp.Header.Get("X-Cut") != "" {
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"nextPageToken"`), endsEarly{}))
	}
	return resp, err
}

type endsEarly struct{}

func (endsEarly) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestABodyThatWasCutIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := fails(1, answering(200, "X-Cut: 1", ""))
		w := retried(t, upstream, setup{job: "retries = 1"})
		w.options.Transport = cutBodies{upstream}
		if run := w.once().Runs[0]; run.Outcome != Succeeded || run.Units != 2 || run.Attempts != 2 {
			t.Errorf("run %+v", run)
		}
		check.EqualSlices(t, upstream.asked, []time.Duration{0, 3750 * time.Millisecond}, "asked at") // of the 5 s that are usual
	})
}

// What no wait mends is not asked for again.
func TestWhatDoesNotPassIsNotTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		upstream *flaky
		limit    int64
		job      string
		change   func(*world)
		reason   string
		asked    int
	}{
		"400":              {upstream: fails(1, answering(400, "", "")), reason: "status 400", asked: 1},
		"401":              {upstream: fails(1, answering(401, "", "")), reason: "status 401", asked: 1},
		"404":              {upstream: fails(1, answering(404, "", "")), reason: "status 404", asked: 1},
		"410":              {upstream: fails(1, answering(410, "", "")), reason: "status 410", asked: 1},
		"429 for long":     {upstream: fails(1, answering(429, "Retry-After: 31", "")), reason: ReasonUpstream, asked: 1},
		"429 until later":  {upstream: fails(1, answering(429, "Retry-After: Sat, 01 Jan 2000 00:01:00 GMT", "")), reason: ReasonUpstream, asked: 1},
		"429 for ages":     {upstream: fails(1, answering(429, "Retry-After: 99999999999999999999", "")), reason: ReasonUpstream, asked: 1},
		"302":              {upstream: fails(1, answering(302, "Location: /", "")), reason: "status 302", asked: 1},
		"no JSON":          {upstream: fails(1, answering(200, "", "<html>")), reason: ReasonBody, asked: 1},
		"more than a body": {upstream: fails(1, answering(200, "", "{} {}")), reason: ReasonBody, asked: 1},
		"503 for long":     {upstream: fails(1, answering(503, "Retry-After: 31", "")), reason: "status 503", asked: 1},
		"503 until later":  {upstream: fails(1, answering(503, "Retry-After: Sat, 01 Jan 2000 00:01:00 GMT", "")), reason: "status 503", asked: 1},
		"exhausted":        {upstream: fails(9, answering(500, "", "")), limit: 2, reason: ReasonLimit, asked: 2},
		"no secret": {upstream: fails(0, nil), change: func(w *world) {
			w.options.Env = func(string) (string, bool) { return "", false }
		}, reason: ReasonSecret},
		"longer than the timeout": {upstream: fails(1, answering(500, "", "")), job: "timeout = \"3s\"\n", reason: "status 500", asked: 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := retried(t, test.upstream, setup{job: test.job + "retries = 10\nretry_wait = \"4s\"", limit: test.limit})
			if test.change != nil {
				test.change(w)
			}
			p := w.once()
			if run := p.Runs[0]; run.Reason != test.reason || len(test.upstream.asked) != test.asked || run.Calls != test.asked {
				t.Errorf("run %+v, asked at %v", run, test.upstream.asked)
			}
		})
	}
}

// The tries are those of the run, not of each page.
func TestRetriesAreOfTheWholeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := func(n int) http.Handler { return answering(200, "", fmt.Sprintf(`{"nextPageToken":"%d"}`, n)) }
		bad := answering(503, "", "")
		upstream := &flaky{answers: []http.Handler{bad, good(1), bad, good(2), good(3), bad}}
		w := retried(t, upstream, setup{job: "retries = 2\nretry_wait = \"4s\""})
		p := w.once()
		run := p.Runs[0]
		if run.Outcome != Failed || run.Reason != "status 503" || run.Pages != 3 || run.Units != 6 || run.Attempts != 3 {
			t.Errorf("run %+v", run)
		}
		check.EqualSlices(t, upstream.asked, []time.Duration{0, 3 * time.Second, 3 * time.Second, 9 * time.Second, 9 * time.Second, 9 * time.Second}, "asked at")
	})
}

// The waits grow no longer than five minutes; what the upstream asks for is waited
// for, where it is no longer than max_wait.
func TestWaitsBeforeATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := fails(3, answering(500, "", ""))
		w := retried(t, upstream, setup{job: "retries = 3\nretry_wait = \"2m\"\ntimeout = \"1h\""})
		w.options.Jitter = func() float64 { return 0 }
		w.succeeds()
		check.EqualSlices(t, upstream.asked, []time.Duration{0, time.Minute, 3 * time.Minute, 5*time.Minute + 30*time.Second}, "asked at")
	})
	synctest.Test(t, func(t *testing.T) {
		upstream := &flaky{answers: []http.Handler{answering(503, "Retry-After: 20", ""), answering(503, "Retry-After: Sat, 01 Jan 2000 00:00:50 GMT", "")}}
		w := retried(t, upstream, setup{job: "retries = 2\nretry_wait = \"4s\""})
		w.succeeds()
		check.EqualSlices(t, upstream.asked, []time.Duration{0, 20 * time.Second, 50 * time.Second}, "asked at")
	})
}

// A drain ends the wait before a try, and the record tells what had failed.
func TestADrainEndsAWaitForATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := fails(9, answering(503, "", ""))
		w := retried(t, upstream, setup{job: "retries = 9\nretry_wait = \"1m\""})
		p := w.drained(7 * time.Second)
		if run := p.Runs[0]; run.Outcome != Drained || run.Reason != ReasonStop || !strings.Contains(run.Error, "answered 503") {
			t.Errorf("run %+v", run)
		}
		if took := time.Since(upstream.began); took != 7*time.Second || len(upstream.asked) != 1 {
			t.Errorf("%s and %d requests, want 7s and one", took, len(upstream.asked))
		}
	})
}

// A pass whose claim is gone tries nothing again.
func TestALostPassTriesNothingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := fails(9, answering(503, "", ""))
		w := retried(t, upstream, setup{job: "retries = 9\nretry_wait = \"3m\"\ntimeout = \"1h\""})
		r := w.runner()
		time.AfterFunc(20*time.Second, func() { w.takesForDead(r) })
		p := r.Once(t.Context(), nil)[0]
		if run := p.Runs[0]; run.Outcome != Lost || run.Reason != ReasonFenced || len(upstream.asked) != 1 {
			t.Errorf("run %+v, asked at %v", run, upstream.asked)
		}
		check.Equal(t, time.Since(upstream.began), 30*time.Second, "took, want the second heartbeat")
	})
}

// Nor does one that is fenced off by then.
func TestAFencedPassTriesNothingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := fails(9, answering(503, "", ""))
		w := retried(t, upstream, setup{job: "retries = 9\nretry_wait = \"4s\""})
		time.AfterFunc(time.Second, func() {
			check.NoError(t, w.options.Budgets["youtube/key1"].Fence(t.Context(), "trending", w.state().Active[0].Fence))
		})
		if run := w.once().Runs[0]; run.Outcome != Lost || run.Reason != ReasonFenced || len(upstream.asked) != 1 {
			t.Errorf("run %+v, asked at %v", run, upstream.asked)
		}
	})
}

// counts is a script that notes each time it is started.
const counts = `echo x >>starts; n=$(wc -l <starts); `

// starts is how often it was.
func (w *world) starts() int {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "starts"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return strings.Count(string(text), "x")
}

// A command that failed is started again, as often as the job says; one that has
// said that the units are gone, or could not be started, is not.
func TestACommandIsTriedAgain(t *testing.T) {
	for script, want := range map[string]struct {
		Run
		starts int
	}{
		"exit 0":                           {Run{Outcome: Succeeded, Attempts: 1}, 1},
		"test $n -ge 3 || exit 4":          {Run{Outcome: Succeeded, Attempts: 3}, 3},
		"test $n -ge 2 || kill -9 $$":      {Run{Outcome: Succeeded, Attempts: 2}, 2},
		"exit 4":                           {Run{Outcome: Failed, Reason: "exit 4", Attempts: 3}, 3},
		"exit 75":                          {Run{Outcome: Exhausted, Reason: "exit 75", Attempts: 1}, 1},
		"test $n -ge 2 && exit 75; exit 1": {Run{Outcome: Exhausted, Reason: "exit 75", Attempts: 2}, 2},
	} {
		w := commandWorld(t, "retries = 2", counts+script)
		w.list[0].RetryWait = time.Millisecond
		got := w.onlyRun()
		if got.Outcome != want.Outcome || got.Reason != want.Reason || got.Attempts != want.Attempts || w.starts() != want.starts {
			t.Errorf("%s: %+v after %d starts, want %+v", script, got, w.starts(), want)
		}
		if want.Attempts > 1 {
			w.logged("level=WARN", "failed; trying again", "attempt=2", "region=")
		}
	}
	w := commandWorld(t, "retries = 2", "")
	w.list[0].Command = []string{"./not-there"}
	if run := w.onlyRun(); run.Reason != ReasonCommand || run.Attempts != 1 {
		t.Errorf("%+v, want one try to start it", run)
	}
}

// The run's timeout is that of all its tries, and nothing is tried again past it.
func TestACommandThatTimedOutIsNotTriedAgain(t *testing.T) {
	for timeout, starts := time.Second, 0; starts < 3; timeout *= 2 { // a busy machine may not come to the third try
		must.Equal(t, timeout < patience, true, "the third try begins in time")
		w := commandWorld(t, "retries = 9\ngrace = \"0s\"", counts+`test $n -ge 3 && exec sleep 600; exit 1`)
		w.list[0].RetryWait, w.list[0].Timeout = time.Millisecond, timeout
		run := w.onlyRun()
		if starts = w.starts(); starts > 3 || starts == 3 && (run.Outcome != TimedOut || run.Attempts != 3) {
			t.Fatalf("%+v after %d starts", run, starts)
		}
	}
	w := commandWorld(t, "retries = 9", counts+`exit 1`)
	w.list[0].RetryWait, w.list[0].Timeout = time.Hour, time.Minute
	if run := w.onlyRun(); run.Outcome != Failed || run.Reason != "exit 1" || run.Attempts != 1 {
		t.Errorf("%+v, want it failed at once", run)
	}
}

// What a try has left behind does not run beside the next one.
func TestATryLeavesNothingBesideTheNext(t *testing.T) {
	w := programWorld(t, "retries = 1", "fail", "once")
	w.list[0].RetryWait = time.Millisecond
	listener := w.listen()
	ended := w.begin(t.Context(), nil)
	parent, child := w.callers(listener)
	parent.letGo()
	child.ends()
	if run := result(t, ended).Runs[0]; run.Outcome != Succeeded || run.Attempts != 2 {
		t.Errorf("%+v", run)
	}
}

// A command whose pass is declared dead is not started again: it may have failed by
// that.
func TestACommandOfALostPassIsNotTriedAgain(t *testing.T) {
	for _, retries := range []string{"", "retries = 9"} {
		w := programWorld(t, retries, "call", "there", "exit")
		w.list[0].RetryWait = time.Millisecond
		listener := w.listen()
		r := w.runner()
		ended := make(chan Pass, 1)
		go func() { ended <- r.Once(t.Context(), nil)[0] }()
		c := w.caller(listener)
		w.takesForDead(r)
		c.letGo()
		c.ends()
		if run := result(t, ended).Runs[0]; run.Outcome != Lost || run.Reason != ReasonFenced {
			t.Errorf("%q: %+v, want it lost", retries, run)
		}
		must.Do(t, listener.SetDeadline(time.Now().Add(10*time.Millisecond))) // who has called in waits there
		if conn, err := listener.Accept(); err == nil {
			t.Errorf("%q: it was started again", retries)
			_ = conn.Close()
		}
	}
}
