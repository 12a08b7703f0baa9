package outage

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// The use that a process heard of is carried until it finds the ledger to hold it, beside the
// mark of another process that has taken its place.
func TestDoubtsEnd(t *testing.T) {
	now, dir := int64(1), t.TempDir()
	open := func() *memory {
		return &memory{
			dir: dir, wall: func() int64 { return now }, boot: func() (string, int64, error) { return "boot", now, nil },
			budgets: map[string]*remembered{}, warn: func(_ string, err error) { t.Error(err) },
		}
	}
	told := func(m *memory, id string, changes, used int64) driver.Mark {
		t.Helper()
		now += 2_000_000
		mark := driver.Mark{Ledger: "l", Changes: changes, ID: id, At: now, Seen: now}
		carried, others := m.mark(up)
		batch := driver.Batch{Budget: up, Mark: carried, Others: others, Limits: []limit.Limit{dayOf("day")}, Items: []driver.Item{{ID: id, Operation: "list", Units: used}}}
		must.Do(t, m.saw(batch, driver.Decisions{Now: now, Items: []driver.Decision{{Result: driver.Granted, Units: used, At: now}}, Used: []int64{used}, Mark: mark}))
		return mark
	}
	one, other := open(), open()
	mine := told(one, "mine", 1, 50)
	now -= 2_000_000 // so that the other process does not read what the first one wrote before
	theirs := told(other, "theirs", 9, 7)
	now += 2_000_000
	one.freshen(up)
	mark, others := one.mark(up)
	if mark != theirs || len(others) != 1 || others[0] != mine {
		t.Fatalf("it carries %+v and %+v, want %+v and %+v", mark, others, theirs, mine)
	}
	check.Equal(t, one.of(up).inDoubt("l", "day"), 50, "the most that was used")
	if _, others := one.mark(up); len(others) > 0 {
		t.Errorf("another call carries %+v while one does", others)
	}
	one.unanswered(up, others)
	if last, others := one.mark(up); last != theirs || len(others) != 1 {
		t.Errorf("after no answer it carries %+v and %+v", last, others)
	}
	view := driver.View{Now: now, Limits: []driver.LimitView{{Used: 7}}, Mark: driver.Mark{Ledger: "l", Changes: 9, ID: "theirs", At: theirs.At, Seen: now}}
	must.Do(t, one.looked(driver.Look{Budget: up, Limits: []limit.Limit{dayOf("day")}, Mark: mark, Others: others}, view))
	if last, others := one.mark(up); last.ID != theirs.ID || len(others) > 0 {
		t.Errorf("then it carries %+v and %+v", last, others)
	}
}

// The newest charges to each ledger are kept apart, however many came after to the next:
// a loss takes away the newest.
func TestNewestOfEachLedger(t *testing.T) {
	var list []stretch
	for n := range int64(400) {
		list = append(list, stretch{ID: fmt.Sprint(n), From: n, At: n, Amounts: map[string]int64{"day": 1}, Ledger: fmt.Sprint("ledger", n/200)})
	}
	apart := map[string]int64{}
	for _, s := range thin(list, int64(24*time.Hour/time.Microsecond)) {
		if s.From == s.At {
			apart[s.Ledger]++
		}
	}
	for _, ledger := range []string{"ledger0", "ledger1"} {
		if apart[ledger] < keptApart {
			t.Errorf("of %s %d charges are apart, want %d", ledger, apart[ledger], keptApart)
		}
	}
}
