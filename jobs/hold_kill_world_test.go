package jobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// killWorld is one run of a case.
type killWorld struct {
	*world
	c     killCase
	edge  *edge
	clock skewed // of the store and all daemons
	all   []*process
	// faults says what becomes of a process's operation; nil: all work.
	faults func(name, what string) fate

	slowest time.Duration // of the upstream's answers

	mu    sync.Mutex // guards all below
	rng   *rand.Rand
	asked int64 // units of the requests that reached the upstream
}

// run runs a case, in which the process is killed at an operation unless that is 0. It
// returns how many there were, and what the one was.
func (c killCase) run(t *testing.T, seed uint64, killAt int, of side) (steps int, where string) {
	w := newKillWorld(t, c, seed)
	w.spendBefore()
	w.at(killTick - time.Minute)
	if c.first > 0 {
		first := w.begin("first", time.Millisecond)
		after(30 * time.Second)
		time.AfterFunc(time.Until(midnight.Add(c.first)), func() { first.die("crash") })
	}
	victim := w.begin("victim", 2*time.Millisecond)
	victim.killAt, victim.side = killAt, of
	after(time.Second)
	w.begin("other", 5*time.Millisecond) // it sees each tick later
	w.begin("third", 7*time.Millisecond)
	stop := w.bystand()
	w.at(c.from)
	victim.counting(true)
	if c.step != 0 {
		w.at(killTick + 10*time.Second)
		w.clock.by.Store(int64(c.step))
	}
	if c.again {
		w.at(c.from + 90*time.Second)
		w.begin("new", 2*time.Millisecond)
	}
	w.at(c.until)
	victim.counting(false)
	where, died, dead := victim.killed()
	if dead {
		w.at(max(c.until, died.Sub(midnight)+4*DefaultHeartbeat+lateBy+10*time.Millisecond))
		w.edge.look()
		if c.step < 0 {
			w.at(died.Sub(midnight) + lateBy + 10*DefaultHeartbeat)
			w.edge.look()
		}
	}
	w.at(killNext + 20*time.Minute)
	stop()
	w.settled()
	return victim.steps, where
}

func newKillWorld(t *testing.T, c killCase, seed uint64) *killWorld {
	w := &killWorld{c: c, slowest: 12 * time.Second, rng: rand.New(rand.NewPCG(seed, 1))}
	other := map[string]string{"true": `"run"`, `"run"`: "true"}[c.hold]
	const schedule = "schedule = \"5,52 0,23 * * *\"\nmax_late = \"1h\"\nneeds = { \"videos.list\" = 3 }\ngrace = \"1s\"\ntimeout = \"5m\"\non_store_error = \"open\"\n"
	w.world = newWorld(t, setup{
		limit: 60, cost: "2", upstream: http.HandlerFunc(w.answer),
		job: "regions = [\"US\", \"GB\", \"DE\"]\nparallel = 2\nhold = " + c.hold + "\n" + schedule + c.lines,
		more: fmt.Sprintf(`
[upstream.youtube.limit.calls]
limit = 40
counts = "calls"
window = "24h"
[upstream.youtube.limit.day]
limit = 60
calendar = "day"
timezone = "UTC"
[job.beside]
budget = "youtube/key1"
regions = ["FR", "IN"]
hold = %s
%s
%s
[job.beside.fetch]
operation = "videos.list"
url = "https://upstream.test/youtube/v3/videos?regionCode={region}"
next_page = { param = "pageToken", from = "nextPageToken" }
output = "data/{job}/{region}/{tick}.ndjson"
`, other, schedule, c.lines),
	})
	w.store = memstore.New(func() int64 { return w.clock.now().UnixMicro() })
	w.options.Now = w.clock.now
	w.edge = newEdge(w.world, &w.clock)
	w.edge.host = c.host
	if c.fault != nil {
		w.faults = func(_, what string) fate { return c.fault(time.Since(midnight), what) }
	}
	return w
}

// answer has two pages for each region, and takes a while. No more requests reach the
// upstream than were charged.
func (w *killWorld) answer(out http.ResponseWriter, r *http.Request) {
	charged := w.edge.spentByJobs()
	w.mu.Lock()
	w.asked += 2
	asked, wait := w.asked, time.Duration(w.rng.Int64N(int64(w.slowest)))
	w.mu.Unlock()
	if asked > charged && !w.c.host && !w.c.reset {
		w.t.Errorf("at %s: requests of %d units were sent, and %d were charged", time.Since(midnight), asked, charged)
	}
	select {
	case <-time.After(wait):
	case <-r.Context().Done():
		return
	}
	if r.URL.Query().Get("pageToken") == "" {
		_, _ = out.Write([]byte(`{"nextPageToken": "two"}`))
		return
	}
	_, _ = out.Write([]byte("{}"))
}

