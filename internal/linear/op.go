// Package linear checks that a store is linearizable: the answers to concurrent clients,
// including faults and lost replies, must be answers that one client could have had by
// sending one request after the other.
//
// [Run] has clients send random requests and records the history. [Check] searches for an
// order that explains it. Windows and leases are much longer than a history, so that time
// matters only in one way: the instants of charges grow.
package linear

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Kind is what an Op does.
type Kind string

// The kinds of Op.
const (
	Charge  Kind = "charge" // with a lease, if the Op has one
	Settle  Kind = "settle"
	Release Kind = "release"
	Status  Kind = "status"
	Take    Kind = "take" // takes a hold of Units and Calls, which has the Op's ID
	End     Kind = "end"  // ends the hold of the ID
)

// Op is one request to a budget.
type Op struct {
	Kind   Kind
	Budget string
	ID     string
	Units  int64
	Lease  bool
	Calls  int64
	Hold   string // the ID of the hold that a charge draws from; empty: none
}

// Answer is a store's answer. The zero Answer means that the outcome is unknown, or that
// nothing was done: the same Op has to be sent again.
type Answer struct {
	Known    bool
	Result   driver.Result       // of a charge or a take
	Finish   driver.FinishResult // of a settlement or a release
	Replayed bool
	Units    int64
	At       int64
	// Limit and Remaining are those of a decision.
	Limit     int
	Remaining int64
	// Used is what a status shows, limit by limit.
	Used [3]int64
	// Held is what a status shows of all holds, or what one had left when it ended.
	Held Held
}

// Held is how many holds there are, and what they have left.
type Held struct{ Holds, Units, Calls int64 }

func heldBy(holds []driver.Hold) (h Held) {
	for _, one := range holds {
		h.Holds++
		for _, n := range one.Left {
			h.Units, h.Calls = h.Units+n.Units, h.Calls+n.Calls
		}
	}
	return h
}

// Limits are the limits that all clients of a history use: units and calls over a day,
// and open reservations.
func Limits(units, open int64) []limit.Limit {
	return []limit.Limit{
		{Name: "units", Limit: units, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
		{Name: "calls", Limit: limit.MaxUnits, Counts: limit.CountCalls, Window: limit.RollingWindow(24 * time.Hour)},
		{Name: "open", Limit: open, Counts: limit.CountCalls, Window: limit.ConcurrentWindow()},
	}
}

// leaseLength is much longer than a history.
const leaseLength = 12 * time.Hour

// Ask sends an Op to a store once, with a deadline after which nothing may be charged. It
// returns only errors that a repetition does not solve.
func Ask(store driver.Store, limits []limit.Limit, op Op, timeout time.Duration) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	now := time.Now()
	var a Answer
	var err error
	switch op.Kind {
	case Charge, Take:
		a, err = decide(ctx, store, limits, op, now)
	case End:
		var ended driver.HoldLeft
		ended, err = driver.Apply(ctx, store, driver.HoldChange{Budget: op.Budget, Now: now.UnixMicro(), Fence: fence(op.ID)})
		a.Held = heldBy(ended.Holds)
	case Status:
		var view driver.View
		view, err = store.Look(ctx, driver.Look{Budget: op.Budget, Now: now.UnixMicro(), Limits: limits})
		for i, l := range view.Limits {
			a.Used[i] = l.Used
		}
		a.Held = heldBy(view.Holds)
	default:
		var done driver.Finished
		done, err = finish(ctx, store, limits, op, now)
		if done.Result == driver.FinishLate {
			return Answer{}, nil
		}
		a = Answer{Finish: done.Result, Replayed: done.Replayed, At: done.At}
	}
	switch {
	case errors.Is(err, driver.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return Answer{}, nil
	case err != nil:
		return Answer{}, fmt.Errorf("%s %s of %s: %w", op.Kind, op.ID, op.Budget, err)
	}
	a.Known = a.Result != driver.Late && a.Result != driver.Interrupted && a.Result != driver.OutcomeUnknown
	return a, nil
}

// finish settles or releases: every other reservation with a decision of nothing else.
func finish(ctx context.Context, store driver.Store, limits []limit.Limit, op Op, now time.Time) (driver.Finished, error) {
	f := driver.Finish{ID: op.ID, Release: op.Kind == Release, Units: op.Units}
	if op.ID[len(op.ID)-1]%2 == 0 {
		f.Deadline, _ = ctx.Deadline()
		return driver.FinishOne(ctx, store, op.Budget, now.UnixMicro(), f)
	}
	got, err := store.Decide(ctx, driver.Batch{Budget: op.Budget, Now: now.UnixMicro(), Limits: limits, Finishes: []driver.Finish{f}})
	if err != nil || len(got.Finished) == 0 {
		return driver.Finished{Result: driver.FinishLate}, err
	}
	return got.Finished[0], nil
}

// fence is that of the pass which has a hold of its own.
func fence(hold string) string { return driver.FenceName(hold, 1) }

func decide(ctx context.Context, store driver.Store, limits []limit.Limit, op Op, now time.Time) (Answer, error) {
	deadline, _ := ctx.Deadline()
	item := driver.Item{ID: op.ID, Operation: "op", Units: op.Units, Deadline: deadline}
	if op.Lease || op.Kind == Take {
		item.Lease = leaseLength.Microseconds()
	}
	switch {
	case op.Kind == Take:
		item.Fence, item.Needs = fence(op.ID), []driver.Need{{Operation: item.Operation, Units: op.Units, Calls: op.Calls}}
	case op.Hold != "":
		item.Fence = fence(op.Hold)
	}
	got, err := store.Decide(ctx, driver.Batch{Budget: op.Budget, Now: now.UnixMicro(), Limits: limits, Items: []driver.Item{item}})
	if err != nil {
		return Answer{}, err
	}
	d := got.Items[0]
	return Answer{Result: d.Result, Replayed: d.Replayed, Units: d.Units, At: d.At, Limit: d.Limit, Remaining: d.Remaining}, nil
}
