package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Replay is what would not have fitted of what was charged to a budget.
type Replay struct {
	Budget string
	// From is the first hour that is judged: charges of before count, as long as a window
	// reaches back, but are not judged. Since is set if the history begins only then.
	From, Since  time.Time
	Calls, Units int64 // of the calls, at the prices asked about
	Charged      int64 // the units that they were charged
	// Refused are those that would not have fitted, by job and operation, the most units first.
	Refused []ReplayRefused
}

// ReplayRefused is what would not have fitted of a job's calls of an operation.
type ReplayRefused struct {
	Job, Operation string
	Calls, Units   int64
	First          time.Time // the hour of the first
	Limit          string    // that would have refused it
}

// NewReplay asks what of the charges of a span would not have fitted other limits, prices and
// shares. The history is by the hour. Calls are taken to have been made as early in their hour as
// they fit, those of the dearest operations first, then in the order of the jobs' names: so whatever
// fits a rolling limit over whole hours, or a calendar, at some instants of the hours in which it was
// charged, fits. A limit over less than an hour, what is guaranteed to several jobs, and a calendar
// that resets within an hour, where the cheapest calls do not fill what dearer ones leave, may refuse
// what fitted in another order. What was refused then is not in the history, and nothing is known of
// how long calls took, so that limits on open reservations refuse nothing.
//
// A call counts what it was charged, in proportion where its operation had another price before;
// before is the configuration by which it was charged.
func NewReplay(ctx context.Context, from driver.Store, before, b *budget.Budget, now time.Time, span time.Duration) (*Replay, error) {
	one, was := newBudget(b.Name(), b.Spec()), newBudget(before.Name(), before.Spec())
	reach := int64(0)
	for _, l := range one.Limits {
		reach = max(reach, l.Longest())
	}
	begin := driver.HourOf(max(0, now.Add(-span).UnixMicro()))
	history, err := from.History(ctx, driver.HistoryQuery{
		Budget: one.Name, Now: now.UnixMicro(), Since: max(0, begin-reach), Hours: true, Operations: true, Jobs: true,
	})
	if err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", one.Name, err)
	}
	r := &Replay{Budget: one.Name, From: instant(begin)}
	if history.Since > begin {
		r.Since = instant(history.Since)
	}
	rows := slices.DeleteFunc(history.Rows, func(row driver.HistoryRow) bool { return row.Pseudo() || row.Calls <= 0 && row.Units <= 0 })
	price := one.Price
	slices.SortFunc(rows, func(a, b driver.HistoryRow) int { // the cheap ones fill what the dear ones leave before a reset
		return cmp.Or(cmp.Compare(price(b.Operation), price(a.Operation)), strings.Compare(a.Job+" "+a.Operation, b.Job+" "+b.Operation))
	})
	r.live(ctx, &one, was.Price, rows, begin)
	return r, ctx.Err()
}

// replaying is a replay in the making.
type replaying struct {
	events
	*Replay
	ledger   *ledger
	begin    int64 // of what is judged, µs
	refusals map[caller]*ReplayRefused
	scratch  []taken
}

// live charges the rows in fake time.
func (r *Replay) live(ctx context.Context, b *Budget, was func(operation string) int64, rows []driver.HistoryRow, begin int64) {
	if len(rows) == 0 {
		return
	}
	first := slices.MinFunc(rows, func(a, b driver.HistoryRow) int { return cmp.Compare(a.Hour, b.Hour) }).Hour
	l := &replaying{Replay: r, ledger: b.ledger(first, nil), begin: begin, refusals: map[caller]*ReplayRefused{}}
	l.now = first
	for place, row := range rows {
		some := &replayed{row: row, place: int64(place), units: repriced(row, was(row.Operation), b.Price(row.Operation)), left: row.Calls}
		if row.Calls <= 0 { // units without a call: of what was settled above what was reserved
			some.units, some.left = row.Units, 1
		}
		some.calls = some.left
		some.step = l.step(row)
		if row.Hour >= begin {
			r.Calls, r.Units, r.Charged = r.Calls+some.calls, r.Units+some.units, r.Charged+row.Units
		}
		l.add(row.Hour, some.place, func() { l.charge(some) })
	}
	for at := first; l.run(at) && ctx.Err() == nil; {
		at += driver.HistoryHour
	}
	for _, one := range l.refusals {
		r.Refused = append(r.Refused, *one)
	}
	slices.SortFunc(r.Refused, func(a, b ReplayRefused) int {
		if a.Units != b.Units {
			return cmp.Compare(b.Units, a.Units)
		}
		return strings.Compare(a.Job+" "+a.Operation, b.Job+" "+b.Operation)
	})
}