// spendBefore charges what returns at midnight.
func (w *killWorld) spendBefore() {
	if w.c.spent > 0 {
		b := w.spends(&process{edge: w.edge, name: "earlier"})
		must.Get(b.Charge(w.t.Context(), budget.Call{Operation: "videos.list", Units: &w.c.spent}))(w.t)
	}
}

// at waits for an instant since midnight.
func (w *killWorld) at(d time.Duration) { after(time.Until(midnight.Add(d))) }

// begin starts a daemon.
func (w *killWorld) begin(name string, latency time.Duration) *process {
	ctx, stop := context.WithCancel(w.t.Context())
	p := &process{edge: w.edge, name: name, latency: latency, stop: stop, drain: make(chan struct{}), done: make(chan error, 1)}
	if w.faults != nil {
		p.fault = func(what string) fate { return w.faults(name, what) }
	}
	options := w.options
	options.State, options.Poll = p, 30*time.Second
	options.Budgets = map[string]*budget.Budget{}
	spends := w.spends(w.through(p))
	options.Budgets["youtube/key1"] = spends
	r := must.Get(New(w.list, options))(w.t)
	r.flush = func(*os.File) error { return nil }
	go func() {
		err := r.Run(ctx, p.drain, false)
		if w.c.host {
			_ = spends.Close()
		}
		p.done <- err
	}()
	w.all = append(w.all, p)
	return p
}

// spends is the budget on a store.
func (w *killWorld) spends(store driver.Store) *budget.Budget {
	w.t.Helper()
	return must.Get(budget.New(store, w.options.Budgets["youtube/key1"].Spec(), budget.WithNow(w.clock.now)))(w.t)
}

// through is the store as a daemon spends on it: with the host's allowance if the case has one.
func (w *killWorld) through(p *process) driver.Store {
	if !w.c.host {
		return p
	}
	return outage.New(p, outage.Options{
		Dir: filepath.Join(w.dir, "host"), Allowance: 20, Timeout: time.Second, Interval: time.Second,
		Clocks: &sqlitestore.Clocks{
			Wall: func() int64 { return w.clock.now().UnixMicro() },
			Boot: func() (string, int64, error) { return "boot", time.Since(midnight).Microseconds(), nil },
		},
	})
}

// bystand has a program without a job reserve and release at random, but not while it would
// keep a pass from its first needs.
func (w *killWorld) bystand() (stop func()) {
	p := &process{edge: w.edge, name: "bystander", latency: 3 * time.Millisecond}
	b := w.spends(p)
	over, done := make(chan struct{}), make(chan struct{})
	w.mu.Lock()
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 2))
	w.mu.Unlock()
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Duration(rng.Int64N(int64(10 * time.Second)))):
			}
			quiet := func(around time.Duration) bool {
				at := time.Since(midnight) - around
				return at > -10*time.Second && at < 20*time.Second
			}
			at := time.Since(midnight)
			if quiet(killTick) || at > killTick+4*time.Minute && at < 24*time.Hour+20*time.Second || at > killNext-10*time.Second {
				continue
			}
			units := 1 + rng.Int64N(30)
			if r, err := b.Reserve(w.t.Context(), budget.Call{Operation: "videos.list", Units: &units}, time.Minute); err == nil {
				after(time.Duration(rng.Int64N(int64(time.Second))))
				if err := r.Release(w.t.Context()); !w.c.reset {
					check.NoError(w.t, err)
				}
			}
		}
	}()
	return func() { close(over); <-done }
}

// stopAll stops all daemons, and fails if anything is held then.
func (w *killWorld) stopAll() {
	w.t.Helper()
	for _, p := range w.all {
		if _, _, dead := p.killed(); !dead {
			close(p.drain)
		}
		err := <-p.done
		if _, _, dead := p.killed(); !dead {
			check.NoError(w.t, err, "a drained daemon returned")
		}
	}
	if held := w.edge.look(); len(held) > 0 {
		w.t.Errorf("held at the end: %+v", held)
	}
}

// settled stops all daemons, and fails unless the next ticks went as usual.
func (w *killWorld) settled() {
	w.t.Helper()
	w.stopAll()
	for _, j := range w.list {
		records := must.Get(History(w.t.Context(), w.store, j.Name, time.Time{}, time.Time{}, 100))(w.t)
		ticks := map[time.Duration]Outcome{}
		for _, r := range records {
			tick := r.Tick.Sub(midnight)
			if ticks[tick] != "" {
				w.t.Errorf("job %s has two records of tick %s", j.Name, tick)
			}
			ticks[tick] = r.Outcome
		}
		if w.c.step == 0 {
			check.Equal(w.t, ticks[killNext], Succeeded, "job", j.Name, "tick", killNext)
		}
		if ticks[killTick] == "" {
			w.t.Errorf("job %s has no record of its first tick: %v", j.Name, ticks)
		}
	}
	if w.t.Failed() {
		w.t.Logf("%+v\n%s", w.edge.counts, w.log)
	}
}
