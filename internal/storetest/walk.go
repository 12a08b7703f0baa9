package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/effort"
)

// Walk takes random steps on the store and on the reference model, and checks that all
// answers are the same. A step is a charge, a recorded charge, a settlement, a release, a
// look, a lock, a report of drift, an accepted clock, a recovery, a reset or a move to
// another ledger. With full effort it takes at least the given number of steps, with small
// effort at most two thousand.
func Walk(t *testing.T, open Open, steps int) {
	t.Helper()
	effort.Unraced(t)
	seed := effort.Seed(t)
	steps = effort.Of(min(steps, 2000), min(steps, longWalk), steps, 100*steps)
	walk(t, open, seed, steps, false, []string{"granted", "refused", "replayed", "conflict", "settled", "released", "clock refused", "clock accepted", "looked", "stepped back", "never fits", "limits changed",
		"finish expired", "refused by rolling", "refused by coarse", "refused by calendar", "refused by guarded calendar", "refused by bucket", "refused by concurrent",
		"recorded", "finished earlier", "lost", "nothing lost", "recovered", "reset", "recovering", "rolled back", "moved", "locked", "lock stood", "unlocked", "observed", "fenced",
		"history", "refusals counted", "kept", "fits by a lapse", "planned", "fits as records end", "held", "hold refused", "hold replayed", "hold renewed", "hold ended", "drawn", "given back", "overdrawn", "settled above", "waited beside a hold",
		"drift of rolling", "drift of coarse", "drift of calendar", "drift of guarded calendar", "drift of bucket"})
}

// WalkCalm is a walk on which most steps are charges that fit, a short time apart, by limits
// without buckets: what a store may decide in a simpler way than all else.
func WalkCalm(t *testing.T, open Open, steps int) {
	t.Helper()
	effort.Unraced(t)
	seed := effort.Seed(t)
	steps = effort.Of(min(steps, 2000), min(steps, longWalk/2), steps, 100*steps)
	walk(t, open, seed, steps, true, []string{"granted", "refused", "replayed", "settled", "released", "looked", "limits changed",
		"refused by rolling", "refused by coarse", "refused by calendar", "refused by guarded calendar", "refused by concurrent", "recorded", "lost", "locked", "history", "kept"})
}

// longWalk is how many steps make a walk that has to come by everything.
const longWalk = 8000

// walk takes the steps of a walk. A long one has to come by all of musts: it goes on to
// twelve times its steps for what it lacks, and fails if that is not enough. The rarest
// comes about five times in 30,000 steps.
func walk(t *testing.T, open Open, seed uint64, steps int, calm bool, musts []string) {
	t.Helper()
	w := &walker{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), counts: map[string]int{}, calm: calm}
	clock := func() int64 { return w.now }
	w.store, w.model = open(t, clock), memstore.New(clock)
	long := longWalk
	if calm { // it has less to come by
		long /= 2
	}
	lacks := func(must string) bool { return steps >= long && w.counts[must] == 0 }
	for w.step < steps || w.step < 12*steps && slices.ContainsFunc(musts, lacks) {
		w.episode(200 + w.rng.IntN(400))
	}
	t.Logf("seed %d: %d steps: %v", seed, w.step, w.counts)
	for _, must := range musts {
		if lacks(must) {
			t.Errorf("seed %d: the walk never came by %q: it shows less than it should", seed, must)
		}
	}
}

// walker is a random walk on a store and the model.
type walker struct {
	t      *testing.T
	seed   uint64
	rng    *rand.Rand
	store  Store
	model  *memstore.Store
	step   int
	counts map[string]int

	now     int64
	budget  string
	configs [][]limit.Limit // of two processes that share the budget
	lengths []int64         // of the rolling windows, for choosing steps of time
	longest int64           // how long the budget's charges may be held
	calm    bool            // see WalkCalm
	coarse  bool            // all windows need slots only, so that entries merge
	ids     []driver.Item
	seen    []marks
	kept    kept
	ledgers map[string]string // the model's ledgers' ids by the store's
	changes map[string]int64  // the store's last count of changes of each of its ledgers
	planned []int64           // when records of what shares need end
	drew    string            // a reservation that drew from a hold, to be finished soon
}

var walkOperations = []string{"search.list", "videos.list", "channels.list", "videos.rate", "captions.list"}

// episode walks on a budget of its own, with limits of its own.
func (w *walker) episode(steps int) {
	w.budget = fmt.Sprintf("walk/%d", w.step)
	w.now = noon + w.rng.Int64N(400*24*hour)
	w.ids, w.seen, w.lengths, w.configs, w.kept = nil, nil, nil, nil, newKept()
	w.drew, w.planned, w.longest = "", nil, driver.MinHeld
	w.ledgers, w.changes = map[string]string{}, map[string]int64{}
	w.coarse = w.rng.IntN(4) == 0
	for range 2 {
		w.configs = append(w.configs, w.limits())
	}
	for end := w.step + steps; w.step < end; {
		w.pass()
		if w.rng.IntN(80) == 0 { // a process gets other limits
			w.configs[w.rng.IntN(2)] = w.limits()
			w.counts["limits changed"]++
		}
		limits := w.configs[w.rng.IntN(2)]
		if slices.ContainsFunc(limits, limit.Limit.ByPlan) && w.rng.IntN(10) == 0 {
			w.plans(limits)
		}
		if n := w.rng.IntN(100); w.calm && n < 88 {
			w.decide(limits)
			continue
		} else if w.calm && n < 96 {
			w.finish()
			continue
		}
		switch n := w.rng.IntN(100); {
		case n < 12 && w.calm: // otherwise too few calls come upon a lock
			w.locks(limits)
		case n < 71:
			w.decide(limits)
		case n < 89:
			w.finish()
		case n < 90:
			w.look(limits)
		case n < 91:
			w.refusals(limits)
		case n < 92:
			w.holds()
		case n < 93:
			w.overdraw(limits)
		case n < 95:
			w.locks(limits)
		case n < 97:
			for range 4 {
				w.report(limits)
			}
		case n < 98:
			w.acceptClock()
		case n < 99 || w.rng.IntN(2) > 0:
			w.recover(limits)
		case w.rng.IntN(2) == 0:
			w.move(limits)
		default:
			w.reset()
		}
	}
}

