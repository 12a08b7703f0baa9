package jobs

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A response that a rule calls a refusal is no page, whatever its status and whatever the
// rule means: an overloaded upstream is asked again, anything else ends the run.
func TestARefusalIsNoPage(t *testing.T) {
	const rules = `
[upstream.youtube.refusal.busy]
means = "overloaded"
json  = { "code" = "BUSY" }
[upstream.youtube.refusal.slow]
means = "throttled"
json  = { "code" = "SLOW" }
lock  = "10s"
[upstream.youtube.refusal.spent]
means = "exhausted"
json  = { "code" = "SPENT" }
`
	for name, test := range map[string]struct {
		upstream *flaky
		outcome  Outcome
		reason   string
		calls    int
	}{
		"overloaded, then a page":  {fails(2, answering(200, "", `{"code":"BUSY"}`)), Succeeded, "", 3},
		"overloaded, which lasts":  {fails(9, answering(200, "", `{"code":"BUSY"}`)), Failed, "status 200", 4},
		"overloaded for long":      {fails(1, answering(200, "Retry-After: 31", `{"code":"BUSY"}`)), Failed, "status 200", 1},
		"overloaded with 403":      {fails(1, answering(403, "", `{"code":"BUSY"}`)), Succeeded, "", 2},
		"overloaded with 429":      {fails(9, answering(429, "Retry-After: 1", `{"code":"BUSY"}`)), Failed, "status 429", 4},
		"overloaded with 999":      {fails(1, answering(999, "", `{"code":"BUSY"}`)), Succeeded, "", 2},
		"overloaded, of a cache":   {fails(1, answering(200, "Age: 7", `{"code":"BUSY"}`)), Succeeded, "", 2},
		"throttled, then a page":   {fails(2, answering(200, "", `{"code":"SLOW"}`)), Succeeded, "", 3},
		"throttled, which lasts":   {fails(9, answering(200, "", `{"code":"SLOW"}`)), Exhausted, ReasonUpstream, 4},
		"throttled, of a cache":    {fails(2, answering(200, "Age: 7", `{"code":"SLOW"}`)), Succeeded, "", 3},
		"exhausted":                {fails(1, answering(200, "", `{"code":"SPENT"}`)), Exhausted, ReasonUpstream, 1},
		"exhausted, of a cache":    {fails(1, answering(200, "Age: 7", `{"code":"SPENT"}`)), Exhausted, ReasonUpstream, 1},
		"overloaded, with an ETag": {fails(1, answering(200, `ETag: "1"`, `{"code":"BUSY"}`)), Succeeded, "", 2},
		"a page":                   {fails(0, nil), Succeeded, "", 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := retried(t, test.upstream, setup{job: "retries = 3", more: rules})
			run := w.once().Runs[0]
			if run.Outcome != test.outcome || run.Reason != test.reason || run.Calls != test.calls {
				t.Fatalf("run %+v, want %s %s after %d calls", run, test.outcome, test.reason, test.calls)
			}
			if run.Outcome != Succeeded {
				check.Equal(t, len(w.files()), 0, "files, of no page")
				return
			}
			kept := readFile(t, run.Output)
			check.Equal(t, kept, "{}\n", "output")
		})
	}
}

// tells are rules for what the upstream says about its quota.
const tells = `
[upstream.youtube.refusal.spent]
means  = "exhausted"
status = 403
json   = { "error.errors.#.reason" = "quotaExceeded" }
reset  = { header = "x-reset", as = "seconds" }
[upstream.youtube.refusal.burst]
means  = "throttled"
status = 429
reset  = { header = "retry-after" }
[upstream.youtube.refusal.graphql]
means = "exhausted"
json  = { "errors.#.type" = "RATE_LIMITED" }
lock  = "3h"
`

const spentBody = `{"error":{"errors":[{"domain":"youtube.quota","reason":"quotaExceeded"}],"message":"You have exceeded your quota."}}`

