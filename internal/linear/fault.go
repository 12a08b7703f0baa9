package linear

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/quotactl/quotactl/budget/driver"
)

// WithoutIDs is a store with a known fault: each attempt of a plain charge has a fresh
// id, so that a charge whose reply was lost is charged again.
func WithoutIDs(store driver.Store) driver.Store { return withoutIDs{store} }

type withoutIDs struct{ driver.Store }

func (w withoutIDs) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	items := make([]driver.Item, len(b.Items))
	for i, item := range b.Items {
		if item.Lease == 0 {
			item.ID = fmt.Sprint(item.ID, "-", rand.Uint64()) //nolint:gosec // it need not be secret
		}
		items[i] = item
	}
	b.Items = items
	return w.Store.Decide(ctx, b)
}

// Lagging is a store with a known fault: each look shows the result of the look before
// it.
func Lagging(store driver.Store) driver.Store {
	return &lagging{Store: store, before: map[string]driver.View{}}
}

type lagging struct {
	driver.Store
	mu     sync.Mutex
	before map[string]driver.View
}

func (l *lagging) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	view, err := l.Store.Look(ctx, look)
	if err != nil {
		return view, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before, seen := l.before[look.Budget]
	l.before[look.Budget] = view
	if seen {
		return before, nil
	}
	return view, nil
}
