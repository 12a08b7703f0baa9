package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// usualWalk charges one budget by two configurations, mostly as most programs do: the walk of
// storetest changes so much between two charges that usual.lua hardly has a turn in it.
type usualWalk struct {
	t       *testing.T
	rng     *rand.Rand
	now     int64
	name    string
	stores  [2]driver.Store // the one under test, and the model
	configs [2][]limit.Limit
	live    [2]bool // they have decided: a look of others begins to count in one store alone
	open    []string
	ids     int
	past    []string // what was asked of the present budget
	buckets bool     // half of the limits are buckets
	skews   []int64  // of the caller's clock, µs
}

var usualOperations = []string{"videos.list", "videos.rate", "search.list", "upload"}

func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// limits are one to four limits of any kind.
func (w *usualWalk) limits() (list []limit.Limit) {
	for i := range 1 + w.rng.IntN(4) {
		l := limit.Limit{Name: fmt.Sprint("l", i), Limit: pick[int64](w.rng, 50, 1000, 1000, 100_000), Counts: pick(w.rng, limit.CountUnits, limit.CountUnits, limit.CountCalls)}
		kind := w.rng.IntN(11)
		if w.buckets && w.rng.IntN(2) == 0 {
			kind = 10
		}
		switch kind {
		case 0:
			l.Window, l.Counts = limit.ConcurrentWindow(), limit.CountCalls
		case 1, 2:
			l.Window = limit.CoarseWindow(pick(w.rng, 10*time.Second, time.Minute), pick(w.rng, time.Second, 7*time.Second))
		case 3, 4:
			calendar := must.Get(limit.NewCalendar(pick(w.rng, limit.Quarter, limit.Hour), "UTC", 0))(w.t)
			l.Window = limit.CalendarWindow(calendar)
			l.Window.Guard = pick[int64](w.rng, 0, 0, 5_000_000)
		case 10:
			l.Window = limit.BucketWindow(must.Get(limit.NewRefill(pick[int64](w.rng, 1, 3, 100), pick(w.rng, 7*time.Microsecond, time.Second, time.Minute)))(w.t))
		default:
			l.Window = limit.RollingWindow(pick(w.rng, 50*time.Millisecond, time.Second, time.Minute, time.Hour))
		}
		if w.rng.IntN(3) == 0 {
			l.Operations = pick(w.rng, []string{"videos.*"}, []string{"!upload"}, []string{"upload"}, []string{"videos.*", "!videos.rate"}, []string{"search.list", "upload"})
		}
		if kind := l.Window.Kind; w.rng.IntN(3) == 0 && (kind == limit.Rolling || kind == limit.CalendarKind) && l.Window.Precision == 0 {
			l.Shares = []limit.Share{{Name: "a", Jobs: []string{"a"}, Guarantee: l.Limit / 4}, {Name: "b", Jobs: []string{"b", "b.*"}, Guarantee: l.Limit / 3}}
			if kind == limit.CalendarKind {
				l.Shares[w.rng.IntN(2)].Lapse = pick[int64](w.rng, 0, 60_000_000, 200_000_000)
			}
		}
		list = append(list, l)
	}
	return list
}

func (w *usualWalk) item() driver.Item {
	w.ids++
	i := driver.Item{
		ID: fmt.Sprint("i", w.ids), Operation: pick(w.rng, usualOperations...), Units: pick[int64](w.rng, 0, 1, 1, 1, 2, 7),
		Labels: driver.Labels{Job: pick(w.rng, "a", "b", "b.x", "other", ""), Region: pick(w.rng, "US", "DE")},
	}
	switch w.rng.IntN(12) {
	case 0:
		i.ID = fmt.Sprint("i", 1+w.rng.IntN(w.ids)) // perhaps a replay, or a conflict
	case 1, 2:
		i.Lease = pick[int64](w.rng, 1000, 2_000_000, 120_000_000)
	case 3:
		i.Floor = w.rng.Int64N(20)
	case 4:
		i.DryRun = true
	}
	return i
}

// both asks both stores, which must answer alike.
func (w *usualWalk) both(step string, ask func(s driver.Store) (any, error)) any {
	w.t.Helper()
	got, err := ask(w.stores[0])
	want, wanted := ask(w.stores[1])
	w.past = append(w.past, fmt.Sprintf("at %d %s: %+v", w.now, step, got))
	if !reflect.DeepEqual(got, want) || (err == nil) != (wanted == nil) {
		w.t.Logf("before: %s", strings.Join(w.past[max(0, len(w.past)-6):], "\n"))
		w.t.Fatalf("%s at %d by %+v and %+v:\n got %+v, %v\nwant %+v, %v", step, w.now, w.configs[0], w.configs[1], got, err, want, wanted)
	}
	return got
}

