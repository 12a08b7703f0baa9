package simulate

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
)

// guarantee is what became of the important job's guarantee on a day of the ledger.
type guarantee struct {
	took     int64 // units of the job, with and without a page
	recorded int64 // that hosts spent while the store was out of reach
	lowest   int64 // the least headroom with which the store decided
}

// guaranteeOf is the guarantee of a day. n.mu is held.
func (n *network) guaranteeOf(day int) *guarantee {
	if n.guarantees[day] == nil {
		n.guarantees[day] = &guarantee{lowest: quota}
	}
	return n.guarantees[day]
}

// take notes units of the important job. They count on each day that their reservation touches.
func (n *network) take(from, until time.Time, units int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for day := n.month.day(from); day <= n.month.day(until); day++ {
		n.guaranteeOf(day).took += units
	}
}

// decided notes what the store decided, and with which headroom.
func (n *network) decided(b driver.Batch, done driver.Decisions) {
	n.mu.Lock()
	defer n.mu.Unlock()
	today := n.guaranteeOf(n.month.day(n.clock.now()))
	for _, l := range b.Limits {
		if l.Name == "pacific-day" {
			today.lowest = min(today.lowest, l.Headroom)
		}
	}
	for i, got := range done.Items {
		if b.Items[i].Recorded && got.Result == driver.Granted && !got.Replayed {
			n.guaranteeOf(n.month.day(time.UnixMicro(got.At))).recorded += got.Units
		}
	}
}

// broken is how much of a day's guarantee may be gone because nobody decided on it: what the
// stranger spent, by how much the headroom was raised, and what hosts spent while the store was
// out of reach.
func (d *day) broken() int64 {
	return d.stranger + max(0, d.headroom-d.lowest) + d.recorded
}

// short reports whether the important job lacks pages of a day that it was guaranteed. A pass
// holds the units of all its pages, or does not begin. From then on it is refused a page only if
// its failed requests took what is left of the guarantee.
func (m *month) short(d *day) bool {
	next := priceOf(searches)
	if len(d.important) == 0 {
		next *= int64(m.wanted)
	}
	return !m.complete(d) && d.took+next <= m.guaranteed-d.broken()
}

// checkImportant holds a day to what is promised of the important job.
func (m *month) checkImportant(t *testing.T, d *day, name string) {
	t.Helper()
	if m.short(d) {
		t.Errorf("%s: files have %d pages of %s, want %d: it took %d of %d guaranteed units, and others at most %d of them", name, len(d.important), m.important, m.wanted, d.took, m.guaranteed, d.broken())
	}
}

// A day lacks pages that were guaranteed only if the guarantee had units for the next ones.
func TestShort(t *testing.T) {
	m := month{wanted: 24, guaranteed: 2600}
	for _, c := range []struct {
		pages                            int
		took, stranger, raised, recorded int64
		want                             bool
	}{
		{24, 2400, 0, 0, 0, false},
		{23, 2500, 0, 0, 0, true},
		{23, 2500, 1, 0, 0, false}, // the last of 2,600 was not there
		{23, 2500, 0, 1, 0, false},
		{23, 2500, 0, 0, 1, false},
		{23, 2400, 60, 40, 0, true},
		{23, 2400, 60, 40, 1, false},
		{21, 2100, 100, 100, 0, true}, // a run failed for another reason
		{0, 0, 100, 100, 0, true},
		{0, 100, 60, 40, 0, true}, // of the pass of the day before
		{0, 100, 60, 40, 1, false},
	} {
		d := &day{guarantee: guarantee{c.took, c.recorded, 80}, stranger: c.stranger, headroom: 80 + c.raised, important: map[string]bool{}}
		for i := range c.pages {
			d.important[fmt.Sprint(i)] = true
		}
		check.Equal(t, m.short(d), c.want, "short of pages", c)
	}
}
