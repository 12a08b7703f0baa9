package sqlitestore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// inSteps makes the store take hardly anything into one transaction, and counts
// the pauses between them.
func (b *bench) inSteps(steps int) (pauses *int) {
	pauses = new(int)
	sqlitestore.SetSteps(b.store, steps, steps)
	sqlitestore.SetPaused(b.store, func() { *pauses++ })
	return pauses
}

// equalScores reserves groups of three reservations that end together, a
// minute apart: the group g ends at noon + (g+1) minutes, and each of its
// reservations is of g+1 units.
func (b *bench) equalScores(groups int64) {
	b.t.Helper()
	var items []driver.Item
	for g := range groups {
		for k := range int64(3) {
			at := noon + int64(len(items)) // each entry has a microsecond of its own
			items = append(items, lease(item(fmt.Sprint("r", g, k), g+1), noon+(g+1)*minute-at))
		}
	}
	b.granted(items...)
}

// I7: a window that comes later is built in steps, exactly, while others charge.
func TestBuildInSteps(t *testing.T) {
	for steps := 1; steps <= 5; steps++ {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			b := newBench(t, rolling(1000, 2*hour))
			b.equalScores(6)
			b.granted(item("p", 7))
			other := &bench{t: t, path: b.path, now: noon, limits: b.limits}
			other.open()
			defer other.close()
			pauses := b.inSteps(steps)
			sqlitestore.SetPaused(b.store, func() {
				*pauses++
				if *pauses == 2 {
					other.granted(item("between", 100), lease(item("r", 200), hour))
				}
			})
			b.limits = append(b.limits, rolling(800, hour), rolling(800, 24*hour, "op"))
			if d := b.decide(item("x", 1))[0]; d.Result != driver.Granted || d.Limit != 1 || d.Remaining != 800-63-7-300-1 {
				t.Fatalf("%+v, want limit 1 to have %d left", d, 800-63-7-300-1)
			}
			if *pauses < 2 {
				t.Fatalf("%d pauses: the test shows nothing", *pauses)
			}
			b.now = noon + day + second
			must.Equal(t, b.used(), 0, "used in two hours")
			view := must.Get(b.store.Look(context.Background(), driver.Look{Budget: name, Now: b.now, Limits: b.limits[2:]}))(t)
			must.Equal(t, view.Limits[0].Used, 63+200)
		})
	}
}

// A walk that others interrupt answers for what is there at its end.
func TestWalkRestarts(t *testing.T) {
	fill := func(b *bench) {
		b.granted(lease(item("r", 5), second))
		for i := range 20 {
			b.now += 2 * second
			b.granted(item(fmt.Sprint("e", i), 1))
		}
	}
	first := noon + second + hour // r comes back
	for _, one := range []struct {
		name    string
		between func(*bench)
		want    int64
	}{
		{"by nothing", func(*bench) {}, noon + 10*second + hour},
		{"by a late settlement", func(b *bench) {
			got, err := driver.FinishOne(context.Background(), b.store, name, b.now, driver.Finish{ID: "r", Units: 1})
			must.Do(b.t, err)
			check.Equal(b.t, got.Result, driver.Settled, "settle")
		}, noon + 10*second + hour},
		{"by a charge", func(b *bench) { b.granted(item("between", 4)) }, noon + 18*second + hour},
		{"by expiry", func(b *bench) { b.now = first; b.decide() }, noon + 10*second + hour},
		{"by expiry past it", func(b *bench) { b.now = noon + hour + 9*second; b.decide() }, noon + 10*second + hour},
	} {
		t.Run(one.name, func(t *testing.T) {
			b := newBench(t, rolling(25, hour))
			fill(b)
			other := &bench{t: t, path: b.path, now: b.now, limits: []limit.Limit{rolling(100, hour)}}
			other.open()
			defer other.close()
			pauses := b.inSteps(2)
			sqlitestore.SetPaused(b.store, func() {
				if *pauses++; *pauses == 2 {
					one.between(other)
					b.now = other.now
				}
			})
			b.refused(item("x", 10), one.want)
			if *pauses < 2 {
				t.Fatalf("%d pauses: the test shows nothing", *pauses)
			}
			// And the same once more, undisturbed.
			b.refused(item("x", 10), one.want)
		})
	}
}

// A walk among open reservations starts anew when a charge comes to lie below.
func TestWalkAmongReservationsRestarts(t *testing.T) {
	b := newBench(t, rolling(10, hour))
	for i := range int64(5) {
		b.granted(lease(item(fmt.Sprint("r", i), 2), (i+1)*minute-i))
	}
	other := &bench{t: t, path: b.path, now: b.now, limits: []limit.Limit{rolling(100, hour)}}
	other.open()
	defer other.close()
	pauses := b.inSteps(1)
	sqlitestore.SetPaused(b.store, func() {
		if *pauses++; *pauses == 2 {
			other.granted(item("between", 3))
		}
	})
	b.refused(item("x", 8), noon+4*minute+hour)
	if *pauses < 2 {
		t.Fatalf("%d pauses: the test shows nothing", *pauses)
	}
}

// The store looks again at its result for one limit when others changed it while the walk for
// the next limit went on.
func TestFoundInstantIsNotKept(t *testing.T) {
	b := newBench(t, rolling(20, 2*hour, "op"), rolling(20, hour))
	for i := range 20 {
		b.now += second
		b.granted(item(fmt.Sprint("e", i), 1))
	}
	other := &bench{t: t, path: b.path, now: b.now, limits: []limit.Limit{rolling(100, 2*hour)}}
	other.open()
	defer other.close()
	pauses := b.inSteps(3)
	sqlitestore.SetPaused(b.store, func() {
		if *pauses++; *pauses == 7 { // the first walk took five transactions
			other.granted(item("between", 2))
		}
	})
	b.refused(item("x", 15), noon+17*second+2*hour)
	if *pauses < 9 {
		t.Fatalf("%d pauses: the test shows nothing", *pauses)
	}
}

// ending is a context whose deadline comes when the test says so.
type ending struct {
	context.Context
	end chan struct{}
}

func (e ending) Done() <-chan struct{} { return e.end }

func (e ending) Err() error {
	select {
	case <-e.end:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// When the time does not suffice, the decisions so far stand, and the answer says that the
// rest is undecided.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t, rolling(30, hour))
	for i := range 30 {
		b.granted(item(fmt.Sprint("e", i), 1))
	}
	b.limits[0].Limit = 31
	sqlitestore.SetSteps(b.store, 1, 1)
	ctx := ending{t.Context(), make(chan struct{})}
	pauses := 0
	sqlitestore.SetPausedIn(b.store, func(bounded context.Context) {
		if pauses++; pauses == 2 {
			close(ctx.end)
			<-bounded.Done()
		}
	})
	items := []driver.Item{item("fits", 1), item("far", 31), item("after", 0)}
	got := must.Get(b.store.Decide(ctx, driver.Batch{Budget: name, Now: b.now, Limits: b.limits, Items: items}))(t).Items
	if got[0].Result != driver.Granted || got[1].Result != driver.Interrupted || got[2].Result != driver.Interrupted {
		t.Fatalf("%+v, want the first granted and the others interrupted", got)
	}
	sqlitestore.SetPaused(b.store, nil)
	must.Equal(t, b.used(), 31, "used")
	if d := b.decide(item("after", 0))[0]; d.Result != driver.Granted || d.Replayed {
		t.Fatalf("%+v, want a new charge", d)
	}
}
