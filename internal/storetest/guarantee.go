package storetest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// callers is how many callers a walk of Guarantees has.
const callers = 8

// Guarantees has eight callers charge one budget at the same time, walk after walk, and keeps
// its own account of what was granted. In each walk some callers have a share for themselves.
// Such a caller is admitted within its guarantee, whatever the others do; nobody takes what is
// kept for others; and at the end a caller alone gets the limit less what the others are
// guaranteed and have not spent, to the unit. The clock is the store's.
func Guarantees(t *testing.T, store driver.Store, clock *atomic.Int64) {
	t.Helper()
	seed := effort.Seed(t)
	walks := effort.Of(150, 150, 10_000)
	if effort.Raced() { // eight callers meet in each
		walks = 20
	}
	var seen guaranteed
	for n := range walks {
		clock.Store(noon + second/2)
		g := &guarantees{t: t, store: store, clock: clock, rng: rand.New(rand.NewPCG(seed, uint64(n))), seed: seed, n: n, guaranteed: &seen} //nolint:gosec // repeatable on purpose
		g.walk()
	}
	if seen.within == 0 || seen.borrowed == 0 || seen.refused == 0 || seen.lapsed == 0 {
		t.Errorf("in %d walks: %+v; want some of each", walks, seen)
	}
}

// guaranteed counts what the walks saw.
type guaranteed struct{ within, borrowed, refused, lapsed int }

// guarantees is one walk.
type guarantees struct {
	*guaranteed
	t      *testing.T
	store  driver.Store
	clock  *atomic.Int64
	rng    *rand.Rand
	seed   uint64
	n      int
	budget string
	limits []limit.Limit
	spent  []granting // in the order of their instants
	calls  int
}

// granting is what was granted.
type granting struct {
	at    int64
	job   string
	units int64
}

// callerJob is a caller's job. The first four callers have shares of their own, if there are
// so many; the next two have one together, or none.
func callerJob(caller int) string {
	return []string{"a", "b", "c", "d.us", "e.one", "e.two", "free", ""}[caller]
}

func (g *guarantees) walk() {
	g.budget = fmt.Sprint("walk/", g.n)
	for i := range 1 + g.rng.IntN(3) {
		g.limits = append(g.limits, g.divided(i))
	}
	for range 3 {
		g.round()
		g.clock.Add([]int64{0, second, 5 * second, hour, 8 * hour}[g.rng.IntN(5)])
	}
	g.alone(g.rng.IntN(callers))
}

// divided makes a limit that some shares divide. No charge leaves it at a half second, at
// which all are made.
func (g *guarantees) divided(i int) limit.Limit {
	l := limit.Limit{Name: fmt.Sprint("l", i), Counts: limit.CountUnits, Limit: 20 + g.rng.Int64N(100)}
	if g.rng.IntN(4) == 0 {
		l.Counts, l.Limit = limit.CountCalls, 8+g.rng.Int64N(20)
	}
	lapse := false
	switch g.rng.IntN(3) {
	case 0:
		l.Window = limit.RollingWindow([]time.Duration{4250 * time.Millisecond, 90*time.Minute + 250*time.Millisecond, 24*time.Hour + 250*time.Millisecond}[g.rng.IntN(3)])
	case 1:
		l.Window = limit.CoarseWindow(2*time.Hour, time.Minute)
	default:
		l.Window, lapse = calendar(g.t, l.Name, 1, limit.Day, "UTC").Window, true
	}
	left := l.Limit
	for j, patterns := range [][]string{{"a"}, {"b"}, {"c"}, {"d.*"}, {"e.one", "e.two"}} {
		if g.rng.IntN(4) == 0 {
			continue
		}
		s := limit.Share{Name: fmt.Sprint("s", j), Jobs: patterns, Guarantee: g.rng.Int64N(left/2 + 1)}
		if lapse && g.rng.IntN(3) == 0 {
			s.Lapse = []int64{3 * hour, 13 * hour}[g.rng.IntN(2)]
		}
		left -= s.Guarantee
		l.Shares = append(l.Shares, s)
	}
	return l
}

// uses is what each share of a limit has used by an account, and what all have.
func uses(l limit.Limit, spent []granting, now int64) (used []int64, all int64) {
	used = make([]int64, len(l.Shares))
	for _, s := range spent {
		if !stillCounts(l.Window, s.at, now) {
			continue
		}
		amount := l.Amount(s.units)
		all += amount
		for i, share := range l.Shares {
			if slices.Contains(share.Jobs, s.job) || share.Jobs[0] == "d.*" && s.job == "d.us" {
				used[i] += amount
			}
		}
	}
	return used, all
}

// stillCounts tells by the definition of each kind of window whether a charge counts.
func stillCounts(w limit.Window, at, now int64) bool {
	switch {
	case w.Kind == limit.CalendarKind:
		return time.UnixMicro(at).UTC().Format(time.DateOnly) == time.UnixMicro(now).UTC().Format(time.DateOnly)
	case w.Precision > 0:
		return now < (at+w.Precision-1)/w.Precision*w.Precision+w.Length
	}
	return now < at+w.Length
}

