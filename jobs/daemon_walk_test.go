package jobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// Daemons that come and go, crash and lose the store at random: each tick has one
// record, no tick is run twice, passes overlap only where they may, no more runs go
// at once than may, and what is caught up goes one at a time.
func TestDaemonsAtRandom(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	seed := effort.Seed(t)
	for i := range effort.Of[uint64](3, 5, 10) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { walkDaemons(t, rand.New(rand.NewPCG(seed+i, 0))) })
		})
	}
}

// walker is a world in which daemons come and go.
type walker struct {
	*world
	rng     *rand.Rand
	away    atomic.Bool // the store, from everybody
	daemons []*mortal
	told    telling
	job     *Job

	mu       sync.Mutex // guards all below
	answers  *rand.Rand
	fetched  map[string]int // by region and tick
	running  int
	together int // the most that ran at once
}

// mortal is a daemon that can crash: nothing it does reaches the store any more.
type mortal struct {
	dead  atomic.Bool
	stop  context.CancelFunc
	drain chan struct{}
	done  chan error
}

func walkDaemons(t *testing.T, rng *rand.Rand) {
	overlap := []Overlap{Skip, Queue, Allow}[rng.IntN(3)]
	catchUp := []CatchUp{CatchUpNone, CatchUpLast, CatchUpAll}[rng.IntN(3)]
	parallel := 1 + rng.IntN(3)
	w := &walker{rng: rng, answers: rand.New(rand.NewPCG(rng.Uint64(), 0)), fetched: map[string]int{}}
	w.world = newWorld(t, setup{upstream: http.HandlerFunc(w.answer), limit: 1_000_000, job: fmt.Sprintf(`
regions = ["US", "GB"]
schedule = "*/5 * * * *"
overlap = %q
catch_up = %q
catch_up_limit = %d
max_late = "%dm"
parallel = %d`, overlap, catchUp, 1+rng.IntN(6), 10+rng.IntN(60), parallel)})
	w.job = w.list[0]
	w.job.Fetch.URL += "&tick={tick}"
	w.begin()
	const ticks = 300
	for end := time.Now().Add(ticks * 5 * time.Minute); time.Now().Before(end); {
		after(time.Duration(rng.Int64N(int64(20 * time.Minute))))
		w.act()
	}
	w.away.Store(false)
	if len(w.daemons) == 0 {
		w.begin()
	}
	w.pause(false)
	after(3 * time.Hour) // what waits has its turn
	for _, d := range w.daemons {
		close(d.drain)
		check.NoError(t, <-d.done)
	}
	w.check(overlap, parallel)
}

// act does one of the things that happen.
func (w *walker) act() {
	switch w.rng.IntN(8) {
	case 0, 1:
		if len(w.daemons) < 4 {
			w.begin()
		}
	case 2, 3: // crashes
		if len(w.daemons) > 0 {
			d := w.leave()
			d.dead.Store(true)
			d.stop()
			w.t.Log("crashed:", <-d.done)
		}
	case 4: // stops in order
		if len(w.daemons) > 0 {
			d := w.leave()
			close(d.drain)
			check.NoError(w.t, <-d.done)
		}
	case 5:
		w.away.Store(true)
		after(time.Duration(w.rng.Int64N(int64(15 * time.Minute))))
		w.away.Store(false)
	case 6:
		w.pause(w.rng.IntN(2) == 0)
	case 7:
		var regions []string
		if w.rng.IntN(2) == 0 {
			regions = []string{"GB"}
		}
		check.NoError(w.t, check.Err(Trigger(w.t.Context(), w.store, w.job, regions, "")))
	}
}

func (w *walker) pause(on bool) {
	var err error
	if on {
		_, _, _, err = SetPause(w.t.Context(), w.store, w.job, "")
	} else {
		_, err = EndPause(w.t.Context(), w.store, w.job)
	}
	check.NoError(w.t, err)
}

func (w *walker) begin() {
	ctx, stop := context.WithCancel(w.t.Context())
	d := &mortal{stop: stop, drain: make(chan struct{}), done: make(chan error, 1)}
	options := w.options
	options.Poll = 20 * time.Second
	options.Observe, options.Ping = &w.told, w.told.ping
	options.State = failing{w.store, func() bool { return d.dead.Load() || w.away.Load() }}
	r, err := New(w.list, options)
	must.Do(w.t, err)
	go func() { d.done <- r.Run(ctx, d.drain, false) }()
	w.daemons = append(w.daemons, d)
}

// leave takes one of the daemons out.
func (w *walker) leave() *mortal {
	i := w.rng.IntN(len(w.daemons))
	d := w.daemons[i]
	w.daemons = slices.Delete(w.daemons, i, i+1)
	return d
}

