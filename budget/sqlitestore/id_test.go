package sqlitestore_test

import (
	"crypto/rand"
	"fmt"
	"hash/fnv"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Ids come back as they were given, those that look like package budget's too.
func TestIDsAreKept(t *testing.T) {
	t.Parallel()
	b := newBench(t, rolling(1000, hour))
	for _, id := range []string{
		rand.Text(), "AAAAAAAAAAAAAAAAAAAAAAAAAA", "77777777777777777777777777", "ABCDEFGHIJKLMNOPQRSTUVWXYA",
		"abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWX01", "ABCDEFGHIJKLMNOPQRSTUVWX==", "seventeen letters", "17 Bytes, no más", "a",
	} {
		b.granted(item(id, 1))
		if again := b.decide(item(id, 1))[0]; !again.Replayed {
			t.Errorf("%q again: %+v, want it replayed", id, again)
		}
		if other := b.decide(item(id, 2))[0]; other.Result != driver.Conflict {
			t.Errorf("%q with other units: %+v, want a conflict", id, other)
		}
	}
}

// An id comes back as it was given where the ledger reads it: an export names it, and a
// reservation's end leaves it in its place.
func TestIDsAreReadAsGiven(t *testing.T) {
	t.Parallel()
	b := newBench(t, rolling(1000, hour))
	for _, id := range []string{rand.Text(), "ABCDEFGHIJKLMNOPAA======AA", "ABCDEFGHIJKLMNOPAAAA====AA", "ABCDEFGHIJKLMNOPAAAAAAA=AA"} {
		reserved := item(id, 2)
		reserved.Lease = minute
		b.granted(reserved)
		must.Get(driver.FinishOne(t.Context(), b.store, name, b.now, driver.Finish{ID: id, Units: 1}))(t)
		if again := b.decide(reserved)[0]; !again.Replayed || again.Ended != driver.EndedSettled {
			t.Errorf("%q again: %+v, want it replayed", id, again)
		}
		rows := ids{}
		must.Do(t, b.store.Export(t.Context(), driver.Export{Budget: name, Now: b.now}, rows))
		if !rows[id] {
			t.Errorf("%q is not in the export: %v", id, rows)
		}
	}
}

// ids are those of an export's rows.
type ids map[string]bool

func (ids) Head(driver.LedgerHead) error { return nil }

func (r ids) Row(row driver.Row) error {
	r[row.ID] = true
	return nil
}

// Two ids of one hash are two charges.
func TestIDsOfOneHash(t *testing.T) {
	t.Parallel()
	b := newBench(t, rolling(1000, hour))
	seen := map[uint32]string{}
	for i := 0; ; i++ {
		id := fmt.Sprint("id-", i)
		h := fnv.New32a()
		_, _ = h.Write([]byte(id))
		other, taken := seen[h.Sum32()]
		if !taken {
			seen[h.Sum32()] = id
			continue
		}
		b.granted(item(id, 1))
		b.granted(item(other, 2))
		for want, id := range map[int64]string{1: id, 2: other} {
			if again := b.decide(item(id, want))[0]; !again.Replayed {
				t.Errorf("%s again: %+v, want it replayed", id, again)
			}
		}
		check.Equal(t, b.used(), 3, "used")
		return
	}
}

// Totals that are too many for the budget's row are kept all the same, for this process and
// others.
func TestManyTotals(t *testing.T) {
	t.Parallel()
	b := newBench(t, rolling(1000, hour), rolling(1000, 2*hour, "op1"))
	b.limits[1].Name = "one"
	other := &bench{t: t, path: b.path, now: noon, limits: b.limits}
	other.open()
	defer other.close()
	n := int64(0)
	for round := range 3 {
		for op := range 40 {
			n++
			i := item(fmt.Sprint(round, "-", op), 1)
			i.Operation = fmt.Sprint("op", op)
			i.Labels.Region = fmt.Sprint("R", op)
			[]*bench{b, other}[op/10%2].granted(i)
			check.Equal(t, b.used(), n, "used")
		}
	}
	b.now += hour + minute
	check.Equal(t, b.used(), 0, "used later")
	b.granted(item("last", 1))
	check.Equal(t, b.used(), 1, "used at last")
}
