package redisstore

import (
	"math"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
)

// packed is numbers as usual.lua answers with them.
func packed(numbers ...float64) string {
	var to []byte
	for _, n := range numbers {
		bits := math.Float64bits(n)
		for i := range 8 {
			to = append(to, byte(bits>>(8*i)))
		}
	}
	return string(to)
}

// The answer of usual.lua is taken; one that has not its form is not, and grants nothing.
func TestUsualReplies(t *testing.T) {
	t.Parallel()
	limits := []limit.Limit{
		{Name: "units", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
		{Name: "calls", Limit: 50, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Hour), Operations: []string{"a"}},
	}
	take := func(reply any) (*batch, bool) {
		b := &batch{store: &Store{pace: &pace{}, clocks: map[string]*offset{}}, Batch: driver.Batch{Budget: "up/key1", Now: 1000, Limits: limits}}
		for _, id := range []string{"1", "2", "3"} {
			b.open = append(b.open, len(b.Items))
			b.Items = append(b.Items, driver.Item{ID: id, Operation: "a", Units: 7})
		}
		b.Items[2].Operation = "b"
		b.decided.Items = make([]driver.Decision, 3)
		u := usualBatch{plan: &plan{told: ledgerTold{mark: driver.Mark{Ledger: "L"}}, sums: make([]sumPlace, 2)}}
		u.runs = []usualRun{{first: 0, items: 2, changes: []int64{7, 1}}, {first: 2, items: 1, changes: []int64{7, 0}}}
		return b, b.takeUsual(u, reply)
	}
	b, ok := take(packed(1000, 1002, 1001, 9, 0, 44, 12, 51, 12))
	check.Equal(t, ok, true, "the whole answer")
	for i, want := range []driver.Decision{
		{Result: driver.Granted, Units: 7, At: 1001, Limit: 0, Remaining: 100 - 37},
		{Result: driver.Granted, Units: 7, At: 1002, Limit: 0, Remaining: 100 - 44},
		{Result: driver.Granted, Units: 7, At: 1003, Limit: 0, Remaining: 100 - 51},
	} {
		got := b.decided.Items[i]
		check.Equal(t, [5]int64{int64(got.Result), got.Units, got.At, int64(got.Limit), got.Remaining}, [5]int64{int64(want.Result), want.Units, want.At, int64(want.Limit), want.Remaining}, "item", i)
	}
	check.Equal(t, b.decided.Mark, driver.Mark{Ledger: "L", Changes: 9, ID: "3", At: 1003, Seen: 1002}, "the mark")
	check.Equal(t, len(b.open), 0, "open items")

	b, ok = take(packed(1000, 1002, 1001, 8, 0, 44, 12))
	check.Equal(t, ok, true, "the answer on the first run of items")
	check.Equal(t, len(b.open), 1, "open items")
	check.Equal(t, b.decided.Mark.ID, "2", "the newest charge")

	good := packed(1000, 1002, 1001, 9, 0, 44, 12, 51, 12)
	for what, reply := range map[string]any{
		"a list":           []any{good},
		"nothing":          nil,
		"empty":            "",
		"cut":              good[:len(good)-1],
		"a number too few": good[:len(good)-8],
		"no run":           packed(1000, 1002, 1001, 9, 0),
		"a run too many":   good + packed(1, 1),
		"no time":          packed(1000, 1002, 0, 9, 0, 44, 12),
		"no clock":         packed(0, 1002, 1001, 9, 0, 44, 12),
		"below 0":          packed(1000, 1002, 1001, 9, 0, -44, 12),
		"a fraction":       packed(1000, 1002, 1001, 9, 0, 44.5, 12),
		"not a number":     packed(1000, 1002, 1001, math.NaN(), 0, 44, 12),
		"too large":        packed(1000, 1002, 1001, 9, 1e17, 12),
		"infinite":         packed(1000, math.Inf(1), 1001, 9, 0, 44, 12),
	} {
		if b, ok := take(reply); ok || b.decided.Items[0].Result != 0 || len(b.open) != 3 {
			t.Errorf("%s is taken: %+v", what, b.decided)
		}
	}
}