// pass lets time pass, sometimes backwards.
func (w *walker) pass() {
	length := minute
	if len(w.lengths) > 0 {
		length = w.lengths[w.rng.IntN(len(w.lengths))]
	}
	if w.calm && w.rng.IntN(12) > 0 {
		w.now += w.rng.Int64N([]int64{2, 100, 1 + length/1000}[w.rng.IntN(3)])
		return
	}
	switch w.rng.IntN(7) {
	case 0:
	case 1, 2:
		w.now += 1 + w.rng.Int64N(99)
	case 3:
		w.now += length - 1
	case 4:
		w.now += length
	case 5:
		w.now += length/2 + 1
	case 6:
		w.now += w.rng.Int64N(2 * length)
	}
	if w.rng.IntN(20) == 0 {
		w.counts["stepped back"]++
		w.now -= w.rng.Int64N(2 * length)
	}
}

// caller is the caller's clock: usually the store's, sometimes far behind or ahead.
func (w *walker) caller() int64 {
	kind := w.rng.IntN(50)
	if w.calm && w.rng.IntN(6) > 0 {
		kind = 3 + w.rng.IntN(10)*2
	}
	switch kind {
	case 0, 1:
		return w.now - w.rng.Int64N(3*minute)
	case 2:
		return w.now + w.rng.Int64N(3*minute)
	case 3:
		return w.now + w.rng.Int64N(2*second) - second
	case 4:
		return w.now + w.rng.Int64N(60*hour)
	}
	return w.now
}

// look compares what both have used, after an empty decision has advanced both to the
// instant.
func (w *walker) look(limits []limit.Limit) {
	w.step++
	batch := driver.Batch{Budget: w.budget, Now: w.now, Limits: limits}
	want, wantErr := w.model.Decide(context.Background(), batch)
	got, gotErr := w.store.Decide(context.Background(), batch)
	w.same("empty decide", batch, got, gotErr, want, wantErr)
	told := w.told()
	ask := driver.Look{Budget: w.budget, Now: w.now, Limits: limits, Mark: told.model, Hosts: w.rng.Int64N(4)}
	wantView, wantErr := w.model.Look(context.Background(), ask)
	ask.Mark = told.store
	gotView, gotErr := w.store.Look(context.Background(), ask)
	wantView.Entries, gotView.Entries = 0, 0 // each store forgets in its own time
	w.same("look", ask, gotView, gotErr, wantView, wantErr)
	w.tell(wantView.Mark, gotView.Mark)
	w.counts["looked"]++
	w.spent()
	w.history()
}

func (w *walker) acceptClock() {
	w.step++
	change(w, driver.AcceptClock{Budget: w.budget})
	w.counts["clock accepted"]++
}

// change makes a change on both, checks that both answer alike, and returns the answer.
func change[A driver.Changed](w *walker, c driver.ChangeTo[A]) A {
	w.t.Helper()
	want, wantErr := driver.Apply(context.Background(), w.model, c)
	got, gotErr := driver.Apply(context.Background(), w.store, c)
	w.same(c.Doing(), c, got, gotErr, want, wantErr)
	return want
}

// same fails the walk unless both answered alike.
func (w *walker) same(what string, asked, got any, gotErr error, want any, wantErr error) {
	w.t.Helper()
	for sentinel, count := range map[error]string{driver.ErrClock: "clock refused", driver.ErrLost: "lost"} {
		if errors.Is(wantErr, sentinel) && errors.Is(gotErr, sentinel) {
			w.counts[count]++
			return
		}
	}
	got = w.named(got, want)
	if gotErr != nil || wantErr != nil || !reflect.DeepEqual(got, want) && !emptyBoth(got, want) {
		w.t.Fatalf("seed %d, step %d, %s at %d:\nasked %+v\nthe store answers %+v, %v\nthe model answers %+v, %v", w.seed, w.step, what, w.now, asked, got, gotErr, want, wantErr)
	}
}

// emptyBoth treats nil and an empty list as equal.
func emptyBoth(got, want any) bool {
	g, ok := got.(driver.Decisions)
	if !ok {
		return false
	}
	v, ok := want.(driver.Decisions)
	return ok && g.Now == v.Now && g.Seen == v.Seen && slices.Equal(g.Used, v.Used) && len(g.Items) == 0 && len(v.Items) == 0
}
