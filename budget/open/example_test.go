package open_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/open"
)

// A fetch job: open the budget, charge before each call, stop when it is
// exhausted.
func ExampleBudget() {
	dir, err := os.MkdirTemp("", "quotactl")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	config := filepath.Join(dir, "costs.toml")
	if err := os.WriteFile(config, []byte(`
[upstream.youtube.costs]
"search.list" = 100
[upstream.youtube.limit.daily]
quota  = 250
window = "24h"
[upstream.youtube.credential.key1]
`), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	ctx := context.Background()
	b, err := open.Budget(ctx, config, "youtube/key1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = b.Close() }()
	for page := 1; ; page++ {
		_, err := b.Charge(ctx, budget.Call{Operation: "search.list"})
		if errors.Is(err, budget.ErrExhausted) {
			fmt.Println("exhausted before page", page)
			return
		} else if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("fetching page", page)
	}
	// Output:
	// fetching page 1
	// fetching page 2
	// exhausted before page 3
}
