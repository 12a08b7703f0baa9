package jobs

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// herd is a world of jobs of one budget, besides trending, which are named as given, and
// of daemons that may crash.
func newHerd(t *testing.T, s setup, lines string, names ...string) *herd {
	t.Helper()
	for _, name := range names {
		s.more += fmt.Sprintf(`
[job.%s]
budget = "youtube/key1"
on_exhausted = "defer"
%s
[job.%s.fetch]
operation = "videos.list"
url = "https://upstream.test/youtube/v3/videos?regionCode={job}-{region}&tick={tick}"
output = "data/{job}/{region}/{tick}.ndjson"
next_page = { param = "pageToken", from = "nextPageToken" }
`, name, lines, name)
	}
	h := &herd{}
	if s.upstream == nil {
		s.upstream = http.HandlerFunc(h.answer)
	}
	h.world = newWorld(t, s)
	return h
}

type herd struct {
	*world
	daemons []*mortal

	mu       sync.Mutex // guards all below
	takes    func() time.Duration
	pages    int      // of each run, if not one
	started  []string // job and region, and when, since midnight
	running  int
	together int
}

func (h *herd) answer(out http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	page, _ := strconv.Atoi(r.URL.Query().Get("pageToken"))
	body := "{}"
	if page == 0 {
		h.started = append(h.started, fmt.Sprintf("%s %s", r.URL.Query().Get("regionCode"), time.Since(midnight)))
	}
	if page+1 < h.pages {
		body = fmt.Sprintf(`{"nextPageToken":"%d"}`, page+1)
	}
	h.running++
	h.together = max(h.together, h.running)
	wait := time.Duration(0)
	if h.takes != nil {
		wait = h.takes()
	}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.running--
		h.mu.Unlock()
	}()
	select {
	case <-time.After(wait):
		_, _ = out.Write([]byte(body))
	case <-r.Context().Done():
	}
}

// begun are the starts since the last time.
func (h *herd) begun() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.started
	h.started = nil
	return list
}

// charged are the jobs of the charges, in their order.
func (h *herd) charged() (list []string) {
	for line := range strings.Lines(h.log.String()) {
		if _, job, found := strings.Cut(line, "msg=charged job="); found {
			job, _, _ = strings.Cut(job, " ")
			list = append(list, job)
		}
	}
	return list
}

// begin starts a daemon that can crash.
func (h *herd) begin() *mortal {
	ctx, stop := context.WithCancel(h.t.Context())
	d := &mortal{stop: stop, drain: make(chan struct{}), done: make(chan error, 1)}
	options := h.options
	options.State = failing{h.store, d.dead.Load}
	r, err := New(h.list, options)
	must.Do(h.t, err)
	go func() { d.done <- r.Run(ctx, d.drain, false) }()
	h.daemons = append(h.daemons, d)
	return d
}

// crash ends a daemon in such a way that nothing it does reaches the store any more.
func (h *herd) crash(d *mortal) {
	d.dead.Store(true)
	d.stop()
	h.t.Log("crashed:", <-d.done)
	h.daemons = slices.DeleteFunc(h.daemons, func(one *mortal) bool { return one == d })
}

func (h *herd) stopAll() {
	h.t.Helper()
	for _, d := range h.daemons {
		close(d.drain)
		check.NoError(h.t, <-d.done)
	}
	h.daemons = nil
}

// recordsOf are a job's records, the oldest first: "6h0m0s succeeded".
func (h *herd) recordsOf(name string) (list []string) {
	h.t.Helper()
	records := must.Get(History(h.t.Context(), h.store, name, time.Time{}, time.Time{}, 1000))(h.t)
	for _, r := range slices.Backward(records) {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Tick.Sub(midnight), r.Outcome, r.Reason)))
	}
	return list
}

// The deferred passes of a budget come back in the order of their guarantees, their ticks
// and their names; what has no room left waits on, and smaller needs go first then.
func TestDeferredPassesComeBackInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 1000, job: "schedule = \"@yearly\"", more: `
[upstream.youtube.share.some]
jobs = ["c"]
units = 5
[upstream.youtube.share.most]
jobs = ["d"]
units = 10`}, "schedule = \"@daily\"\nregions = [\"US\"]", "a", "b", "c", "d", "e")
		for i, schedule := range []string{"30 23 * * 6", "0 23 * * 6", "30 23 * * 6", "30 23 * * 6", "0 23 * * 6"} {
			h.list[i+1].Schedule = parsed(t, schedule, "UTC")
		}
		h.list[5].Needs["videos.list"] = 983
		h.spend(985)
		after(time.Hour)
		for _, job := range []string{"c", "d"} {
			units := map[string]int64{"c": 5, "d": 10}[job]
			must.Get(h.options.Budgets["youtube/key1"].Charge(t.Context(), budget.Call{Operation: "videos.list", Units: &units, Labels: budget.Labels{Job: job}}))(t)
		}
		after(21 * time.Hour)
		for range 3 {
			h.begin()
		}
		after(time.Hour)
		check.Equal(t, len(h.begun()), 0, "requests")
		after(time.Hour + time.Minute)
		begun := h.begun() // at one instant, in whatever order the requests arrive
		slices.Sort(begun)
		check.EqualSlices(t, begun, []string{"a-US 24h0m0s", "b-US 24h0m0s", "c-US 24h0m0s", "d-US 24h0m0s"}, "starts")
		check.EqualSlices(t, h.charged(), []string{"d", "c", "b", "a"}, "charges of")
		after(time.Hour)
		check.EqualSlices(t, h.begun(), []string{"e-US 25h0m0.25s"}, "starts") // a second look: the charges of c and d return a microsecond apart
		h.stopAll()
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			check.Equal(t, len(h.recordsOf(name)), 1, "records of", name)
			check.Contains(t, h.recordsOf(name)[0], "succeeded", "record of", name)
		}
	})
}

