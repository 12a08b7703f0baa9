package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// counted adds up what it reads, and does something at its 100th row.
type counted struct {
	heads, rows int
	units       int64
	midway      func()
}

func (c *counted) Head(driver.LedgerHead) error {
	c.heads++
	return nil
}

func (c *counted) Row(row driver.Row) error {
	c.units += row.Units
	if c.rows++; c.rows == 100 && c.midway != nil {
		c.midway()
	}
	return nil
}

// Why in the middle of an export leaves the export alone: no merging begins, as long as that
// reads. It reads no history, and no hash from end to end.
func TestWhyDuringAnExport(t *testing.T) {
	t.Parallel()
	const charges = 5000
	server := redistest.Start(t)
	now := int64(1_800_000_000_000_000)
	store := must.Get(redisstore.OpenWithClock(server.URL(0), redisstore.Options{Timeout: patient}, func() int64 { return now }))(t)
	limits := []limit.Limit{{Name: "l", Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.CoarseWindow(24*time.Hour, time.Minute)}}
	charge := func(items ...driver.Item) {
		must.Get(store.Decide(t.Context(), driver.Batch{Budget: "up/key1", Now: now, Limits: limits, Items: items}))(t)
	}
	for from := 0; from < charges; from += 500 {
		var items []driver.Item
		for n := range 500 {
			items = append(items, driver.Item{ID: fmt.Sprint("id-", from+n), Operation: "op", Units: 1, Labels: driver.Labels{Job: fmt.Sprint("j", n%5)}})
		}
		now += 1_000_000
		charge(items...)
	}
	now += 3 * 3_600_000_000
	spec := budget.Spec{Name: "up/key1", Limits: limits, Costs: map[string]budget.Cost{"op": {Units: 1}}}
	b := must.Get(budget.New(store, spec, budget.WithNow(func() time.Time { return time.UnixMicro(now).UTC() })))(t)

	reader := &exportReader{units: map[string]int64{}, midway: func() {
		info := func() string { return must.Get(server.Client().Info(t.Context(), "commandstats").Result())(t) }
		before := hscans(info())
		why := must.Get(b.Why(t.Context(), budget.Call{Operation: "op"}))(t)
		check.Equal(t, hscans(info())-before, 0, "hashes read from end to end")
		check.Equal(t, why.Limits[0].Used, charges, "used")
		check.Equal(t, len(why.Limits[0].By), 5, "jobs")
		charge(driver.Item{ID: "meanwhile", Operation: "op"})
	}}
	must.Do(t, store.Export(t.Context(), driver.Export{Budget: "up/key1", Now: now}, reader))
	delete(reader.units, "meanwhile")
	check.Equal(t, reader.sum(), charges, "units exported")

	// What is merged as it is read moves: it says so.
	counting := driver.Counting{Limits: limits, At: now}
	moved := &counted{midway: func() { charge(driver.Item{ID: "merges", Operation: "op"}) }}
	must.Do(t, store.Export(t.Context(), driver.Export{Budget: "up/key1", Now: now, Counting: counting}, moved))
	check.Equal(t, moved.heads > 1, true, "heads:", moved.heads)
	still := &counted{midway: func() { charge(driver.Item{ID: "new", Operation: "op"}) }}
	must.Do(t, store.Export(t.Context(), driver.Export{Budget: "up/key1", Now: now, Counting: counting}, still))
	check.Equal(t, still.heads, 1, "heads")
	check.Equal(t, still.units, charges, "units that are merged")
}

// hscans is how many HSCANs a server has run.
func hscans(stats string) (n int) {
	if _, calls, some := strings.Cut(stats, "cmdstat_hscan:calls="); some {
		_, _ = fmt.Sscanf(calls, "%d", &n)
	}
	return n
}