// An upstream that says that the quota is spent ends the pass as exhausted, and
// locks the budget for the next ones too: nothing more is sent until the reset.
func TestTheUpstreamIsExhausted(t *testing.T) {
	for _, test := range []struct {
		name, header, body string
		status             int
		lasts              time.Duration
	}{
		{"403", "X-Reset: 7200", spentBody, 403, 2 * time.Hour},
		{"200", "", `{"errors":[{"type":"RATE_LIMITED"}]}`, 200, 3 * time.Hour},
		{"429 for long", "Retry-After: 3600", "", 429, time.Hour},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			upstream := &recorded{Handler: answering(test.status, test.header, test.body)}
			w := newWorld(t, setup{upstream: upstream, more: tells})
			p := w.once()
			if p.Outcome != Exhausted || p.Reason != ReasonUpstream || p.Units != 1 {
				t.Fatalf("pass %+v, want exhausted by the upstream for one unit", p)
			}
			if first := p.Runs[0]; first.Calls != 1 || first.Error == "" || len(w.files()) != 0 {
				t.Errorf("run %+v, files %v", first, w.files())
			}
			for _, run := range p.Runs[1:] {
				if run.Calls != 0 || run.Outcome != Skipped && run.Outcome != Exhausted {
					t.Errorf("run %+v, want it not started", run)
				}
			}
			status, err := w.options.Budgets["youtube/key1"].Status(t.Context())
			lock, locked := status.LockOf("")
			if err != nil || !locked || time.Until(lock.Until) != test.lasts {
				t.Fatalf("lock %+v, %v; want it for %s", lock, err, test.lasts)
			}
			if p = w.once(); p.Outcome != Exhausted || p.Reason != ReasonUpstream || p.Units != 0 {
				t.Errorf("the next pass %+v, want it not begun", p)
			}
			check.Equal(t, upstream.count(), 1, "requests")
			w.secretless(p)
		})
	}
}

// A short throttle is waited out, each request charged; one that does not end is
// given up.
func TestTheUpstreamThrottles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		w := newWorld(t, setup{job: oneRegion, more: tells, upstream: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) <= 2 {
				rw.Header().Set("Retry-After", "5")
				rw.WriteHeader(http.StatusTooManyRequests)
				return
			}
			_, _ = rw.Write([]byte(`{}`))
		})})
		began := time.Now()
		p := w.once()
		if run := p.Runs[0]; run.Outcome != Succeeded || run.Pages != 1 || run.Units != 3 || run.Calls != 3 {
			t.Errorf("run %+v, want three requests and a page", run)
		}
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("it took %s, want two waits of 5 s", took)
		}
		asked.Store(-100)
		p = w.once()
		if run := p.Runs[0]; run.Outcome != Exhausted || run.Reason != ReasonUpstream || run.Calls != 1+maxThrottled {
			t.Errorf("run %+v, want it given up after %d more", run, maxThrottled)
		}
	})
}

// What a page cost is what its response says.
func TestPagesAreSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{
			job: oneRegion, cost: `{ units = 10, actual = { json = "usage.units" } }`, limit: 100,
			upstream: answering(200, "", `{"usage":{"units":37}}`),
		})
		p := w.once()
		if run := p.Runs[0]; run.Outcome != Succeeded || run.Units != 37 || run.Calls != 1 {
			t.Errorf("run %+v, want 37 units", run)
		}
		check.Equal(t, w.usedOf(), 37, "used")
	})
}

// slowToFinish is a store that takes a second to settle.
type slowToFinish struct{ driver.Store }

func (s slowToFinish) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	time.Sleep(time.Second)
	return s.Store.Finish(ctx, f)
}

// What a page cost that was not read to its end is in the run's record, too.
func TestAPageThatIsNotReadToItsEndIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{
			job: oneRegion, cost: `{ units = 10, actual = [{ json = "usage.units" }, { header = "x-cost" }] }`, limit: 100,
			upstream: answering(200, "X-Cost: 7", `{"x":"`+strings.Repeat("x", 200_000)+`"}`),
		})
		spec := w.options.Budgets["youtube/key1"].Spec()
		spec.Timeout = time.Minute
		var err error
		w.options.Budgets["youtube/key1"], err = budget.New(slowToFinish{w.store}, spec)
		must.Do(t, err)
		r := w.runner()
		r.maxBody = 100
		if run := r.Once(t.Context(), nil)[0].Runs[0]; run.Reason != ReasonBody || run.Units != 7 || run.Calls != 1 {
			t.Errorf("run %+v, want 7 units", run)
		}
		check.Equal(t, w.usedOf(), 7, "used")
	})
}

// refusing is a network that makes no connection.
type refusing struct{ asked atomic.Int64 }

func (r *refusing) dial(context.Context, string, string) (net.Conn, error) {
	r.asked.Add(1)
	return nil, errors.New("connection refused")
}

