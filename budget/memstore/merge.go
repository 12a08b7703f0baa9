package memstore

import (
	"strconv"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// merge gives up the ids of entries that only coarse windows can still count,
// and moves them to the ends of their slots.
func (l *ledger) merge(now int64) {
	precisions, ok := l.precisions()
	if !ok {
		return
	}
	boundary := l.merged
	for _, p := range precisions {
		at := now - driver.MinHeld
		boundary = max(boundary, at-at%p)
	}
	kept := l.entries[:0]
	for _, e := range l.entries {
		if e.score <= l.merged || e.score > boundary || e.row || e.noID {
			kept = append(kept, e)
			continue
		}
		if e.state == released {
			continue
		}
		end := limit.SlotEnd(e.score, precisions[0])
		for _, p := range precisions {
			end = min(end, limit.SlotEnd(e.score, p))
		}
		l.rowNo++
		e.score, e.noID, e.item.Labels.Run = end, true, ""
		e.item.ID = " " + strconv.FormatInt(l.rowNo, 10)
		kept = append(kept, e)
	}
	clear(l.entries[len(kept):])
	l.entries, l.merged = kept, boundary
}

// precisions are those of the live coarse windows. ok is false if there is no such
// window, or if another live window is a calendar or longer than ids are held anyway.
func (l *ledger) precisions() (list []int64, ok bool) {
	for _, w := range l.windows {
		switch {
		case w.shape.Kind == limit.CalendarKind:
			return nil, false
		case w.shape.Precision > 0:
			list = append(list, w.shape.Precision)
		case w.shape.Length > driver.MinHeld:
			return nil, false
		}
	}
	return list, len(list) > 0
}