// After a reset a hundred deferred passes go on without a burst: no more runs at once than
// the upstream's parallel, and the regions of each at its stagger.
func TestAHundredDeferredPassesMakeNoBurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("job%02d", i))
		}
		h := newHerd(t, setup{limit: 1000, job: "schedule = \"@yearly\""}, "schedule = \"50 23 * * 6\"\nregions = [\"US\", \"GB\"]\nstagger = \"1m\"\nmax_late = \"100h\"", names...)
		for _, j := range h.list {
			j.BudgetParallel = 3
		}
		h.takes = func() time.Duration { return 10 * time.Second }
		h.spend(1000)
		after(23*time.Hour + 45*time.Minute)
		h.begin()
		h.begin()
		after(14 * time.Minute)
		check.Equal(t, len(h.begun()), 0, "requests")
		after(time.Minute)
		synctest.Wait()
		begun := h.begun()
		slices.Sort(begun)
		check.EqualSlices(t, begun, []string{"job00-US 24h0m0s", "job01-US 24h0m0s", "job02-US 24h0m0s"}, "starts")
		after(time.Hour)
		begun = h.begun()
		check.Equal(t, len(begun), 197, "starts in the hour")
		check.Equal(t, h.together, 3, "at once")
		at := map[string]time.Duration{"job00-US": 24 * time.Hour}
		for _, line := range begun {
			name, since := h.start(line)
			at[name] = since
		}
		for _, name := range names[3:] {
			if apart := at[name+"-GB"] - at[name+"-US"]; apart < 30*time.Second {
				t.Errorf("the regions of %s start %s apart", name, apart)
			}
		}
		h.stopAll()
		for _, name := range names {
			check.EqualSlices(t, h.recordsOf(name), []string{"23h50m0s succeeded"}, "records of", name)
		}
	})
}

// A deferred pass outlives the daemon that deferred it; and the daemon with which it goes
// on may die too: then its record says that it was lost.
func TestDaemonsWithDeferredPassesDie(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, "schedule = \"0 6 * * 6\"\nregions = [\"US\"]\ngrace = \"0s\"", "one")
		h.spend(10)
		h.takes = func() time.Duration { return time.Minute }
		a := h.begin()
		after(7 * time.Hour)
		h.begin()
		after(time.Minute)
		h.crash(a)
		after(17*time.Hour - time.Minute + time.Second)
		check.EqualSlices(t, h.begun(), []string{"one-US 24h0m0s"}, "starts")
		h.begin()
		h.crash(h.daemons[0])
		after(10 * time.Minute)
		check.EqualSlices(t, h.recordsOf("one"), []string{"6h0m0s lost crashed"}, "history")
		check.Equal(t, len(h.begun()), 0, "starts")
		h.stopAll()
	})
}

// A daemon that dies with the turn of the budget costs the others less than a second.
func TestATurnWhoseHolderDied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, "schedule = \"0 6 * * 6\"\nregions = [\"US\"]", "one")
		h.spend(10)
		after(5 * time.Hour)
		h.begin()
		after(19*time.Hour - time.Millisecond)
		mine, err := h.runner().docs.takeTurn(t.Context(), "youtube/key1", "dead/1/x")
		if err != nil || !mine {
			t.Fatal(mine, err)
		}
		after(time.Second)
		begun := h.begun()
		if len(begun) != 1 || begun[0] > "one-US 24h0m0.6s" {
			t.Errorf("starts %v", begun)
		}
		h.stopAll()
	})
}