// replayed are the calls of an hour, of one job and operation.
type replayed struct {
	row   driver.HistoryRow
	place int64 // among the rows
	calls int64 // all of them
	units int64 // that they take together
	left  int64 // calls that are not yet charged
	step  int64 // µs until they are tried again at the earliest
}

// take is what the next so many of the calls take: all take as much, to a unit.
func (r *replayed) take(calls int64) int64 {
	upTo := func(n int64) int64 { return r.units/r.calls*n + r.units%r.calls*n/r.calls }
	done := r.calls - r.left
	return upTo(done+calls) - upTo(done)
}

// repriced is what calls were charged, at another price of their operation.
func repriced(row driver.HistoryRow, was, price int64) int64 {
	if was == price {
		return row.Units
	}
	if was == 0 {
		return row.Calls * price
	}
	return row.Units/was*price + row.Units%was*price/was
}

// step is how soon calls that are refused are tried again: within the shortest of their limits'
// windows, so that each is used to the full, but no more often than each second.
func (l *replaying) step(row driver.HistoryRow) int64 {
	const least, most = int64(1e6), int64(60e6)
	shortest := most
	for _, one := range l.ledger.of(row.Operation, row.Job) {
		switch lim := &one.counter.limit; lim.Window.Kind {
		case limit.Bucket:
			shortest = min(shortest, lim.Longest())
		case limit.Rolling:
			shortest = min(shortest, lim.Window.Length)
		}
	}
	return max(shortest, least)
}

// charge charges as many of some calls as fit now, and tries the others again when more fit in
// the same hour.
func (l *replaying) charge(some *replayed) {
	no := l.ask(some, some.left)
	for part := some.left / 2; no != nil && part > 0; part /= 2 { // each part that fits is charged at once
		for part < some.left && l.ask(some, part) == nil {
		}
	}
	if no != nil && some.left > 0 {
		no = l.ask(some, 1) // says when one of them fits, not all
	}
	last := some.row.Hour + driver.HistoryHour - 1
	switch again := min(l.now+some.step, last); {
	case some.left == 0:
	case no == nil:
		l.charge(some)
	case !no.never && l.now < last && no.at <= last:
		l.add(max(again, no.at), some.place, func() { l.charge(some) })
	case some.row.Hour >= l.begin:
		l.refuse(some, cmp.Or(no.limit, Lock))
	}
}

// ask charges so many of some calls if they fit.
func (l *replaying) ask(some *replayed, calls int64) *refused {
	q := ask{job: some.row.Job, needs: []driver.Need{{Operation: some.row.Operation, Units: some.take(calls), Calls: calls}}}
	no := l.ledger.decide(&q, l.now, &l.scratch)
	if no == nil {
		l.ledger.take(&q, l.scratch, l.now, l.now)
		some.left -= calls
	}
	return no
}

// refuse notes that the calls that are left would not have fitted.
func (l *replaying) refuse(some *replayed, by string) {
	key := caller{some.row.Operation, some.row.Job}
	one := l.refusals[key]
	if one == nil {
		one = &ReplayRefused{Job: some.row.Job, Operation: some.row.Operation, First: instant(some.row.Hour), Limit: by}
		l.refusals[key] = one
	}
	if hour := instant(some.row.Hour); hour.Before(one.First) {
		one.First, one.Limit = hour, by
	}
	one.Calls, one.Units = one.Calls+some.left, one.Units+some.take(some.left)
}
