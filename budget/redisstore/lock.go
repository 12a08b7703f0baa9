package redisstore

import (
	"context"
	"fmt"

	"github.com/quotactl/quotactl/budget"
)

// Lock implements budget.Store.
func (s *Store) Lock(context.Context, budget.LockRequest) (budget.Locked, error) {
	return budget.Locked{}, fmt.Errorf("redis store: %w: locks come with the next commits", budget.ErrStoreConfig)
}

// Unlock implements budget.Store.
func (s *Store) Unlock(context.Context, budget.UnlockRequest) (bool, error) {
	return false, fmt.Errorf("redis store: %w: locks come with the next commits", budget.ErrStoreConfig)
}

// Report implements budget.Store.
func (s *Store) Report(context.Context, budget.Report) (budget.Drifted, error) {
	return budget.Drifted{}, fmt.Errorf("redis store: %w: drift comes with the next commits", budget.ErrStoreConfig)
}
