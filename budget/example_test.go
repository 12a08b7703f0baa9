package budget_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
)

// example is a budget of 250 units an hour whose clock stands at noon.
func example() *budget.Budget {
	noon := time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC)
	b, err := budget.New(memstore.New(noon.UnixMicro), budget.Spec{
		Name:   "youtube/key1",
		Limits: []limit.Limit{{Name: "hourly", Limit: 250, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}},
		Costs:  map[string]budget.Cost{"search.list": {Units: 100}, "videos.list": {Units: 1}},
	}, budget.WithNow(func() time.Time { return noon }))
	if err != nil {
		panic(err)
	}
	return b
}

// Charge before each call, and stop when the units are gone.
func ExampleBudget_Charge() {
	b, ctx := example(), context.Background()
	for {
		receipt, err := b.Charge(ctx, budget.Call{Operation: "search.list"})
		var refused *budget.RefusedError
		if errors.As(err, &refused) && errors.Is(err, budget.ErrExhausted) {
			fmt.Printf("limit %s has %d left; a search fits at %s\n", refused.Limit, refused.Remaining, refused.RetryAt.Format(time.TimeOnly))
			return
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("searching;", receipt.Remaining, "units left")
	}
	// Output:
	// searching; 150 units left
	// searching; 50 units left
	// limit hourly has 50 left; a search fits at 13:00:00
}

// Reserve what a call may cost, and settle what it did cost.
func ExampleBudget_Reserve() {
	b, ctx := example(), context.Background()
	estimate := int64(100)
	r, err := b.Reserve(ctx, budget.Call{Operation: "videos.list", Units: &estimate}, 5*time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("reserved;", r.Remaining, "units left")
	// In a time of its own: the call's context may have ended meanwhile.
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := r.Settle(settling, 37); err != nil { // or r.Release, had it not been sent
		fmt.Println(err)
		return
	}
	status, err := b.Status(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if status.Remaining != nil { // nil: no limit counts the units of every operation
		fmt.Println("settled;", *status.Remaining, "units left")
	}
	// Output:
	// reserved; 150 units left
	// settled; 213 units left
}

// Wait fails at once when the deadline comes before the units are free.
func ExampleBudget_Wait() {
	b := example()
	if _, err := b.Charge(context.Background(), budget.Call{Operation: "search.list", ID: "first"}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	all := int64(250)
	_, err := b.Wait(ctx, budget.Call{Operation: "videos.list", Units: &all})
	var refused *budget.RefusedError
	fmt.Println(errors.As(err, &refused), errors.Is(err, context.DeadlineExceeded), refused.RetryAfter)
	// Output: true true 1h0m0s
}

// The same id is charged once, however often it is sent.
func ExampleBudget_Charge_again() {
	b, ctx := example(), context.Background()
	for range 2 {
		receipt, err := b.Charge(ctx, budget.Call{Operation: "search.list", ID: "page-17"})
		fmt.Println(receipt.Units, receipt.Replayed, receipt.Remaining, err)
	}
	// Output:
	// 100 false 150 <nil>
	// 100 true 150 <nil>
}

// Lease units for an operation that is called thousands of times a second.
func ExampleBudget_Lease() {
	b, ctx := example(), context.Background()
	lease, err := b.Lease(ctx, budget.Call{Operation: "videos.list"}, 100, 10*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 30 { // without asking the store
		if err := lease.Take(ctx, 1); err != nil {
			fmt.Println(err)
			return
		}
	}
	status, err := b.Status(ctx)
	fmt.Println(*status.Remaining, "units left", err)
	err = lease.Close(ctx) // 30 were taken
	fmt.Println(err)
	status, err = b.Status(ctx)
	fmt.Println(*status.Remaining, "units left", err)
	// Output:
	// 150 units left <nil>
	// <nil>
	// 220 units left <nil>
}
