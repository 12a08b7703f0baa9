package sqlitestore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// large is a store beside a million charges of a day, four operations by turns.
type large struct {
	b     *testing.B
	store *sqlitestore.Store
	clock atomic.Int64
	day   limit.Limit
	took  map[string][]time.Duration
}

const largeEntries, largeSpacing = 1_000_000, int64(86_000) // µs; together a little less than a day

func newLarge(b *testing.B) *large {
	l := &large{b: b, day: rolling(largeEntries, day), took: map[string][]time.Duration{}}
	l.clock.Store(noon)
	l.store = must.Get(sqlitestore.OpenWithClock(b.Context(), filepath.Join(b.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}, l.clock.Load))(b)
	b.Cleanup(func() { must.Do(b, l.store.Close()) })
	for i := 0; i < largeEntries; {
		batch := driver.Batch{Budget: name, Now: l.clock.Load(), Limits: []limit.Limit{l.day}}
		for ; i < largeEntries && len(batch.Items) < 100; i++ {
			batch.Items = append(batch.Items, driver.Item{ID: fmt.Sprint("fill", i), Operation: fmt.Sprint("op", i%4), Units: 1})
		}
		must.Get(l.store.Decide(context.Background(), batch))(b)
		l.clock.Add(largeSpacing * 100)
	}
	return l
}

// decide decides one item against limits, and notes how long that took.
func (l *large) decide(what string, limits []limit.Limit, item driver.Item) driver.Decision {
	l.b.Helper()
	began := time.Now()
	got := must.Get(l.store.Decide(context.Background(), driver.Batch{Budget: name, Now: l.clock.Load(), Limits: limits, Items: []driver.Item{item}}))(l.b)
	l.note(what, time.Since(began))
	return got.Items[0]
}

func (l *large) note(what string, took time.Duration) { l.took[what] = append(l.took[what], took) }

// BenchmarkLarge does beside a million charges in the window what has to do with many of
// them, and how long that takes in all, in ms: a refusal that needs half of the window back; a
// new window; a window newly narrowed, to half of its length and to one operation; a look; and
// the first decision after 100,000 charges have expired at once. transaction-ms is the longest
// transaction of all of these, without the fsync at its end.
func BenchmarkLarge(b *testing.B) {
	l := newLarge(b)
	longest := time.Duration(0)
	sqlitestore.SetTimed(l.store, func(took time.Duration) { longest = max(longest, took) })
	n := 0
	for b.Loop() {
		n++
		limits := []limit.Limit{l.day}
		if d := l.decide("refusal-ms", limits, driver.Item{ID: fmt.Sprint("half", n), Operation: "op0", Units: largeEntries / 2}); d.Result != driver.Refused {
			b.Fatalf("%+v, want a refusal", d)
		}
		new, half, some := rolling(limit.MaxUnits, day-int64(n)*second), rolling(limit.MaxUnits, day/2-int64(n)*second), rolling(limit.MaxUnits, day/3-int64(n)*second, "op1")
		new.Name, half.Name, some.Name = "new", "half", "some"
		for what, one := range map[string]limit.Limit{"new-window-ms": new, "narrowed-ms": half, "narrowed-to-one-ms": some} {
			l.decide(what, []limit.Limit{l.day, one}, driver.Item{ID: fmt.Sprint("look", n), Operation: "op1", Units: 1, DryRun: true})
		}
		began := time.Now()
		must.Get(l.store.Look(context.Background(), driver.Look{Budget: name, Now: l.clock.Load(), Limits: limits}))(b)
		l.note("look-ms", time.Since(began))
	}
	for i := range 3 {
		l.clock.Add(100_000 * largeSpacing)
		l.decide("expired-ms", []limit.Limit{l.day}, driver.Item{ID: fmt.Sprint("first", i), Operation: "op0", Units: 1})
	}
	for what, took := range l.took {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, what)
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "transaction-ms")
	b.ReportMetric(0, "ns/op")
}
