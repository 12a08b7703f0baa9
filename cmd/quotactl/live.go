package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/view"
)

// reading has a terminal's last line say what is being done, once that takes longer than a
// second, until the returned function is called.
func (a *app) reading(what string) (end func()) {
	return a.live.While(func() string { return what })
}

// waitingFor says in a terminal's last line what a call waits for, and until when.
func (a *app) waitingFor(ctx context.Context, b *budget.Budget, call budget.Call, lease time.Duration) (end func()) {
	fits := sync.OnceValue(func() *budget.RefusedError {
		ctx, cancel := context.WithTimeout(ctx, b.Spec().Timeout)
		defer cancel()
		call.ID, call.NewID = "", false
		_, err := b.Would(ctx, call, lease)
		var refused *budget.RefusedError
		if errors.As(err, &refused) && errors.Is(err, budget.ErrExhausted) && !refused.RetryAt.IsZero() {
			return refused
		}
		return nil
	})
	return a.live.While(func() string {
		refused := fits()
		if refused == nil {
			return "waiting for the store's answer"
		}
		text := fmt.Sprintf("waiting until %s for %s of %s", a.onErrors().Time(refused.RetryAt), view.Plural(int(refused.Units), "unit"), b.Name())
		if refused.Limit != "" {
			text += ", limit " + refused.Limit
		}
		return text
	})
}
