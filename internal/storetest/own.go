package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// After a split, each of two hosts reports charges that the other never saw. The charges
// that hosts made themselves are added up, once each; what each of them saw is not.
func testRecoverOwn(t *testing.T, w *world) {
	calls := limit.Limit{Name: "calls", Limit: 1000, Counts: limit.CountCalls, Window: limit.RollingWindow(2 * time.Hour)}
	w.limits = []limit.Limit{rolling("day", 1000, 24*time.Hour), calls, calendar(t, "pacific", 1000, limit.Day, "America/Los_Angeles")}
	w.granted(item("survivor", "op", 100))
	seen := w.now + minute
	w.now += 5 * minute
	tell := func(what string, at int64, used, own []int64, id string, want ...int64) {
		t.Helper()
		r := driver.Recovery{Budget: w.budget, Now: w.now, Limits: w.limits, Used: used, At: at, Mark: driver.Mark{ID: "lost", At: seen}, Own: own, OwnID: id}
		got, err := driver.Apply(context.Background(), w.store, r)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for i, limit := range w.look().Limits {
			if used[i] >= 0 && got.Amounts[i] != want[i] || limit.Recovered != want[i] {
				t.Fatalf("%s: of limit %s %d are recovered, and shown are %d, want %d", what, w.limits[i].Name, got.Amounts[i], limit.Recovered, want[i])
			}
		}
	}
	tell("one host", seen, []int64{150, 4, 150}, []int64{40, 3, 40}, "a-1", 50, 3, 50)
	tell("another, which saw as much", seen, []int64{150, 3, 150}, []int64{45, 2, 45}, "b-1", 85, 5, 85)
	tell("one that charged nothing itself", seen, []int64{160, 3, 160}, nil, "", 85, 5, 85)
	tell("one that saw more than all charged", seen, []int64{190, 9, 190}, []int64{0, 0, 0}, "c-1", 90, 8, 90)
	tell("the first once more", seen, []int64{150, 4, 150}, []int64{40, 3, 40}, "a-1", 90, 8, 90)
	tell("the first, of more", seen, []int64{150, 4, 150}, []int64{50, 7, 50}, "a-1", 95, 9, 95)
	tell("the first, of less", seen, []int64{150, 4, 150}, []int64{10, 1, 10}, "a-1", 95, 9, 95)
	later := w.now
	tell("the first, of a later loss", later, []int64{195, 10, -1}, []int64{20, 2, 500}, "a-2", 115, 11, 95)
	// All of it leaves the window together, like what was seen last.
	w.onTime(item("fits", "op", 900), 0, later+24*hour)
}
