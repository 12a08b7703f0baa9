package sqlitestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
)

// Two handles on one file, as two processes would have, share one budget.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "quotactl")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	for range 2 {
		store, err := sqlitestore.Open(ctx, filepath.Join(dir, "quotactl.db"), sqlitestore.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		b, err := budget.New(store, budget.Spec{
			Name:   "slack/workspace1",
			Limits: []limit.Limit{{Name: "minute", Limit: 20, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Minute)}},
			Costs:  map[string]budget.Cost{"conversations.list": {Units: 1}},
		}, budget.WithClosers(store))
		if err != nil {
			fmt.Println(err)
			return
		}
		receipt, err := b.Charge(ctx, budget.Call{Operation: "conversations.list"})
		fmt.Println(receipt.Remaining, "calls left", err)
		if err := b.Close(); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// 19 calls left <nil>
	// 18 calls left <nil>
}