// answer takes up to eight minutes, past the next tick.
func (w *walker) answer(out http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	w.mu.Lock()
	if query.Get("pageToken") == "" {
		w.fetched[query.Get("regionCode")+" "+query.Get("tick")]++
	}
	w.running++
	w.together = max(w.together, w.running)
	wait := time.Duration(w.answers.Int64N(int64(4 * time.Minute)))
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.running--
		w.mu.Unlock()
	}()
	select {
	case <-time.After(wait):
		_, _ = out.Write([]byte("{}"))
	case <-r.Context().Done():
	}
}

func (w *walker) check(overlap Overlap, parallel int) {
	w.t.Helper()
	records, err := History(w.t.Context(), w.store, w.job.Name, time.Time{}, time.Time{}, maxHistory)
	must.Do(w.t, err)
	counts, seen := map[string]int{}, map[time.Time]int{}
	slices.Reverse(records)
	for i, r := range records {
		counts[string(r.Kind)+" "+string(r.Outcome)]++
		if r.Kind == Triggered {
			continue
		}
		last := r.Tick.Time
		if r.Until != nil {
			last = r.Until.Time
		}
		n := 0
		for tick := r.Tick.Time; !tick.After(last); tick = w.job.Next(tick) {
			seen[tick]++
			n++
		}
		check.Equal(w.t, n, max(r.Ticks, 1), "record", i, "says", r.Ticks, "ticks from", r.Tick, "until", last, "there")
	}
	for outcome, told := range w.told.counts { // a daemon may crash before it tells of a record
		if told > tallied(records)[outcome] {
			w.t.Errorf("told of %d ticks %s; recorded: %v", told, outcome, tallied(records))
		}
	}
	s := w.state()
	until := time.UnixMicro(s.Until).UTC()
	if len(s.Waiting) == 1 { // given back at the very end
		seen[InstantOf(s.Waiting[0].Tick).Time]++
		s.Waiting = nil
	}
	for tick := w.job.Next(midnight); !tick.After(until); tick = w.job.Next(tick) {
		check.Equal(w.t, seen[tick], 1, "the tick of", tick, "has … records")
	}
	if left := time.Since(until); left > 6*time.Minute || // it takes a while to stop
		len(s.Active)+len(s.Waiting) > 0 {
		w.t.Errorf("accounted for until %s before the end; left are %+v, %+v, %+v", left, s.Active, s.Waiting, s.Requests)
	}
	w.mu.Lock() // a request that a daemon gave up may have an answer under way still
	defer w.mu.Unlock()
	for key, n := range w.fetched {
		check.Equal(w.t, n, 1, key, "was fetched … times")
	}
	if w.together > parallel {
		w.t.Errorf("%d runs at once, want %d", w.together, parallel)
	}
	w.overlaps(records, overlap)
	w.t.Logf("overlap %s, catch_up %s: until %s, %d fetched, %d at once of %d: %v", overlap, w.job.CatchUp, until, len(w.fetched), w.together, parallel, counts)
}

// overlaps looks for passes at one time that may not be: all but those that were
// lost, whose end is when they were noticed.
func (w *walker) overlaps(records []Record, overlap Overlap) {
	w.t.Helper()
	for i, a := range records {
		for _, b := range records[i+1:] {
			if a.Started.IsZero() || b.Started.IsZero() || a.Outcome == Lost || b.Outcome == Lost ||
				!a.Started.Before(b.Ended.Time) || !b.Started.Before(a.Ended.Time) {
				continue
			}
			if overlap != Allow || a.Kind == CaughtUp && b.Kind == CaughtUp {
				w.t.Errorf("passes at one time: %s %s from %s to %s, %s %s from %s to %s", a.Kind, a.Tick, a.Started, a.Ended, b.Kind, b.Tick, b.Started, b.Ended)
			}
		}
	}
}

// failing is a state that does not answer while it fails.
type failing struct {
	State
	fails func() bool
}

var errFails = errors.Join(budget.ErrUnavailable, errors.New("connection refused"))

func (f failing) Job(ctx context.Context, job string) (driver.JobDocument, error) {
	if f.fails() {
		return driver.JobDocument{}, errFails
	}
	return f.State.Job(ctx, job)
}

func (f failing) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	if f.fails() {
		return nil, errFails
	}
	return f.State.Jobs(ctx, names)
}

// SwapJob fails before or after it is done: the answer may be what is lost.
func (f failing) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	if f.fails() {
		return false, errFails
	}
	swapped, err := f.State.SwapJob(ctx, swap)
	if f.fails() {
		return false, errFails
	}
	return swapped, err
}
