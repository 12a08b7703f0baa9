package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Histories has two processes of one host charge to two histories of a ledger, as after a
// split. The history that survives has changed more often, so that its mark is the
// newest. The process that knows it must not forget the answers that the other process
// got.
func Histories(t *testing.T, open func(t *testing.T) Lossy) {
	t.Helper()
	for _, ends := range []bool{false, true} {
		t.Run(fmt.Sprint("the first process has ended: ", ends), func(t *testing.T) {
			data := open(t)
			w := &lossWalk{t: t, data: data, limits: []limit.Limit{rolling("day", 1000, 24*time.Hour)}}
			w.clock.Store(noon)
			h := &lossHost{dir: t.TempDir()}
			w.hosts = []*lossHost{h}
			one, other := w.open(h), w.open(h)
			n := 0
			charge := func(process driver.Store, units int64) {
				t.Helper()
				n++
				d := must.Get(process.Decide(t.Context(), driver.Batch{
					Budget: lossBudget, Now: w.clock.Load(), Limits: w.limits, Items: []driver.Item{{ID: fmt.Sprint("id", n), Operation: "list", Units: units}},
				}))(t)
				must.Equal(t, d.Items[0].Result, driver.Granted, "charge")
				w.clock.Add(1000)
			}
			look := func(process driver.Store) int64 {
				t.Helper()
				w.clock.Add(2 * second)
				view := must.Get(process.Look(context.Background(), driver.Look{Budget: lossBudget, Now: w.clock.Load(), Limits: w.limits}))(t)
				return view.Limits[0].Used
			}
			charge(one, 1)
			charge(other, 1)
			look(one)
			look(other)
			both := data.Keep()
			charge(one, 30)
			if ends {
				must.Do(t, one.Close())
			}
			both()
			for range 5 { // within the second, so that it does not know of the 30
				charge(other, 1)
			}
			if err := other.Close(); err != nil { // which writes down its answers
				t.Fatal(err)
			}
			if ends {
				one = w.open(h)
			}
			look(one)
			must.Equal(t, look(one), 37, "used, and 37 were charged")
			must.Do(t, one.Close())
		})
	}
}

// NewestOnce has a host charge to a ledger that was rolled back, which the host cannot
// know: its charge is in the ledger, and is later than the store's clock, since the
// host's clock is ahead. Once another host has noticed the loss, that charge counts once.
func NewestOnce(t *testing.T, data Lossy) {
	t.Helper()
	w := &lossWalk{t: t, data: data, limits: []limit.Limit{rolling("day", 1000, 24*time.Hour)}}
	w.clock.Store(noon)
	one, other := w.open(&lossHost{dir: t.TempDir()}), w.open(&lossHost{dir: t.TempDir()})
	n := 0
	charge := func(process driver.Store, units int64) {
		t.Helper()
		n++
		d := must.Get(process.Decide(t.Context(), driver.Batch{
			Budget: lossBudget, Now: w.clock.Load() + 5000, Limits: w.limits, Items: []driver.Item{{ID: fmt.Sprint("id", n), Operation: "list", Units: units}},
		}))(t)
		must.Equal(t, d.Items[0].Result, driver.Granted, "charge")
	}
	look := func(process driver.Store) int64 {
		t.Helper()
		w.clock.Add(2 * second)
		view := must.Get(process.Look(t.Context(), driver.Look{Budget: lossBudget, Now: w.clock.Load(), Limits: w.limits}))(t)
		return view.Limits[0].Used
	}
	charge(one, 10)
	charge(other, 10)
	look(one)
	look(other)
	restore := data.Keep()
	charge(other, 1)
	restore()
	w.clock.Add(2 * second)
	charge(one, 500)
	look(other)
	look(one)
	check.Equal(t, look(other), 521, "used, and 521 were charged")
	for _, process := range []driver.Store{one, other} {
		check.NoError(t, process.Close())
	}
}
