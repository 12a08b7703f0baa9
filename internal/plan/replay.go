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
)

// Replay is what would not have fitted of what was charged to a budget.
type Replay struct {
	Budget string
	// From is the first hour that is judged: charges of before count, as long as a window
	// reaches back, but are not judged. Since is set if the history begins only then.
	From, Since  time.Time
	Calls, Units int64 // that were charged, at the prices asked about
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
// shares. The history is by the hour: the calls of an hour are taken to be spread evenly over
// it, those of several jobs one beside the other. What was refused then is not in it.
func NewReplay(ctx context.Context, from driver.Store, b *budget.Budget, now time.Time, span time.Duration) (*Replay, error) {
	one := newBudget(b.Name(), b.Spec())
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
	slices.SortFunc(rows, func(a, b driver.HistoryRow) int {
		return strings.Compare(a.Job+" "+a.Operation, b.Job+" "+b.Operation)
	})
	r.live(ctx, &one, rows, begin)
	return r, ctx.Err()
}

// live charges the rows in fake time.
func (r *Replay) live(ctx context.Context, b *Budget, rows []driver.HistoryRow, begin int64) {
	if len(rows) == 0 {
		return
	}
	first := slices.MinFunc(rows, func(a, b driver.HistoryRow) int { return cmp.Compare(a.Hour, b.Hour) }).Hour
	l, e := b.ledger(first, nil), &events{now: first}
	refusals := map[caller]*ReplayRefused{}
	var scratch []taken
	for place, row := range rows {
		price := b.Price(row.Operation)
		calls := max(row.Calls, 1)
		if row.Calls <= 0 {
			price = row.Units
		}
		groups := min(calls, replayParts)
		for part := range groups {
			n := calls*(part+1)/groups - calls*part/groups
			at := row.Hour + driver.HistoryHour*part/groups
			e.add(at, int64(place), func() {
				taken := r.charge(l, at, row, price, n, &scratch)
				if at < begin {
					return
				}
				r.Calls, r.Units = r.Calls+n, r.Units+n*price
				if taken.refused == 0 {
					return
				}
				one := refusals[caller{row.Operation, row.Job}]
				if one == nil {
					one = &ReplayRefused{Job: row.Job, Operation: row.Operation, First: instant(row.Hour), Limit: taken.limit}
					refusals[caller{row.Operation, row.Job}] = one
				}
				one.Calls, one.Units = one.Calls+taken.refused, one.Units+taken.refused*price
			})
		}
	}
	for at := first; e.run(at) && ctx.Err() == nil; {
		at += driver.HistoryHour
	}
	for _, one := range refusals {
		r.Refused = append(r.Refused, *one)
	}
	slices.SortFunc(r.Refused, func(a, b ReplayRefused) int {
		if a.Units != b.Units {
			return cmp.Compare(b.Units, a.Units)
		}
		return strings.Compare(a.Job+" "+a.Operation, b.Job+" "+b.Operation)
	})
}

// replayParts is into how many parts the calls of an hour are divided at most.
const replayParts = 60

// replayed is how many of some calls are refused, and by which limit.
type replayed struct {
	refused int64
	limit   string
}

// charge charges as many of some calls as fit.
func (r *Replay) charge(l *ledger, at int64, row driver.HistoryRow, price, calls int64, scratch *[]taken) (done replayed) {
	ask := func(n int64) *refused {
		q := ask{job: row.Job, needs: []driver.Need{{Operation: row.Operation, Units: n * price, Calls: n}}}
		no := l.decide(&q, at, scratch)
		if no == nil {
			l.take(&q, *scratch, at, at)
		}
		return no
	}
	no := ask(calls)
	if no == nil {
		return done
	}
	fits := int64(0)
	if calls > 1 {
		for step := calls / 2; step > 0; step /= 2 { // each part that fits is charged at once
			for fits+step <= calls && ask(step) == nil {
				fits += step
			}
		}
	}
	return replayed{calls - fits, cmp.Or(no.limit, Lock)}
}
