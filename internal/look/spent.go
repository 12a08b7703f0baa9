package look

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Spending is what was charged to a budget, by the hour. Its cost grows with what it has, not
// with how much was charged.
type Spending struct {
	At time.Time // the store's clock
	// Since is the first hour that is known: the one asked for, or where the history begins.
	Since time.Time
	Hours []HourSpent // drift and recovered units included, under their pseudo-operations
	// WhoSince is the first hour of those below, each the greatest first. Charges without a job
	// have an empty name.
	WhoSince         time.Time
	Jobs, Operations []Spender
	Limits           []Spender // only those that refused calls or had them wait; an empty name is the whole budget
}

// HourSpent is what an operation was charged in an hour.
type HourSpent struct {
	Begin        time.Time
	Operation    string
	Units, Calls int64
}

// Spender is who spent how much, and was refused how often.
type Spender struct {
	Name         string
	Units, Calls int64
	// Refused are calls that were refused for good, Waited those that were granted after a wait.
	Refused, Waited int64
}

// Spending reads what was charged to a budget in the last span by hour and operation, and who was
// charged in the last span of the other length.
func (r *Reader) Spending(ctx context.Context, name string, span, who time.Duration) (Spending, error) {
	now := r.Now().UnixMicro()
	query := driver.HistoryQuery{Budget: name, Now: now, Since: driver.HourOf(max(0, now-span.Microseconds())), Hours: true, Operations: true}
	past, err := r.Store.History(ctx, query)
	if err != nil {
		return Spending{}, fmt.Errorf("history of %s: %w", name, err)
	}
	s := Spending{At: time.UnixMicro(past.Now).UTC(), Since: time.UnixMicro(past.Since).UTC()}
	for _, row := range past.Rows {
		s.Hours = append(s.Hours, HourSpent{time.UnixMicro(row.Hour).UTC(), row.Operation, row.Units, row.Calls})
	}
	query.Refusals, query.Limits = true, true
	query.Hours, query.Jobs, query.Since = false, true, driver.HourOf(max(0, now-who.Microseconds()))
	spent, err := r.Store.History(ctx, query)
	if err != nil {
		return Spending{}, fmt.Errorf("history of %s: %w", name, err)
	}
	s.WhoSince = time.UnixMicro(spent.Since).UTC()
	jobs, operations, limits := map[string]Spender{}, map[string]Spender{}, map[string]Spender{}
	for _, row := range spent.Rows {
		if row.Pseudo() {
			continue
		}
		add(jobs, row.Job, row)
		add(operations, row.Operation, row)
		row.Units, row.Calls = 0, 0
		add(limits, row.Limit, row)
	}
	s.Jobs, s.Operations, s.Limits = greatest(jobs), greatest(operations), greatest(limits)
	return s, nil
}

func add(to map[string]Spender, name string, row driver.HistoryRow) {
	was := to[name]
	to[name] = Spender{name, was.Units + row.Units, was.Calls + row.Calls, was.Refused + row.Refused, was.Waited + row.Waited}
}

func greatest(of map[string]Spender) (list []Spender) {
	for _, s := range of {
		if s != (Spender{Name: s.Name}) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b Spender) int {
		return cmp.Or(cmp.Compare(b.Units, a.Units), cmp.Compare(b.Calls, a.Calls), cmp.Compare(b.Refused, a.Refused), strings.Compare(a.Name, b.Name))
	})
	return list
}
