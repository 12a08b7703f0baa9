package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// What many operations were charged leaves a window one charge after the other, whichever of
// the groups of its queue an operation is in, and whether it was new before or after the others.
func TestUsualQueue(t *testing.T) {
	t.Parallel()
	const window, step = int64(time.Second / time.Microsecond), int64(1000)
	f, runs, decide := usualFake(t,
		limit.Limit{Name: "w", Limit: 1e6, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Second)},
		limit.Limit{Name: "long", Limit: 1e9, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
	)
	type charge struct{ at, units int64 }
	var charges []charge
	spend := func(operation int) {
		t.Helper()
		n := int64(len(charges))
		charges = append(charges, charge{f.now, n + 1})
		got := decide(driver.Item{ID: fmt.Sprint("id", n), Operation: fmt.Sprint("op", operation), Units: n + 1})
		want := int64(0)
		for _, c := range charges {
			if c.at > f.now-window {
				want += c.units
			}
		}
		must.Equal(t, got.Used[0], want, "used after charge", n, "of operation", operation)
		f.now += step
	}
	for _, operations := range []int{8, 9, 20} { // one group, two, three
		for round := range 2 {
			for i := range operations {
				spend((i*7 + round) % operations)
			}
		}
	}
	other := runs.other.Load()
	f.now += window - 2*20*step // the first charges are about to leave
	for i := range 80 {
		spend(i * 3 % 20)
	}
	f.now += window - 40*step // forty leave at once
	spend(4)
	for range 3 { // all leave, and the first of their operations follow
		f.now += window
		spend(13)
		spend(6)
		f.now += window - 3*step/2 // one leaves
		spend(19)
	}
	must.Equal(t, runs.other.Load()-other, 0, "runs of charge.lua")
	f.now += window
	spend(20) // it is new, so that charge.lua sees all others leave
	spend(6)
	f.now += window - step/2
	spend(19)
	must.Equal(t, runs.left.Load(), 0, "runs of usual.lua that left their charge to charge.lua")
}