// inForce is what a share is guaranteed at an instant of a walk.
func inForce(l limit.Limit, s limit.Share, now int64) int64 {
	if s.Lapse > 0 && now >= (now/(24*hour)+1)*24*hour-s.Lapse {
		return 0
	}
	return s.Guarantee
}

// room is what is left for a job in a limit, and whether the job's share is still within its
// guarantee after an amount more.
func room(l limit.Limit, spent []granting, job string, amount, now int64) (left int64, within bool) {
	used, all := uses(l, spent, now)
	left = l.Limit - all
	for i, s := range l.Shares {
		guarantee := inForce(l, s, now)
		if slices.Contains(s.Jobs, job) || s.Jobs[0] == "d.*" && job == "d.us" {
			within = used[i]+amount <= guarantee
		} else {
			left -= max(0, guarantee-used[i])
		}
	}
	return left, within
}

// charge sends one call and returns its decision.
func (g *guarantees) charge(id, job string, units int64) driver.Decision {
	answer, err := g.store.Decide(context.Background(), driver.Batch{
		Budget: g.budget, Now: g.clock.Load(), Limits: g.limits,
		Items: []driver.Item{{ID: id, Operation: "op", Units: units, Labels: driver.Labels{Job: job}}},
	})
	if err != nil {
		g.t.Errorf("seed %d, walk %d: charge for %q: %v", g.seed, g.n, job, err)
		return driver.Decision{}
	}
	return answer.Items[0]
}

// round has all callers charge once or twice at the same time.
func (g *guarantees) round() {
	now := g.clock.Load()
	before := slices.Clone(g.spent)
	type call struct {
		units   int64
		granted driver.Decision
	}
	var calls [callers][]call
	for c := range calls {
		for range 1 + g.rng.IntN(2) {
			calls[c] = append(calls[c], call{units: 1 + g.rng.Int64N(30)})
		}
	}
	var all sync.WaitGroup
	for c := range calls {
		id := g.calls
		g.calls += len(calls[c])
		all.Go(func() {
			for i := range calls[c] {
				calls[c][i].granted = g.charge(fmt.Sprint("id", id+i), callerJob(c), calls[c][i].units)
			}
		})
	}
	all.Wait()
	for c := range calls {
		job, own := callerJob(c), before
		for _, one := range calls[c] {
			granted := one.granted.Result == driver.Granted
			if granted {
				g.spent = append(g.spent, granting{one.granted.At, job, one.units})
			}
			if c >= 4 { // another caller may have had its share
				continue
			}
			within := true
			for _, l := range g.limits {
				_, fits := room(l, own, job, l.Amount(one.units), now)
				within = within && fits
			}
			switch {
			case within && !granted:
				g.t.Fatalf("seed %d, walk %d: %d units for %s at %d, within its guarantee: %+v; limits %+v, spent %+v", g.seed, g.n, one.units, job, now, one.granted, g.limits, own)
			case within:
				g.within++
			case granted:
				g.borrowed++
			default:
				g.refused++
			}
			if granted {
				own = append(slices.Clone(own), granting{one.granted.At, job, one.units})
			}
		}
	}
	slices.SortFunc(g.spent, func(a, b granting) int { return cmp.Compare(a.at, b.at) })
	for i, s := range g.spent[len(before):] {
		for _, l := range g.limits {
			if left, _ := room(l, g.spent[:len(before)+i], s.job, 0, now); left < l.Amount(s.units) {
				g.t.Fatalf("seed %d, walk %d: %+v was granted at %d with %d left in %+v, spent %+v", g.seed, g.n, s, now, left, l, g.spent[:len(before)+i])
			}
		}
	}
}

// alone has one caller take all that is left for it, which is exactly what the others are not
// guaranteed or have spent already.
func (g *guarantees) alone(caller int) {
	now, job := g.clock.Load(), callerJob(caller)
	left, calls := int64(1000), int64(1000)
	for _, l := range g.limits {
		one, _ := room(l, g.spent, job, 0, now)
		if l.Counts == limit.CountCalls {
			calls = min(calls, one)
		} else {
			left = min(left, one)
		}
		for _, s := range l.Shares {
			if inForce(l, s, now) < s.Guarantee {
				g.lapsed++
			}
		}
	}
	charge := func(id string, units int64, want bool) {
		if d := g.charge(id, job, units); (d.Result == driver.Granted) != want {
			g.t.Fatalf("seed %d, walk %d: %s alone: %d units at %d: %+v, want granted %v: left %d units, %d calls; limits %+v, spent %+v", g.seed, g.n, job, units, now, d, want, left, calls, g.limits, g.spent)
		}
	}
	if calls > 1 && left < 1000 {
		charge("more than all", left+1, false)
		charge("all", left, true)
		charge("one more", 1, false)
		return
	}
	for i := range calls {
		charge(fmt.Sprint("call", i), 0, true)
	}
	if calls < 1000 {
		charge("one more call", 0, false)
	}
	must.Equal(g.t, left >= 0 && calls >= 0, true, "left")
}
