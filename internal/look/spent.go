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
}

// HourSpent is what an operation was charged in an hour.
type HourSpent struct {
	Begin        time.Time
	Operation    string
	Units, Calls int64
}

// Spender is who spent how much.
type Spender struct {
	Name         string
	Units, Calls int64
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
	query.Hours, query.Jobs, query.Since = false, true, driver.HourOf(max(0, now-who.Microseconds()))
	spent, err := r.Store.History(ctx, query)
	if err != nil {
		return Spending{}, fmt.Errorf("history of %s: %w", name, err)
	}
	s.WhoSince = time.UnixMicro(spent.Since).UTC()
	jobs, operations := map[string]Spender{}, map[string]Spender{}
	for _, row := range spent.Rows {
		if row.Pseudo() {
			continue
		}
		add(jobs, row.Job, row)
		add(operations, row.Operation, row)
	}
	s.Jobs, s.Operations = greatest(jobs), greatest(operations)
	return s, nil
}

func add(to map[string]Spender, name string, row driver.HistoryRow) {
	was := to[name]
	to[name] = Spender{name, was.Units + row.Units, was.Calls + row.Calls}
}

func greatest(of map[string]Spender) (list []Spender) {
	for _, s := range of {
		if s.Units != 0 || s.Calls != 0 {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b Spender) int {
		return cmp.Or(cmp.Compare(b.Units, a.Units), cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Name, b.Name))
	})
	return list
}
