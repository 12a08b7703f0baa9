package redisstore_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// ledgerKey is how the keys of the tests' ledger begin.
const ledgerKey = "quotactl:v1:{" + name + "}:"

// one is an item of one unit.
func one(id string) driver.Item { return driver.Item{ID: id, Operation: "op", Units: 1} }

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
				items = append(items, driver.Item{ID: fmt.Sprint(size, "/", lease, "/", n), Operation: []string{"op", "op", "more"}[n%6/2], Units: 1 + int64(n/6%2), Lease: lease})
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

// A call that usual.lua fails at the day's history has charged nothing, and its id can be sent again.
func TestUsualFailsAtTheHistory(t *testing.T) {
	t.Parallel()
	f, runs, decide := usualFake(t, hourly...)
	for _, id := range []string{"a", "b", "c"} {
		f.now++
		decide(one(id))
	}
	admin, day := f.Client(), fmt.Sprint(ledgerKey, "l:", f.now/(24*time.Hour.Microseconds()))
	used := int64(3)
	for _, items := range [][]driver.Item{{one("d")}, {one("e"), one("f")}} {
		must.Do(t, admin.Rename(t.Context(), day, ledgerKey+"aside").Err())
		must.Do(t, admin.LPush(t.Context(), day, "a list").Err())
		f.now++
		got, err := f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: hourly, Items: items, Host: "0a"})
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
	f, _, decide := usualFake(t, hourly...)
	var mark driver.Mark
	for _, id := range []string{"a", "b", "c"} {
		f.now++
		mark = decide(one(id)).Mark
	}
	for _, items := range [][]driver.Item{{one("b")}, {one("b"), one("new")}, {one("b"), one("c")}} {
		f.now++
		got := decide(items...)
		for n, d := range got.Items {
			must.Equal(t, fmt.Sprint(d.Result, d.Replayed), fmt.Sprint(driver.Granted, items[n].ID != "new"), "item", n, "of", len(items))
		}
	}
	must.Equal(t, decide(one("last")).Used[0], 5, "used")
	mark.ID = "unknown"
	for _, items := range [][]driver.Item{{one("x")}, {one("y"), one("z")}} {
		_, err := f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: hourly, Items: items, Mark: mark, Host: "0a"})
		check.Is(t, err, driver.ErrLost, len(items))
	}
}

// A permission that is taken away leaves nothing of a single charge that fails for it.
func TestUsualWithoutAPermission(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	allow := func(rule string) {
		t.Helper()
		must.Do(t, admin.Do(t.Context(), "ACL", "SETUSER", "some", "on", ">x", "~*", "+@all", rule).Err())
	}
	allow("+@all")
	f := openFake(t, "redis://some:x@"+server.Addr)
	n := int64(0)
	try := func() error {
		f.now++
		got, err := f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: hourly, Items: []driver.Item{one(fmt.Sprint(n))}, Host: "0a"})
		if err == nil {
			n++
			must.Equal(t, got.Used[0], n, "used")
		}
		return err
	}
	for range 3 {
		must.Do(t, try())
	}
	runs := countRuns(f.Store)
	allow("-hsetnx") // which only usual.lua needs
	must.Do(t, try())
	must.Equal(t, runs.decided.Load(), 0, "runs of usual.lua that decided")
	for i, command := range []string{"append", "zadd", "pexpireat"} {
		allow("+@all")
		if command == "pexpireat" { // only the first charge of a day needs it
			must.Do(t, admin.Del(t.Context(), fmt.Sprint(ledgerKey, "l:", f.now/(24*time.Hour.Microseconds()))).Err())
		}
		allow("-" + command)
		check.Is(t, try(), driver.ErrStoreConfig, "without", command)
		allow("+@all")
		must.Equal(t, must.Get(admin.HLen(t.Context(), ledgerKey+"e").Result())(t), n, "entries without", command)
		must.Do(t, try())
		must.Equal(t, runs.decided.Load(), int64(i+1), "runs of usual.lua that decided")
	}
}

// What nothing writes in a day's log is left out, and costs nothing else of it.
func TestStrangePartsOfALog(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	f.charge("a", 3)
	log := strings.Replace(dayKey(f.now), ":h:", ":l:", 1)
	for _, line := range []string{"12=drift/per minute|| 7 0;", "12=", "12=x", "12=x;", ";", "", "x 1 1;"} {
		must.Do(t, admin.Append(t.Context(), log, line+"\n").Err())
	}
	f.charge("b", 3)
	must.Equal(t, f.units(), 6, "units in the history")
}
