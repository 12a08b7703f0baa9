package storetest

import (
	"context"

	"github.com/quotactl/quotactl/budget/driver"
)

// Looks is a store that tells when it has been looked at, which is when a lease learns of locks,
// resets and losses.
type Looks struct {
	driver.Store
	looked chan struct{}
}

// TellLooks makes a store tell.
func TellLooks(store driver.Store) *Looks { return &Looks{store, make(chan struct{}, 1)} }

// Look implements driver.Store.
func (l *Looks) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	view, err := l.Store.Look(ctx, look)
	select {
	case l.looked <- struct{}{}:
	default: // nobody has heard of the one before
	}
	return view, err
}

// Looked tells after a look.
func (l *Looks) Looked() <-chan struct{} { return l.looked }
