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

// hostMemories are the memories of a host's processes, which share a directory and a clock.
type hostMemories struct {
	t   *testing.T
	dir string
	now int64
}

func (h *hostMemories) open() *memory {
	m := &memory{
		dir: h.dir, wall: func() int64 { return h.now }, boot: func() (string, int64, error) { return "boot", h.now, nil },
		budgets: map[string]*remembered{}, warn: func(_ string, err error) { h.t.Error(err) },
	}
	h.t.Cleanup(m.sweeps.Wait) // before its directory goes
	return m
}

// told has a process charge two seconds later, and the ledger answer how much is used.
func (h *hostMemories) told(m *memory, id string, changes, used int64) driver.Mark {
	h.t.Helper()
	h.now += 2_000_000
	mark := driver.Mark{Ledger: "l", Changes: changes, ID: id, At: h.now, Seen: h.now}
	carried, others := m.mark(up)
	batch := driver.Batch{Budget: up, Mark: carried, Others: others, Limits: []limit.Limit{dayOf("day")}, Items: []driver.Item{{ID: id, Operation: "list", Units: used}}}
	must.Do(h.t, m.saw(batch, driver.Decisions{Now: h.now, Items: []driver.Decision{{Result: driver.Granted, Units: used, At: h.now}}, Used: []int64{used}, Mark: mark}))
	return mark
}

// looks has a process look: the newest mark is the given one.
func (h *hostMemories) looks(m *memory, newest driver.Mark, used int64) {
	h.t.Helper()
	mark, others := m.mark(up)
	view := driver.View{Now: h.now, Limits: []driver.LimitView{{Used: used}}, Mark: newest}
	must.Do(h.t, m.looked(driver.Look{Budget: up, Limits: []limit.Limit{dayOf("day")}, Mark: mark, Others: others}, view))
}

// What a process found the ledger to hold is no longer in doubt for those that come after,
// though the process that left it in doubt has written it down.
func TestDoubtsThatOneProcessEnds(t *testing.T) {
	h := &hostMemories{t: t, dir: t.TempDir()}
	one, other := h.open(), h.open()
	other.mark(up) // it does not read what the first one writes
	h.told(one, "mine", 1, 50)
	theirs := h.told(other, "theirs", 9, 7)
	one.freshen(up)
	one.close()
	check.Equal(t, h.open().of(up).inDoubt("l", "day"), 50, "what the first one left in doubt")
	third := h.open()
	h.looks(third, theirs, 7)
	third.close()
	check.Equal(t, h.open().of(up).inDoubt("l", "day"), 0, "once another has looked")
}

// What another process carried is no longer in doubt for the one that had it from the store.
func TestWhatOthersCarriedIsNotInDoubt(t *testing.T) {
	h := &hostMemories{t: t, dir: t.TempDir()}
	one := h.open()
	h.told(one, "mine", 1, 50)
	other := h.open() // it reads what the first one wrote
	h.told(other, "next", 2, 60)
	h.told(other, "theirs", 3, 7)
	one.freshen(up)
	mark, others := one.mark(up)
	check.Equal(t, mark.ID, "theirs")
	check.Equal(t, len(others), 0, "in doubt")
	h.told(one, "mine again", 4, 70)
	h.told(other, "theirs again", 5, 80) // it has not read of that
	one.freshen(up)
	_, others = one.mark(up)
	check.Equal(t, len(others), 1, "in doubt after they did not know of each other")
}

// The use that a process heard of is carried until it finds the ledger to hold it, beside the
// mark of another process that has taken its place.
func TestDoubtsEnd(t *testing.T) {
	h := &hostMemories{t: t, dir: t.TempDir()}
	one, other := h.open(), h.open()
	other.mark(up) // it does not read what the first one writes
	mine := h.told(one, "mine", 1, 50)
	theirs := h.told(other, "theirs", 9, 7)
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
	view := driver.View{Now: h.now, Limits: []driver.LimitView{{Used: 7}}, Mark: driver.Mark{Ledger: "l", Changes: 9, ID: "theirs", At: theirs.At, Seen: h.now}}
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
