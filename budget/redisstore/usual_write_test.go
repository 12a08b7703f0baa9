package redisstore_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// ledgerKey is how the keys of the tests' ledger begin.
const ledgerKey = "quotactl:v1:{" + name + "}:"

// Each charge of a batch has its own microsecond, and the ledger keeps the instant and the end
// that the answer has: also past a tenth, a hundredth and a thousandth.
func TestUsualWritesEachInstant(t *testing.T) {
	t.Parallel()
	f, runs, decide := usualFake(t, rolling("w", 10_000, time.Hour))
	admin := f.Client()
	for n, operation := range []string{"op", "more", "op", "op"} {
		f.now++
		decide(driver.Item{ID: fmt.Sprint(n), Operation: operation, Units: 1})
	}
	for _, size := range []int{1, 2, 9, 25, 120} {
		for _, lease := range []int64{0, 7_000_003} {
			f.now += 10_000 - f.now%10_000 + 990
			var items []driver.Item
			for n := range size {
				items = append(items, driver.Item{ID: fmt.Sprint(size, "/", lease, "/", n), Operation: []string{"op", "op", "more"}[n%3], Units: 1 + int64(n%2), Lease: lease})
			}
			if size == 25 { // both kinds in one
				items[7].Lease, items[20].Lease = 5, 0
			}
			before := runs.decided.Load()
			got := decide(items...)
			must.Equal(t, runs.decided.Load(), before+1, "runs of usual.lua that decided", size)
			for n, d := range got.Items {
				must.Equal(t, d.At, f.now+int64(n), "the time of item", n, "of", size)
				operation := map[string]int{"op": 1, "more": 2}[items[n].Operation]
				entry := strings.Split(must.Get(admin.HGet(t.Context(), ledgerKey+"e", items[n].ID).Result())(t), "|")
				end, start := d.At+items[n].Lease, strconv.FormatInt(d.At, 10)
				score := ""
				if items[n].Lease > 0 {
					score = strconv.FormatInt(end, 10)
				}
				must.Equal(t, fmt.Sprint(entry[5:7]), fmt.Sprint([]string{start, score}), "start and end of item", n, "of", size)
				member := fmt.Sprint(items[n].Units, ":", items[n].ID)
				at := must.Get(admin.ZScore(t.Context(), fmt.Sprint(ledgerKey, "z:", operation), member).Result())(t)
				must.Equal(t, int64(at), end, "score of item", n, "of", size)
			}
		}
	}
}

// A call that fails at the day's history has charged nothing, and its id can be sent again.
func TestUsualFailsAtTheHistory(t *testing.T) {
	t.Parallel()
	f, runs, decide := usualFake(t, rolling("w", 100, time.Hour))
	item := func(id string) driver.Item { return driver.Item{ID: id, Operation: "op", Units: 1} }
	for _, id := range []string{"a", "b", "c"} {
		f.now++
		decide(item(id))
	}
	admin, day := f.Client(), fmt.Sprint(ledgerKey, "l:", f.now/(24*time.Hour.Microseconds()))
	used := int64(3)
	for _, items := range [][]driver.Item{{item("d")}, {item("e"), item("f")}} {
		must.Do(t, admin.Rename(t.Context(), day, ledgerKey+"aside").Err())
		must.Do(t, admin.LPush(t.Context(), day, "a list").Err())
		f.now++
		got, err := f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: []limit.Limit{rolling("w", 100, time.Hour)}, Items: items, Host: "0a"})
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Fatalf("beside a history of another type: %+v, %v", got, err)
		}
		must.Equal(t, must.Get(admin.HLen(t.Context(), ledgerKey+"e").Result())(t), used, "entries")
		must.Do(t, admin.Rename(t.Context(), ledgerKey+"aside", day).Err())
		before := runs.decided.Load()
		used += int64(len(items))
		must.Equal(t, decide(items...).Used[0], used, "used")
		must.Equal(t, runs.decided.Load(), before+1, "runs of usual.lua that decided")
	}
}

// Whether one is charged or several, usual.lua charges no id twice, and nothing on a ledger that
// lacks a charge that the caller knows.
func TestUsualKnowsItsIDs(t *testing.T) {
	t.Parallel()
	f, _, decide := usualFake(t, rolling("w", 100, time.Hour))
	item := func(id string) driver.Item { return driver.Item{ID: id, Operation: "op", Units: 1} }
	var mark driver.Mark
	for _, id := range []string{"a", "b", "c"} {
		f.now++
		mark = decide(item(id)).Mark
	}
	for _, items := range [][]driver.Item{{item("b")}, {item("b"), item("new")}, {item("b"), item("c")}} {
		f.now++
		got := decide(items...)
		for n, d := range got.Items {
			must.Equal(t, fmt.Sprint(d.Result, d.Replayed), fmt.Sprint(driver.Granted, items[n].ID != "new"), "item", n, "of", len(items))
		}
	}
	must.Equal(t, decide(item("last")).Used[0], 5, "used")
	mark.ID = "unknown"
	for _, items := range [][]driver.Item{{item("x")}, {item("y"), item("z")}} {
		_, err := f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: []limit.Limit{rolling("w", 100, time.Hour)}, Items: items, Mark: mark, Host: "0a"})
		check.Is(t, err, driver.ErrLost, len(items))
	}
}