// A clock of the store that is set back, or ahead, costs a look, and nothing goes on twice.
func TestDeferredPassesAndTheStoresClock(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	for _, by := range []time.Duration{-5 * time.Hour, 5 * time.Hour, 18 * time.Hour} {
		inBubble(t, by.String(), func(t *testing.T) {
			h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, "schedule = \"0 6 * * 6\"\nregions = [\"US\"]\nmax_late = \"100h\"", "one")
			var clock skewed
			h.store = memstore.New(func() int64 { return clock.now().UnixMicro() })
			h.options.State, h.options.Now = h.store, clock.now
			if by > 17*time.Hour { // a poll finds that the instant is past
				h.options.Poll = DefaultPoll
			}
			spec := h.options.Budgets["youtube/key1"].Spec()
			h.options.Budgets["youtube/key1"] = must.Get(budget.New(h.store, spec, budget.WithNow(clock.now)))(t)
			h.spend(10)
			h.begin()
			h.begin()
			after(7*time.Hour + 10*time.Second) // between two sweeps
			clock.by.Store(int64(by))
			after(40 * time.Hour)
			begun := h.begun()
			want := []string{"one-US " + (24*time.Hour - by).String()}
			if by > 17*time.Hour { // past the instant
				want = begun
				if len(begun) != 1 || begun[0] < "one-US 7h0m10" || begun[0] > "one-US 7h0m15s" {
					t.Errorf("starts %v, want within five seconds", begun)
				}
			}
			check.EqualSlices(t, begun, want, "starts")
			check.EqualSlices(t, h.recordsOf("one"), []string{"6h0m0s succeeded"}, "history")
			h.stopAll()
		})
	}
}

// Once a deferred pass goes on, overlap decides about the job's next tick.
func TestADeferredPassThatGoesOnOverlaps(t *testing.T) {
	t.Parallel()
	for overlap, want := range map[Overlap][]string{
		Skip:  {"23h15m0s succeeded", "24h15m0s skipped overlap"},
		Queue: {"23h15m0s succeeded", "24h15m0s succeeded"},
		Allow: {"23h15m0s succeeded", "24h15m0s succeeded"},
	} {
		inBubble(t, string(overlap), func(t *testing.T) {
			h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, "schedule = \"15 0,21,23 * * 6,0\"\nregions = [\"US\"]\ntimeout = \"3h\"", "one")
			h.list[1].Overlap = overlap
			h.takes = func() time.Duration { return time.Hour }
			h.spend(10)
			after(22*time.Hour + 30*time.Minute)
			h.begin()
			after(5 * time.Hour)
			check.EqualSlices(t, h.recordsOf("one"), want, "history")
			h.stopAll()
		})
	}
}

// A daemon that stops before it has started a run of a pass that goes on gives it back, and
// another takes it, once.
func TestADeferredPassIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{limit: 10, job: "schedule = \"@yearly\""}, "schedule = \"0 23 * * 6\"\nregions = [\"US\"]\nmax_wait = \"30s\"", "one")
		h.spend(10)
		after(22 * time.Hour)
		h.begin()
		after(2*time.Hour - 5*time.Second)
		for _, j := range h.list {
			j.BudgetParallel = 1
		}
		free := h.busy()
		must.Do(t, h.runner().docs.change(t.Context(), h.list[1], func(s *state, at clocks) (edit, error) {
			s.Deferred[0].At = at.now // it is claimed although no slot is free
			return edit{}, nil
		}))
		r := h.runner()
		c := must.Get(claimDeferred(t, r, h.list[1]))(t)
		h.stopAll()
		drained, cut := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cut(errDrained) })
		p := r.pass(t.Context(), drained, h.list[1], c, "", false)
		check.EqualSlices(t, outcomes(p), []string{"US skipped drained"}, "runs")
		free()
		check.Equal(t, len(h.begun()), 0, "starts")
		h.begin()
		h.begin()
		after(time.Minute)
		check.EqualSlices(t, h.begun(), []string{"one-US 24h0m0s"}, "starts")
		check.EqualSlices(t, h.recordsOf("one"), []string{"23h0m0s succeeded"}, "history")
		h.stopAll()
	})
}

// claimDeferred claims a job's first deferred pass.
func claimDeferred(t *testing.T, r *Runner, j *Job) (made claim, err error) {
	t.Helper()
	err = r.docs.change(t.Context(), j, func(s *state, at clocks) (edit, error) {
		d := s.Deferred[0]
		made = *j.goOn(s, at, claimant{holder: newHolder(), hold: r.docs.hold(), deferredTick: d.Tick, deferredPart: d.Part})
		return edit{}, nil
	})
	return made, err
}

// unheard loses the answers to some swaps that are done.
type unheard struct {
	State
	loses func(driver.JobSwap) bool
}

func (u unheard) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	swapped, err := u.State.SwapJob(ctx, swap)
	if err == nil && swapped && u.loses(swap) {
		return false, errFails
	}
	return swapped, err
}

// A deferred pass goes on although the answer to its claim is lost.
func TestADeferredPassWhoseClaimIsUnheard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{limit: 13, job: deferring})
		lost := 0
		w.options.State = unheard{w.store, func(swap driver.JobSwap) bool {
			if lost > 0 || !bytes.Contains(swap.Text, []byte(`"before":`)) {
				return false
			}
			lost++
			return true
		}}
		after(90 * time.Minute)
		w.spend(9) // they return at 25h30m
		stop := w.daemon(false)
		after(30 * time.Hour)
		check.Equal(t, lost, 1, "answers lost")
		check.EqualSlices(t, w.history(), []string{"6h0m0s succeeded"}, "history")
		check.Equal(t, w.records()[0].Ended.Sub(midnight), 25*time.Hour+30*time.Minute+retryPause, "ended")
		stop()
	})
}
