package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// Holds that end one after the other: the wait is for as many as must end, and for what must
// return besides. What binds is what would bind if none ended.
func testHoldWaits(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("small", 50, 24*time.Hour), rolling("day", 100, 3*time.Hour)}
	w.granted(item("used", "read", 10))
	first, second := hold(daily, need("write", 45, 1)), hold(other, need("write", 40, 1))
	w.limits[0].Operations = []string{"read"}
	second.Lease = 2 * hour
	w.granted(first)
	w.granted(second)
	w.refused(item("by the first", "read", 10), 1, noon+hour)
	w.refused(item("by both", "write", 60), 1, noon+2*hour)
	w.refused(item("and what is used", "write", 95), 1, noon+3*hour)
	w.refused(item("small", "read", 45), 1, noon+24*hour) // day never while both live
	w.refused(hold("~third/1", need("write", 50, 1)), 1, noon+hour)
	w.lock(driver.Lock{Until: noon + hour + minute, Why: "x"})
	w.refused(item("locked", "read", 10), 1, noon+hour+minute)
	w.now = noon + hour + minute
	w.granted(item("locked", "read", 10))
}

// What a call draws wholly from a hold fits whatever its floor and the guarantees of others are;
// beside the hold it never fits. While it draws and something else refuses it, it is to ask again.
func testHoldAboveFloor(t *testing.T, w *world) {
	for name, l := range map[string]limit.Limit{
		"rolling":  rolling("day", 100, 24*time.Hour),
		"coarse":   coarse("day", 100, 24*time.Hour, time.Minute),
		"calendar": calendar(t, "day", 100, limit.Day, "UTC"),
	} {
		for _, divided := range []bool{false, true} {
			w.budget = fmt.Sprint("up/", name, divided)
			w.limits = []limit.Limit{l}
			w.granted(hold(daily, need("read", 30, 3)))
			drawn := func(id string, units int64) driver.Item {
				i := of(daily, item(id, "read", units))
				if i.Floor = 95; divided {
					i.Floor = 0
				}
				return i
			}
			if divided {
				w.limits[0].Shares = []limit.Share{{Name: "others", Jobs: []string{"others"}, Guarantee: 95}}
			}
			neverFits := func(i driver.Item, limit int) {
				t.Helper()
				d := w.decide(i)[0]
				must.Equal(t, d.Result, driver.NeverFits, i.ID, "of", i.Units, name, divided)
				must.Equal(t, d.Limit, limit, "the limit that it never fits")
			}
			w.granted(drawn("whole", 10))
			neverFits(drawn("in part", 21), 0)
			neverFits(drawn("in part", 101), 0)
			ordinary := drawn("ordinary", 10)
			ordinary.Fence = ""
			neverFits(ordinary, 0)
			w.lock(driver.Lock{Until: w.now + minute, Why: "x"})
			w.refused(drawn("locked", 20), -1, w.now+minute)
			w.lock(driver.Lock{Until: w.now + 2*hour, Why: "x"}) // past the hold's lease
			w.refused(drawn("locked", 20), -1, w.now+driver.PlanLook)
			w.unlock("", true)
			w.limits[0].Limit = 25 // now lowered
			w.refused(drawn("lowered", 20), 0, w.now+driver.PlanLook)
			neverFits(drawn("more than the limit", 26), 0)
		}
	}
}
