package sqlitestore

import (
	"fmt"
	"math"
	"strconv"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// window is a live window with its totals.
type window struct {
	no      int64
	key     string
	kind    limit.Kind
	length  int64
	precise int64 // the precision of a coarse window; else 0
	longest int64
	usedAt  int64
	cut     int64 // a calendar's, as of its last use
	floor   int64 // it does not count entries that finished up to here
	dirty   bool

	lanes map[int64]*total
	units int64 // of all lanes
	calls int64
	next  int64 // no counted entry has a lower score
	grows bool  // some lane is not built to its end

	shape      limit.Window // for a calendar, set only while the call has a limit of it
	start, end int64        // the calendar's last period used
	spanCut    int64        // and that period's cut
}

// total counts the entries of one lane with scores above cut and up to built, never
// released ones.
type total struct {
	units, calls         int64
	cut, built           int64
	next                 int64
	backUnits, backCalls int64 // returned since the total began
	dirty                bool
	hot                  bool // it is in the budget's row: see hot.go
}

// toTheEnd is built for a total that counts everything above its cut.
const toTheEnd int64 = math.MaxInt64

// none is the next score of a total that counts nothing.
const none int64 = math.MaxInt64

func (t *total) counts(score int64) bool { return score > t.cut && score <= t.built }

// lower is the instant up to which finished entries do not count at now.
func (w *window) lower(now int64) int64 {
	if w.kind == limit.CalendarKind {
		return w.cut
	}
	return w.shape.Cut(now)
}

// cutAt is the last score that does not count at an instant. The window's shape must be
// set.
func (w *window) cutAt(at int64) int64 {
	if w.kind != limit.CalendarKind {
		return w.shape.Cut(at)
	}
	if at < w.start || at >= w.end {
		w.start, w.end = w.shape.Span(at)
		w.spanCut = w.shape.Cut(at)
	}
	return w.spanCut
}

// total returns the total of a lane, or begins it: without a total, the lane has no counted
// entries.
func (w *window) total(lane int64) *total {
	t := w.lanes[lane]
	if t == nil {
		t = &total{cut: w.floor, built: toTheEnd, next: none}
		w.lanes[lane] = t
	}
	return t
}

// add changes a total and the window's sum.
func (w *window) add(t *total, units, calls int64) {
	t.units += units
	t.calls += calls
	t.dirty = true
	w.units += units
	w.calls += calls
}

// back takes entries that no longer count out of a total.
func (w *window) back(t *total, units, calls int64) {
	w.add(t, -units, -calls)
	t.backUnits += units
	t.backCalls += calls
}

// counts reports whether the window counts entries in a state: a concurrent one counts only
// open reservations.
func (w *window) counts(state int64) bool {
	return w.kind != limit.Concurrent || state == stateOpen
}

// counted is a query's condition for the entries that the window counts. The state matters:
// if clocks differ, an ended reservation may have a score above now.
func (w *window) counted() string {
	if w.kind != limit.Concurrent {
		return ""
	}
	return " AND state & 7 = " + strconv.Itoa(stateOpen)
}

// count adds an entry to every total in which its score counts, or, with negative units and
// calls, takes it out.
func (l *ledger) count(lane, state, score, units, calls int64) {
	if lane%classes == classReleased {
		return
	}
	for _, w := range l.windows {
		if !w.counts(state) {
			continue
		}
		t := w.total(lane)
		if !t.counts(score) {
			continue
		}
		w.add(t, units, calls)
		if calls > 0 {
			t.next = min(t.next, score)
			w.next = min(w.next, score)
		}
	}
}

// takeBack takes a forgotten entry out of the totals that still count it: totals are brought
// up to date only when they are used.
func (l *ledger) takeBack(e *entry) {
	for _, w := range l.windows {
		if t := w.lanes[e.lane]; t != nil && w.counts(e.state) && t.counts(e.score) {
			w.back(t, e.units, e.calls)
		}
	}
}

// use makes the limits' windows live, and drops those unused for long.
func (l *ledger) use(limits []limit.Limit, now int64) error {
	for key, w := range l.windows {
		if now > w.usedAt+w.longest+driver.WindowIdle {
			if err := l.drop(w); err != nil {
				return err
			}
			delete(l.windows, key)
		}
	}
	for _, shape := range limit.Windows(limits) {
		w := l.windows[shape.Key()]
		if w == nil {
			var err error
			if w, err = l.begin(shape, now); err != nil {
				return err
			}
			w.dirty = true
		}
		w.shape = shape
		if now-w.usedAt >= driver.WindowUseNoted {
			w.usedAt, w.dirty = now, true
		}
	}
	return nil
}

// forget forgets what is no longer held at now, in the limits' windows too.
func (l *ledger) forget(limits []limit.Limit, now int64) {
	for _, shape := range limit.Windows(limits) {
		if w := l.windows[shape.Key()]; shape.Kind == limit.CalendarKind && w.cut != w.cutAt(now) {
			w.cut, w.dirty = w.cutAt(now), true
		}
	}
	l.gone = max(l.gone, l.horizon(now))
}

// begin makes a window live. Its totals must yet be built from the entries above its cut
// that are not forgotten.
func (l *ledger) begin(shape limit.Window, now int64) (*window, error) {
	w := &window{
		no: 1, key: shape.Key(), kind: shape.Kind, length: shape.Length, precise: shape.Precision, longest: shape.Longest(),
		usedAt: now, floor: l.gone, lanes: map[int64]*total{}, next: none, shape: shape,
	}
	if w.kind == limit.CalendarKind {
		w.cut = w.cutAt(now)
	}
	for _, other := range l.windows {
		w.no = max(w.no, other.no+1)
	}
	lanes, err := l.lanes()
	if err != nil {
		return nil, err
	}
	lower := max(w.cutAt(now), l.gone)
	for _, lane := range lanes {
		if lane%classes != classReleased {
			w.lanes[lane] = &total{cut: lower, built: lower, next: none, dirty: true}
			w.grows = true
		}
	}
	l.windows[w.key] = w
	return w, nil
}

// drop deletes a window.
func (l *ledger) drop(w *window) error {
	if err := l.c.exec("DELETE FROM total WHERE b = ? AND win = ?", l.b, w.no); err != nil {
		return err
	}
	return l.c.exec("DELETE FROM win WHERE b = ? AND no = ?", l.b, w.no)
}

// readWindows reads the live windows and their totals. Those from the budget's row take the
// place of the table's.
func (l *ledger) readWindows(hot []hotTotal) error {
	numbers := map[int64]*window{}
	var w window
	var kind string
	err := l.c.each("SELECT no, key, kind, length, longest, used_at, cut, floor, precision FROM win WHERE b = ?", []any{l.b}, func() {
		read := w
		read.kind = limit.Kind(kind)
		read.lanes, read.next = map[int64]*total{}, none
		read.shape = limit.Window{Kind: read.kind, Length: read.length, Precision: read.precise}
		l.windows[read.key], numbers[read.no] = &read, &read
	}, &w.no, &w.key, &kind, &w.length, &w.longest, &w.usedAt, &w.cut, &w.floor, &w.precise)
	if err != nil {
		return err
	}
	var one hotTotal
	bad := false
	put := func() {
		w, read := numbers[one.win], one.total
		if w == nil || read.calls < 0 {
			bad = true
			return
		}
		w.lanes[one.lane] = &read
	}
	t := &one.total
	err = l.c.each("SELECT win, lane, units, calls, cut, built, next, back_units, back_calls FROM total WHERE b = ?", []any{l.b}, put,
		&one.win, &one.lane, &t.units, &t.calls, &t.cut, &t.built, &t.next, &t.backUnits, &t.backCalls)
	if err != nil {
		return err
	}
	for _, one = range hot {
		put()
	}
	if bad {
		return fmt.Errorf("budget %s: %w: its totals are not those of its windows; %s", l.name, driver.ErrDamaged, adviceDamaged)
	}
	for _, w := range l.windows {
		for _, t := range w.lanes {
			w.units += t.units
			w.calls += t.calls
			w.next = min(w.next, t.next)
			w.grows = w.grows || t.built != toTheEnd
		}
	}
	return nil
}

// writeWindows writes the windows that changed.
func (l *ledger) writeWindows() error {
	for _, w := range l.windows {
		if !w.dirty {
			continue
		}
		err := l.c.exec("INSERT OR REPLACE INTO win(b, no, key, kind, length, longest, used_at, cut, floor, precision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			l.b, w.no, w.key, string(w.kind), w.length, w.longest, w.usedAt, w.cut, w.floor, w.precise)
		if err != nil {
			return err
		}
		w.dirty = false
	}
	return nil
}
