package storetest

import (
	"container/heap"
	"fmt"
	"reflect"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// soakLedger computes what a store's answers must add up to. It receives each answer and
// counts by itself, by the instants in the answers. It uses no store, no model, and not
// the arithmetic of the limits' windows.
type soakLedger struct {
	limits []*soakLimit
	last   int64 // the last instant seen
	newest int64 // the newest entry's time
	held   map[string]*soakEntry
	byEnd  soakHeap // the kept entries, by score
}

// soakLimit is a limit and what it has used.
type soakLimit struct {
	limit.Limit
	period   int64 // of a calendar, in µs
	bit      uint  // of soakEntry.counted
	used     int64
	byReturn soakHeap
}

type soakState int

const (
	soakPlain soakState = iota
	soakOpen
	soakSettled
	soakReleased
)

// soakEntry is one charge.
type soakEntry struct {
	item         driver.Item
	state        soakState
	start, score int64
	units        int64
	version      int  // of score and units; heap elements with another version are void
	counted      uint // the limits that count it now
}

// soakEnd is an element of a heap: an entry and its instant.
type soakEnd struct {
	at      int64
	entry   *soakEntry
	version int
}

type soakHeap []soakEnd

func (h soakHeap) Len() int { return len(h) }

func (h soakHeap) Less(i, j int) bool { return h[i].at < h[j].at }

func (h soakHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *soakHeap) Push(x any) { *h = append(*h, x.(soakEnd)) }

func (h *soakHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// until removes, in order, the elements up to now and reports those that are not void.
func (h *soakHeap) until(now int64, ended func(*soakEntry)) {
	for len(*h) > 0 && (*h)[0].at <= now {
		if end := heap.Pop(h).(soakEnd); end.version == end.entry.version {
			ended(end.entry)
		}
	}
}

func newSoakLedger(limits []limit.Limit, periods []int64) *soakLedger {
	l := &soakLedger{held: map[string]*soakEntry{}}
	for i, limit := range limits {
		l.limits = append(l.limits, &soakLimit{Limit: limit, period: periods[i], bit: 1 << i})
	}
	return l
}

// returns is the first instant at which an entry that finished at score no longer counts.
func (l *soakLimit) returns(score int64) int64 {
	switch w := l.Window; {
	case l.period > 0:
		return (score/l.period + 1) * l.period
	case w.Kind == limit.Concurrent:
		return score
	case w.Precision > 0:
		return (score+w.Precision-1)/w.Precision*w.Precision + w.Length
	default:
		return score + w.Length
	}
}

// covers matches the few forms of patterns that soak's limits have.
func (l *soakLimit) covers(operation string) bool {
	pattern := l.Operations[0]
	return pattern == operation || pattern[0] == '!' && pattern[1:] != operation
}

func (l *soakLimit) checks(i driver.Item) bool {
	return l.covers(i.Operation) && (i.Lease > 0 || l.Window.Kind != limit.Concurrent)
}

func (l *soakLimit) amount(units int64) int64 {
	if l.Counts == limit.CountCalls {
		return 1
	}
	return units
}

// bound is the most that may be used after the item.
func (l *soakLimit) bound(i driver.Item) int64 {
	switch {
	case l.Counts == limit.CountCalls:
		return l.Limit.Limit
	case i.UseHeadroom && l.Quota > 0:
		return l.Quota - l.OutagePart - i.Floor
	}
	return l.Limit.Limit - i.Floor
}

func (l *soakLimit) left(used int64) int64 { return max(0, l.Limit.Limit-used) }

// count makes the limit count an entry while it should.
func (l *soakLimit) count(e *soakEntry, now int64) {
	at := l.returns(e.score)
	if e.state == soakReleased || !l.covers(e.item.Operation) || at <= now || l.Window.Kind == limit.Concurrent && e.state != soakOpen {
		return
	}
	l.used += l.amount(e.units)
	e.counted |= l.bit
	heap.Push(&l.byReturn, soakEnd{at, e, e.version})
}

// discount removes a counted entry from the limit.
func (l *soakLimit) discount(e *soakEntry) {
	if e.counted&l.bit != 0 {
		l.used -= l.amount(e.units)
		e.counted &^= l.bit
	}
}

// advance moves the ledger to an instant: max(clock, last seen).
func (l *soakLedger) advance(clock int64) {
	l.last = max(l.last, clock)
	for _, limit := range l.limits {
		limit.byReturn.until(l.last, limit.discount)
	}
	horizon := l.last - driver.MinHeld
	for _, limit := range l.limits {
		switch w := limit.Window; {
		case limit.period > 0:
			horizon = min(horizon, l.last/limit.period*limit.period-1)
		case w.Precision > 0:
			horizon = min(horizon, (l.last-w.Length)/w.Precision*w.Precision)
		default:
			horizon = min(horizon, l.last-w.Length)
		}
	}
	l.byEnd.until(horizon, func(e *soakEntry) {
		if l.held[e.item.ID] == e {
			delete(l.held, e.item.ID)
		}
	})
}

// keep stores an entry at its score.
func (l *soakLedger) keep(e *soakEntry) {
	l.held[e.item.ID] = e
	heap.Push(&l.byEnd, soakEnd{e.score, e, e.version})
	for _, limit := range l.limits {
		limit.count(e, l.last)
	}
}

// tightest is the limit that the answer to a granted item names, and what it has left.
func (l *soakLedger) tightest(i driver.Item) (index int, left int64) {
	index = -1
	for _, counts := range []limit.Counts{limit.CountUnits, limit.CountCalls} {
		for j, limit := range l.limits {
			if limit.Counts == counts && limit.checks(i) && (index < 0 || limit.left(limit.used) < left) {
				index, left = j, limit.left(limit.used)
			}
		}
		if index >= 0 {
			break
		}
	}
	return index, left
}

// decide is the decision on an item now, except for which limit refuses it and until
// when.
func (l *soakLedger) decide(i driver.Item) driver.Decision {
	if e := l.held[i.ID]; e != nil && !i.DryRun {
		if e.item.Operation != i.Operation || e.item.Units != i.Units || (e.item.Lease > 0) != (i.Lease > 0) {
			return driver.Decision{Result: driver.Conflict, Limit: -1}
		}
		d := driver.Decision{Result: driver.Granted, Replayed: true, Units: e.item.Units, At: e.start}
		d.Limit, d.Remaining = l.tightest(i)
		d.First = e.item.Labels
		d.Ended = map[soakState]driver.Ended{soakSettled: driver.EndedSettled, soakReleased: driver.EndedReleased}[e.state]
		if e.state == soakOpen && e.score <= l.last {
			d.Ended = driver.EndedLease
		}
		return d
	}
	d := driver.Decision{Result: driver.Granted, Units: i.Units}
	for j, limit := range l.limits {
		switch amount := limit.amount(i.Units); {
		case !limit.checks(i):
		case amount > limit.bound(i):
			return driver.Decision{Result: driver.NeverFits, Limit: j, Remaining: limit.left(limit.used)}
		case limit.used+amount > limit.bound(i):
			d = driver.Decision{Result: driver.Refused, Limit: -1}
		}
	}
	if d.Result == driver.Granted {
		d.Limit, d.Remaining = l.tightest(i)
	}
	return d
}

// explains returns nil if an answer that changed nothing is right now. It checks the
// instant of only some refusals, since that examines all entries.
func (l *soakLedger) explains(i driver.Item, got driver.Decision, instant bool) error {
	l.advance(l.last)
	want := l.decide(i)
	if want.Result == driver.Refused && got.Result == driver.Refused && got.Limit >= 0 && got.Limit < len(l.limits) {
		limit := l.limits[got.Limit]
		want.Limit, want.Remaining, want.RetryAt = got.Limit, limit.left(limit.used), got.RetryAt
		switch {
		case !limit.checks(i) || limit.used+limit.amount(i.Units) <= limit.bound(i):
			return fmt.Errorf("%+v is answered %+v, but fits limit %d, which has used %d", i, got, got.Limit, limit.used)
		case got.RetryAt <= l.last:
			return fmt.Errorf("%+v is answered %+v at %d, after it should fit", i, got, l.last)
		case instant && !l.fitsAt(i, got.RetryAt):
			return fmt.Errorf("%+v is answered %+v, but does not fit then", i, got)
		case instant && l.fitsAt(i, got.RetryAt-1):
			return fmt.Errorf("%+v is answered %+v, but fits earlier", i, got)
		}
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%+v is answered %+v, want %+v", i, got, want)
	}
	return nil
}

// fitsAt reports whether an item would fit at a later instant if nothing else
// happens.
func (l *soakLedger) fitsAt(i driver.Item, at int64) bool {
	for _, limit := range l.limits {
		if !limit.checks(i) {
			continue
		}
		used := limit.amount(i.Units)
		for _, e := range l.held {
			if e.counted&limit.bit != 0 && limit.returns(e.score) > at {
				used += limit.amount(e.units)
			}
		}
		if used > limit.bound(i) {
			return false
		}
	}
	return true
}

// charge adds a new charge: it must fit every limit that covers it.
func (l *soakLedger) charge(i driver.Item, got driver.Decision) error {
	l.advance(l.last)
	want := l.decide(i)
	if want.Result != driver.Granted || want.Replayed {
		return fmt.Errorf("%+v is answered %+v, want %+v", i, got, want)
	}
	want.At = max(l.last, l.newest+1)
	e := &soakEntry{item: i, start: want.At, score: want.At, units: i.Units}
	if i.Lease > 0 {
		e.state, e.score = soakOpen, want.At+i.Lease
	}
	l.keep(e)
	want.Limit, want.Remaining = l.tightest(i)
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%+v is answered %+v, want %+v", i, got, want)
	}
	l.last, l.newest = want.At, want.At
	return nil
}

// finish records how a reservation ended.
func (l *soakLedger) finish(f driver.Finish, got driver.Finished) error {
	l.advance(l.last)
	want := driver.Finished{Now: got.Now}
	e := l.held[f.ID]
	switch {
	case e == nil:
		want.Result = driver.FinishExpired
	case e.state == soakSettled && !f.Release && e.units == f.Units:
		want.Result, want.Replayed, want.At = driver.Settled, true, e.score
	case e.state == soakReleased && f.Release:
		want.Result, want.Replayed, want.At = driver.Released, true, e.score
	case e.state != soakOpen:
		want.Result = driver.FinishConflict
	case f.Release && l.last >= e.score:
		want.Result = driver.FinishExpired
	case f.Release:
		want.Result, want.At = driver.Released, l.last
		l.change(e, soakReleased, 0)
	default:
		want.Result, want.At = driver.Settled, min(l.last, e.score)
		l.change(e, soakSettled, f.Units)
	}
	if want.Result == driver.FinishExpired || want.Result == driver.FinishConflict {
		want.At = got.At
	}
	if got != want {
		return fmt.Errorf("%+v is answered %+v at %d, want %+v", f, got, l.last, want)
	}
	return nil
}

// change ends an open reservation now, or at its lease's end.
func (l *soakLedger) change(e *soakEntry, state soakState, units int64) {
	for _, limit := range l.limits {
		limit.discount(e)
	}
	e.version++
	e.state, e.units, e.score = state, units, min(l.last, e.score)
	l.keep(e)
}

// spent is who spent what in the last span, or in everything that is kept.
func (l *soakLedger) spent(by driver.GroupBy, span int64) map[string]driver.SpentRow {
	rows := map[string]driver.SpentRow{}
	for _, e := range l.held {
		if e.state == soakReleased || span > 0 && e.score <= l.last-span {
			continue
		}
		name := e.item.Operation
		if by == driver.ByJob {
			name = e.item.Labels.Job
		}
		row := rows[name]
		row.Name, row.Units, row.Calls = name, row.Units+e.units, row.Calls+1
		if e.state == soakOpen && e.score > l.last {
			row.Open++
		}
		rows[name] = row
	}
	return rows
}

// matches compares a store's report of what was spent.
func (l *soakLedger) matches(view driver.Spent, by driver.GroupBy, span int64) error {
	want := l.spent(by, span)
	for _, row := range view.Rows {
		if want[row.Name] != row {
			return fmt.Errorf("spent by %s over %d µs: %+v, want %+v", by, span, row, want[row.Name])
		}
	}
	if len(view.Rows) != len(want) {
		return fmt.Errorf("spent by %s over %d µs: %d rows, want %d", by, span, len(view.Rows), len(want))
	}
	return nil
}