// A request that never left costs nothing.
func TestWhatNeverLeftIsReleased(t *testing.T) {
	network := &refusing{}
	w := newWorld(t, setup{job: oneRegion})
	w.options.Transport = &http.Transport{DialContext: network.dial}
	p := w.once()
	if run := p.Runs[0]; run.Outcome != Failed || run.Reason != ReasonNetwork || run.Units != 0 || run.Calls != 1 {
		t.Errorf("run %+v, want it failed for no units", run)
	}
	if used := w.usedOf(); used != 0 || network.asked.Load() != 1 {
		t.Errorf("%d used after %d attempts, want 0 after 1", used, network.asked.Load())
	}
}

// A person's lock keeps passes from beginning, and says why.
func TestALockByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		order := budget.LockOrder{Until: budget.Until{After: time.Hour}, Why: "quota increase pending", ByHand: true}
		must.Get(w.options.Budgets["youtube/key1"].Lock(t.Context(), order))(t)
		p := w.once()
		if p.Outcome != Exhausted || p.Reason != ReasonUpstream || p.Units != 0 || !strings.Contains(p.Runs[0].Error, "quota increase pending") {
			t.Errorf("pass %+v", p)
		}
		check.Contains(t, w.log.String(), `locked="quota increase pending"`, "the log says")
	})
}

// usedOf is what the only limit has used.
func (w *world) usedOf() int64 {
	w.t.Helper()
	status, err := w.options.Budgets["youtube/key1"].Status(w.t.Context())
	must.Do(w.t, err)
	return status.Limits[0].Used
}

// In observe mode no lock refuses the next request: what the upstream asks for is
// waited all the same.
func TestThrottledWhereOnlyObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{Handler: answering(http.StatusTooManyRequests, "Retry-After: 20", "{}")}
		w := newWorld(t, setup{job: oneRegion, upstream: upstream, more: `
[upstream.youtube]
mode = "observe"
[upstream.youtube.refusal.rate]
means = "throttled"
status = 429
reset = { header = "retry-after" }
`})
		p := w.once()
		check.EqualSlices(t, outcomes(p), []string{"US exhausted upstream"}, "outcomes")
		for i, q := range upstream.requests {
			if want := upstream.requests[0].at.Add(time.Duration(i) * 20 * time.Second); q.at.Before(want) {
				t.Errorf("request %d at %s, want %s or later", i, q.at, want)
			}
		}
		check.Equal(t, upstream.count(), 1+maxThrottled, "requests")
	})
}

// What requests under way hold comes back when they end, not with their leases: a
// region that is refused because of them is no end of the pass.
func TestRequestsUnderWayAreWaitedFor(t *testing.T) {
	for _, limit := range []string{"limit = 2\nwindow = \"1s\"", "limit = 2\nconcurrent = true"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{
				job: "parallel = 8", more: "[upstream.youtube.limit.few]\n" + limit,
				upstream: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
					after(200 * time.Millisecond)
					_, _ = rw.Write([]byte("{}"))
				}),
			})
			for _, run := range w.once().Runs {
				check.Equal(t, run.Outcome, Succeeded, limit, run)
			}
		})
	}
}

