package redisstore_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/redis/go-redis/v9"
)

// ledgerOf reads the units of each id from a budget's keys on one server, past
// the store: the entries, and the lists by time, which must say the same.
func ledgerOf(t testing.TB, server *redis.Client, budget string) map[string]int64 {
	t.Helper()
	open := "quotactl:v1:{" + budget + "}:"
	entries, err := server.HGetAll(t.Context(), open+"e").Result()
	must.Do(t, err)
	held := map[string]int64{}
	for id, entry := range entries {
		fields := strings.Split(entry, "|")
		if held[id], err = strconv.ParseInt(fields[2], 10, 64); err != nil {
			t.Fatalf("entry %s is %q: %v", id, entry, err)
		}
	}
	listed := map[string]int64{}
	for op := 1; ; op++ {
		key := fmt.Sprint(open, "z:", op)
		members, err := server.ZRange(t.Context(), key, 0, -1).Result()
		must.Do(t, err)
		if len(members) == 0 {
			break
		}
		for _, member := range members {
			units, id, _ := strings.Cut(member, ":")
			if _, twice := listed[id]; twice {
				t.Errorf("id %s is charged twice", id)
			}
			if listed[id], err = strconv.ParseInt(units, 10, 64); err != nil {
				t.Fatalf("member %q: %v", member, err)
			}
		}
	}
	for id, units := range held {
		if listed[id] != units {
			t.Errorf("id %s: its entry has %d units, the list %d", id, units, listed[id])
		}
	}
	if len(listed) != len(held) {
		t.Errorf("%d entries, %d in the lists", len(held), len(listed))
	}
	return held
}

// starts are when each id was charged, by the entries of a ledger.
func starts(t testing.TB, entries map[string]string) map[string]int64 {
	t.Helper()
	if len(entries) == 0 {
		t.Fatal("no entries")
	}
	starts := map[string]int64{}
	var err error
	for id, entry := range entries {
		if starts[id], err = strconv.ParseInt(strings.Split(entry, "|")[5], 10, 64); err != nil {
			t.Fatalf("entry %s is %q: %v", id, entry, err)
		}
	}
	return starts
}
