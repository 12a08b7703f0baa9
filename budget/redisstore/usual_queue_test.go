package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// spender charges operations one after the other, and checks each time what a window of a
// second counts.
type spender struct {
	*fakeStore
	t       *testing.T
	runs    *usualRuns
	decide  func(...driver.Item) driver.Decisions
	charges []struct{ at, units int64 }
}

const (
	spendWindow = int64(time.Second / time.Microsecond)
	spendStep   = int64(1000) // µs between two charges
)

func newSpender(t *testing.T) *spender {
	t.Helper()
	s := &spender{t: t}
	s.fakeStore, s.runs, s.decide = usualFake(t,
		limit.Limit{Name: "w", Limit: 1e6, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Second)},
		limit.Limit{Name: "long", Limit: 1e9, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
	)
	return s
}

// on charges one operation more units than the last, and steps on.
func (s *spender) on(operation int) {
	s.t.Helper()
	n := int64(len(s.charges))
	s.charges = append(s.charges, struct{ at, units int64 }{s.now, n + 1})
	got := s.decide(driver.Item{ID: fmt.Sprint("id", n), Operation: fmt.Sprint("op", operation), Units: n + 1})
	want := int64(0)
	for _, c := range s.charges {
		if c.at > s.now-spendWindow {
			want += c.units
		}
	}
	must.Equal(s.t, got.Used[0], want, "used after charge", n, "of operation", operation)
	s.now += spendStep
}

// The charges of many operations leave a window one after the other, whichever of
// the groups of its queue an operation is in, and whether it was new before or after the others.
func TestUsualQueue(t *testing.T) {
	t.Parallel()
	s := newSpender(t)
	for _, operations := range []int{8, 9, 20} { // one group, two, three
		for round := range 2 {
			for i := range operations {
				s.on((i*7 + round) % operations)
			}
		}
	}
	other := s.runs.other.Load()
	s.now += spendWindow - 2*20*spendStep // the first charges are about to leave
	for i := range 80 {
		s.on(i * 3 % 20)
	}
	s.now += spendWindow - 40*spendStep // forty leave at once
	s.on(4)
	for range 3 { // all leave, and the first of their operations follow
		s.now += spendWindow
		s.on(13)
		s.on(6)
		s.now += spendWindow - 3*spendStep/2 // one leaves
		s.on(19)
	}
	must.Equal(t, s.runs.other.Load()-other, 0, "runs of charge.lua")
	s.now += spendWindow
	s.on(20) // it is new, so that charge.lua sees all others leave
	s.on(6)
	s.now += spendWindow - spendStep/2
	s.on(19)
	must.Equal(t, s.runs.left.Load(), 0, "runs of usual.lua that left their charge to charge.lua")
}

// A ledger without queues, as builds of a while ago wrote it, gets them with the first charge
// that leaves, or that is the first of its operation.
func TestUsualQueueIsMissing(t *testing.T) {
	t.Parallel()
	for _, operations := range []int{5, 12} { // one group, two
		for added := range 2 {
			s := newSpender(t)
			for i := range 3 * operations {
				s.on(i % operations)
			}
			key := "quotactl:v1:{" + name + "}:m"
			for _, field := range must.Get(s.Client().HKeys(t.Context(), key).Result())(t) {
				if field[0] == 'q' {
					must.Do(t, s.Client().HDel(t.Context(), key, field).Err())
				}
			}
			if added > 0 {
				s.on(operations)
			}
			s.now += spendWindow - int64(len(s.charges))*spendStep
			for i := range 5 * operations {
				s.on(2 * i % operations)
			}
			must.Equal(t, s.runs.left.Load(), 1-int64(added), "runs of usual.lua that left their charge to charge.lua")
		}
	}
}

// An operation without a charged call has a place in the queue all the same.
func TestUsualQueueBesideAnOperationTried(t *testing.T) {
	t.Parallel()
	s := newSpender(t)
	for i := range 16 {
		s.on(i % 8)
	}
	refused := s.decide(driver.Item{ID: "much", Operation: "op8", Units: 2e6})
	must.Equal(t, refused.Items[0].Result, driver.NeverFits)
	s.now += spendWindow - 16*spendStep
	for i := range 16 {
		s.on(i % 8)
	}
	must.Equal(t, s.runs.left.Load(), 1, "runs of usual.lua that left their charge to charge.lua")
}

// A window whose place becomes another's, because nobody uses that any more, keeps its queue.
func TestUsualQueueAtAnotherPlace(t *testing.T) {
	t.Parallel()
	f, _ := startFake(t)
	const days = 8 * 24 * time.Hour
	brief, long := rolling("brief", 1000, time.Hour), rolling("long", 1000, days)
	var charged []int64
	charge := func(operation int, limits ...limit.Limit) {
		t.Helper()
		charged = append(charged, f.now)
		got := must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{
			{ID: fmt.Sprint(len(charged)), Operation: fmt.Sprint("op", operation), Units: 1},
		}, Host: "0a"}))(t)
		want := int64(0)
		for _, at := range charged {
			if at > f.now-days.Microseconds() {
				want++
			}
		}
		must.Equal(t, got.Used[len(limits)-1], want, "used after charge", len(charged))
		f.now += spendStep
	}
	const operations = 20
	for i := range operations {
		charge(i, brief, long)
	}
	f.now += 2 * time.Hour.Microseconds()
	charge(0, brief, long)                         // the others have left brief
	f.now += (7*24 + 2) * time.Hour.Microseconds() // brief is given up
	for i := range operations {
		charge(i, long)
	}
	runs := countRuns(f.Store)
	f.now = charged[0] + days.Microseconds()
	for i := range operations {
		charge(i, long)
	}
	must.Equal(t, runs.decided.Load(), operations-1, "runs of usual.lua that decided")
}