// A 429 that says when to come back is throttling, though no rule says so: it is
// waited out, as long as max_wait allows, and then as often as the run has retries.
func TestThrottledWithoutARule(t *testing.T) {
	for name, c := range map[string]struct {
		times   int
		answer  http.Handler
		retries int
		pages   int
		asked   []time.Duration
	}{
		"once":         {1, answering(429, "Retry-After: 20", ""), 0, 1, []time.Duration{0, 20 * time.Second}},
		"with decimal": {1, answering(429, "Retry-After: 2.5", ""), 0, 1, []time.Duration{0, 2500 * time.Millisecond}},
		"by a date":    {1, answering(429, "Retry-After: Sat, 01 Jan 2000 00:00:20 GMT", ""), 0, 1, []time.Duration{0, 20 * time.Second}},
		"for ever":     {9, answering(429, "Retry-After: 20", ""), 0, 0, []time.Duration{0, 20 * time.Second, 40 * time.Second, time.Minute}},
		"with retries": { // of which the waits are three quarters of 40 s, of 80 s
			5, answering(429, "Retry-After: 20", ""), 2, 1,
			[]time.Duration{0, 20 * time.Second, 40 * time.Second, time.Minute, 90 * time.Second, 150 * time.Second},
		},
		"too long":     {9, answering(429, "Retry-After: 31", ""), 5, 0, []time.Duration{0}},
		"after a fine": {3, answering(429, "Retry-After: 30", ""), 0, 1, []time.Duration{0, 30 * time.Second, time.Minute, 90 * time.Second}},
	} {
		inBubble(t, name, func(t *testing.T) {
			upstream := fails(c.times, c.answer)
			w := retried(t, upstream, setup{job: fmt.Sprintf("retries = %d\nretry_wait = \"40s\"", c.retries)})
			p := w.once()
			run := p.Runs[0]
			if run.Pages != c.pages || run.Calls != len(c.asked) || (run.Outcome == Succeeded) != (c.pages > 0) {
				t.Errorf("run %+v", run)
			}
			check.EqualSlices(t, upstream.asked, c.asked, "asked at")
			if c.pages == 0 && (run.Outcome != Exhausted || run.Reason != ReasonUpstream || !strings.Contains(run.Error, "no refusal rule fits")) {
				t.Errorf("run %+v, want it exhausted by the upstream", run)
			}
			w.logged("level=WARN", "no refusal rule fits", "region=US")
			if status, err := w.options.Budgets["youtube/key1"].Status(t.Context()); err != nil || len(status.Locks) > 0 {
				t.Errorf("locks %+v, %v", status.Locks, err)
			}
		})
	}
}

// Parts of a response that cannot be read are logged and counted, run by run.
func TestUnreadResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &unreadObserver{}
		w := newWorld(t, setup{
			job: oneRegion, cost: `{ units = 10, actual = { json = "usage.units" } }`, limit: 100,
			upstream: answering(200, "", `{"usage":{"units":"`+secretKey+`"}}`),
		})
		w.options.Observe = seen
		p := w.once()
		if run := p.Runs[0]; run.Outcome != Succeeded || run.Units != 10 {
			t.Errorf("run %+v, want what was charged", run)
		}
		want := budgethttp.Unread{Operation: "videos.list", What: budgethttp.UnreadActual, Place: "json usage.units", Why: "it is not a number"}
		check.EqualSlices(t, seen.unread, []budgethttp.Unread{want}, "unread")
		check.EqualSlices(t, seen.answered, []string{"trending videos.list"}, "answered")
		w.logged("level=WARN", "could not be read", "what=actual", "region=US", "operation=videos.list")
		for line := range strings.Lines(w.log.String()) {
			if strings.Contains(line, "could not be read") && strings.Count(line, "budget=") != 1 {
				t.Errorf("logged %s, want the budget once", line)
			}
		}
		if strings.Contains(w.log.String(), secretKey) { // the output has what the upstream sent
			t.Errorf("the log holds what was received:\n%s", w.log.String())
		}
	})
}

// A page whose checksum is wrong settles what was charged, and is reported (where net/http
// unpacks it too: see budgethttp).
func TestDamagedResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &unreadObserver{}
		var packed bytes.Buffer
		p := gzip.NewWriter(&packed)
		must.Get(p.Write([]byte(`{"usage":{"units":2},"items":[]}`)))(t)
		must.Do(t, p.Close())
		body := packed.Bytes()
		body[len(body)-8] ^= 1 // of the checksum
		w := newWorld(t, setup{
			job: oneRegion, cost: `{ units = 10, actual = { json = "usage.units" } }`, limit: 10,
			upstream: answering(200, "Content-Encoding: gzip", string(body)),
		})
		w.options.Observe = seen
		if run := w.once().Runs[0]; run.Outcome == Succeeded || run.Units != 10 {
			t.Errorf("run %+v, want it failed and what was charged", run)
		}
		want := budgethttp.Unread{Operation: "videos.list", What: budgethttp.UnreadBody, Why: "the body is damaged, or not in the encoding that its header names"}
		check.EqualSlices(t, seen.unread, []budgethttp.Unread{want}, "unread")
		w.logged("level=WARN", "could not be read", "what=body", "region=US", "operation=videos.list")
	})
}

// unreadObserver notes what could not be read.
type unreadObserver struct {
	nobody
	unread   []budgethttp.Unread
	answered []string
}

func (o *unreadObserver) UpstreamAnswered(job *Job, operation string, _ time.Duration) {
	o.answered = append(o.answered, job.Name+" "+operation)
}

func (o *unreadObserver) ResponseUnread(_ *Job, u budgethttp.Unread) { o.unread = append(o.unread, u) }
