package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// exportReader adds up an export, and does something at its 1,500th row.
type exportReader struct {
	units  map[string]int64 // by id: a row may be given more than once
	rows   int
	midway func()
}

func (r *exportReader) Head(driver.LedgerHead) error { return nil }

func (r *exportReader) Row(row driver.Row) error {
	if row.State == driver.RowHistory {
		return nil
	}
	r.units[row.ID] = row.Units
	if r.rows++; r.rows == 1500 {
		r.midway()
	}
	return nil
}

func (r *exportReader) sum() (units int64) {
	for _, one := range r.units {
		units += one
	}
	return units
}

// A ledger of 5,000 charges, three hours old, is due to be merged. A charge in the middle
// of its export does not merge it: the export would miss what came into a page that was
// read. A reset in the middle fails the export.
func TestExportOfALedgerThatChanges(t *testing.T) {
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
			items = append(items, driver.Item{ID: fmt.Sprint("id-", from+n), Operation: "op", Units: 1, Labels: driver.Labels{Job: fmt.Sprint("j", n%100)}})
		}
		now += 1_000_000
		charge(items...)
	}
	now += 3 * 3_600_000_000

	reader := &exportReader{units: map[string]int64{}, midway: func() { charge(driver.Item{ID: "meanwhile", Operation: "op"}) }}
	must.Do(t, store.Export(t.Context(), driver.Export{Budget: "up/key1", Now: now}, reader))
	delete(reader.units, "meanwhile")
	check.Equal(t, reader.sum(), charges, "units exported")

	charge(driver.Item{ID: "afterwards", Operation: "op"})
	merged := &exportReader{units: map[string]int64{}, midway: func() {}}
	must.Do(t, store.Export(t.Context(), driver.Export{Budget: "up/key1", Now: now}, merged))
	check.Equal(t, merged.rows < 1500, true, "merged after the export:", merged.rows, "rows")
	check.Equal(t, merged.sum(), charges, "units exported")

	for n := range 3000 {
		charge(driver.Item{ID: fmt.Sprint("more-", n), Operation: "op", Units: 1})
	}
	reset := &exportReader{units: map[string]int64{}, midway: func() {
		must.Get(driver.Apply(t.Context(), store, driver.Reset{Budget: "up/key1"}))(t)
		charge(driver.Item{ID: "anew", Operation: "op", Units: 1})
	}}
	check.Is(t, store.Export(t.Context(), driver.Export{Budget: "up/key1", Now: now}, reset), driver.ErrUnavailable)
}
