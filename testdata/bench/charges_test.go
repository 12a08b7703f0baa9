package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
)

// ample is more than any benchmark spends.
const ample int64 = 1e12

// jobs and regions label the charges in turn, as a daemon's do.
var (
	jobs    = []string{"nightly", "feeds", "charts", "comments", "backfill"}
	regions = []string{"US", "DE", "FR", "JP", "BR", "IN", "GB", "MX"}
)

// runs are labels of runs, one a minute.
var runs = sync.OnceValue(func() (list []string) {
	for minute := range 10_000 {
		at := time.Date(2026, 6, 10, 0, minute, 0, 0, time.UTC)
		list = append(list, at.Format("20060102T150405Z"))
	}
	return list
})

// labels are those of the nth charge: a run makes a thousand charges.
func labels(n int64) driver.Labels {
	return driver.Labels{Job: jobs[n%int64(len(jobs))], Region: regions[n/7%int64(len(regions))], Run: runs()[n/1000%int64(len(runs()))]}
}

// rolling is a limit over a trailing window.
func rolling(name string, window time.Duration, operations ...string) limit.Limit {
	return limit.Limit{Name: name, Limit: ample, Counts: limit.CountUnits, Window: limit.RollingWindow(window), Operations: operations}
}

// rollings are n limits over everything, each with a window of its own.
func rollings(n int) (list []limit.Limit) {
	for i := range n {
		list = append(list, rolling(fmt.Sprint("l", i), time.Duration(i+1)*time.Hour))
	}
	return list
}

// operations are so many names.
func operations(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint("op", i))
	}
	return list
}

// shape is a kind of budget whose decisions are measured.
type shape struct {
	name        string
	limits      []limit.Limit
	operations  int   // the charges' operations in turn; 0: one
	units       int64 // a charge; 0: 1
	lease       time.Duration
	unkept      bool // no history
	unlike      bool // charges are of different units
	warm        time.Duration
	against, as string
}

// shapes are all that is measured one item a call of the store.
func shapes(b *testing.B) []shape {
	divided := rolling("l0", time.Hour)
	for _, job := range jobs[:4] {
		divided.Shares = append(divided.Shares, limit.Share{Name: job, Jobs: []string{job}, Guarantee: 1e9})
	}
	of := func(window limit.Window, counts limit.Counts) []limit.Limit {
		return []limit.Limit{{Name: "l", Limit: ample, Counts: counts, Window: window}}
	}
	refill := must.Get(limit.NewRefill(1_000_000, time.Second))(b)
	bucket := of(limit.BucketWindow(refill), limit.CountUnits)
	bucket[0].Limit = 1e9
	day := must.Get(limit.NewCalendar(limit.Day, "America/Los_Angeles", 0))(b)
	half := operations(50)
	return []shape{
		{name: "limits=1", limits: rollings(1)},
		{name: "limits=3", limits: rollings(3)},
		{name: "limits=50-of-100-operations", limits: []limit.Limit{rolling("all", time.Hour), rolling("half", 24*time.Hour, half...)}, operations: 100},
		{
			name: "limits=50-of-100-operations/due", operations: 100, warm: 1500 * time.Millisecond,
			limits: []limit.Limit{rolling("all", time.Hour), rolling("half", 500*time.Millisecond, half...)},
		},
		{name: "shares=4", limits: []limit.Limit{divided}, against: "decide/limits=1", as: "of-undivided"},
		{name: "history=none", limits: rollings(1), unkept: true, against: "decide/limits=1", as: "of-kept"},
		{name: "units=100", limits: rollings(1), units: 100, against: "decide/limits=1", as: "of-1-unit"},
		{name: "window=coarse", limits: of(limit.CoarseWindow(24*time.Hour, time.Minute), limit.CountUnits)},
		{name: "window=calendar", limits: of(limit.CalendarWindow(day), limit.CountUnits)},
		{name: "window=bucket", limits: bucket},
		{name: "window=concurrent", limits: of(limit.ConcurrentWindow(), limit.CountCalls), lease: 5 * time.Second},
	}
}