func (w *usualWalk) step(n int) {
	w.t.Helper()
	w.now += pick[int64](w.rng, 0, 0, 1, 1, 40, 1000, 1000, 1000, 30_000, 30_000, 300_000, 300_000, 1_000_000, w.rng.Int64N(20_000_000), w.rng.Int64N(20_000_000))
	config := max(0, w.rng.IntN(8)-6) // the second now and then
	limits := w.configs[config]
	switch k := w.rng.IntN(20); {
	case k == 0 && len(w.open) > 0:
		f := driver.Finish{ID: pick(w.rng, w.open...), Release: w.rng.IntN(2) == 0, Units: w.rng.Int64N(5)}
		w.both(fmt.Sprintf("step %d, %+v", n, f), func(s driver.Store) (any, error) { return driver.FinishOne(w.t.Context(), s, w.name, w.now, f) })
	case k == 1 && w.live[config]:
		look := driver.Look{Budget: w.name, Now: w.now, Limits: limits}
		w.both(fmt.Sprintf("step %d, a look", n), func(s driver.Store) (any, error) {
			v, err := s.Look(w.t.Context(), look)
			var used []int64
			for _, l := range v.Limits {
				used = append(used, l.Used)
			}
			return used, err
		})
		w.now += 1000 // the stores differ in whether a look is an instant that the ledger has seen
	default:
		w.live[config] = true
		b := driver.Batch{Budget: w.name, Now: w.now + pick(w.rng, w.skews...), Limits: limits, Host: pick(w.rng, "0a", "0a", "0a", "0b")}
		for range pick(w.rng, 1, 1, 1, 2, 5) {
			b.Items = append(b.Items, w.item())
		}
		for len(w.open) > 0 && w.rng.IntN(4) == 0 {
			b.Finishes = append(b.Finishes, driver.Finish{ID: pick(w.rng, w.open...), Release: w.rng.IntN(3) == 0, Units: w.rng.Int64N(5), Age: pick[int64](w.rng, 0, 0, 5000)})
		}
		w.both(fmt.Sprintf("step %d, %+v now %d", n, b.Items, b.Now), func(s driver.Store) (any, error) {
			d, err := s.Decide(w.t.Context(), b)
			if err == nil && d.Mark.Kept < d.Mark.Seen+time.Hour.Microseconds() { // for so long ids are held
				w.t.Errorf("step %d: the ledger is kept for %d µs", n, d.Mark.Kept-d.Mark.Seen)
			}
			d.Mark.Ledger, d.Mark.Kept = "", 0
			return d, err
		})
		for _, i := range b.Items {
			if i.Lease > 0 {
				w.open = append(w.open, i.ID)
			}
		}
	}
}

// Whatever is charged in turn by usual.lua and charge.lua, on ledgers on which little else goes
// on, is decided as by the model, to the unit and the microsecond.
func TestUsualWalk(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	seed := effort.Seed(t)
	server := redistest.Start(t)
	rng := rand.New(rand.NewPCG(seed, 18))
	ledgers := effort.Of(2, 3, 30, 300)
	runs := []*usualRuns{}
	for i, steps := range []int{0, 3, 0, 0} {
		w := &usualWalk{t: t, rng: rng, now: time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC).UnixMicro(), buckets: i >= 2, skews: []int64{0, 0, 0, -700, 400}}
		if i == 3 { // now and then a caller's clock is far from the store's
			w.skews = append(slices.Repeat(w.skews, 20), 61_000_000, -61_000_000)
		}
		store := must.Get(redisstore.OpenWithClock(server.URL(steps), redisstore.Options{Timeout: patient}, func() int64 { return w.now }))(t)
		defer func() { _ = store.Close() }()
		if steps > 0 {
			store.SetMaxSteps(steps)
		}
		// A server that does not know finish.lua finishes nothing right before a run of usual.lua.
		must.Get(driver.FinishOne(t.Context(), store, "up/none", w.now, driver.Finish{ID: "none"}))(t)
		runs = append(runs, countRuns(store))
		for n := range ledgers {
			w.stores = [2]driver.Store{store, memstore.New(func() int64 { return w.now })}
			w.name, w.configs, w.open = fmt.Sprint("up/", i, "/", n), [2][]limit.Limit{w.limits(), w.limits()}, nil
			w.past, w.live = nil, [2]bool{}
			for i := range 300 {
				w.step(i)
			}
		}
	}
	decided := int64(0)
	for i, r := range runs {
		decided += r.decided.Load()
		t.Logf("%d runs of usual.lua decided, %d left it to charge.lua, %d others", r.decided.Load(), r.left.Load(), r.other.Load())
		if r.decided.Load() < 20 {
			t.Errorf("store %d: usual.lua hardly had a turn", i)
		}
	}
	if decided < 400 {
		t.Errorf("usual.lua decided %d batches in all", decided)
	}
}