// batches are all that is measured 128 items a call of the store.
func batches() []shape {
	return []shape{
		{name: "limits=1", limits: rollings(1)},
		{name: "limits=3", limits: rollings(3)},
		{name: "mixed/limits=3", limits: rollings(3), unlike: true, operations: 4},
	}
}

// decider makes batches for a budget of one store, as a Budget with a memory of the store
// does: with a mark of the ledger, a host, and a table of shares.
type decider struct {
	store *redisstore.Store
	shape shape
	name  string
	table driver.ShareTable
	n     atomic.Int64

	mu   sync.Mutex // guards mark
	mark driver.Mark
}

func newDecider(b *testing.B, url string, s shape, name string) *decider {
	var options redisstore.Options
	if s.unkept {
		options.History = -1
	}
	store := openRedis(b, url, options)
	return &decider{store: store, shape: s, name: "bench/" + name, table: driver.ShareTable{Host: "bench", Digest: limit.DigestShares(s.limits)}}
}

// decide has the store decide n new items in one call.
func (d *decider) decide(ctx context.Context, n int) error {
	now := time.Now()
	batch := driver.Batch{
		Budget: d.name, Now: now.UnixMicro(), Limits: d.shape.limits, Items: make([]driver.Item, n), Mark: d.newest(),
		Host: "0123456789abcdef", Hosts: 1, Table: d.table,
	}
	for i := range batch.Items {
		batch.Items[i] = d.item(now.Add(time.Minute))
	}
	decided, err := d.store.Decide(ctx, batch)
	if err != nil {
		return err
	}
	for _, one := range decided.Items {
		if one.Result != driver.Granted {
			return fmt.Errorf("a charge of %s was not granted: %+v", d.name, one)
		}
	}
	d.saw(decided.Mark)
	return nil
}

// newID is an id as a Budget makes them.
func newID() string { return rand.Text() }

// item is the next charge.
func (d *decider) item(deadline time.Time) driver.Item {
	n := d.n.Add(1)
	item := driver.Item{
		ID: newID(), Operation: "op0", Units: 1, Lease: d.shape.lease.Microseconds(), Labels: labels(n), Deadline: deadline,
	}
	if d.shape.operations > 0 {
		item.Operation = fmt.Sprint("op", n%int64(d.shape.operations))
	}
	if d.shape.units > 0 {
		item.Units = d.shape.units
	}
	if d.shape.unlike {
		item.Units = 1 + n%5*10
	}
	return item
}

func (d *decider) newest() driver.Mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mark
}

func (d *decider) saw(mark driver.Mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if mark.Changes > d.mark.Changes {
		d.mark = mark
	}
}

// openRedis opens a store that has the patience of a minute.
func openRedis(b *testing.B, url string, options redisstore.Options) *redisstore.Store {
	options.Timeout, options.Prefix = time.Minute, "bench"
	store := must.Get(redisstore.Open(b.Context(), url, options))(b)
	b.Cleanup(func() { _ = store.Close() })
	must.Do(b, store.Ping(b.Context()))
	return store
}

// charging charges through a Budget, whose goroutines' charges are decided together. The
// store closes with the benchmark.
func charging(b *testing.B, store driver.Store, limits int, name string) func(context.Context) error {
	opened := must.Get(budget.New(store, budget.Spec{
		Name: "bench/" + name, Timeout: time.Minute, Costs: map[string]budget.Cost{"op0": {Units: 1}}, Limits: rollings(limits),
	}, budget.WithClosers(store)))(b)
	b.Cleanup(func() { _ = opened.Close() })
	var n atomic.Int64
	return func(ctx context.Context) error {
		_, err := opened.Charge(ctx, budget.Call{Operation: "op0", Labels: labels(n.Add(1))})
		return err
	}
}
