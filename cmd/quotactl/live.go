package main

import (
	"context"
	"errors"
	"fmt"
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
	ctx, cancel := context.WithCancel(ctx)
	call.ID, call.NewID = "", false
	var refused *budget.RefusedError // by the last answer; nil: there is none
	var asked time.Time
	shown := a.live.While(func() string {
		if now := a.now(); now.Sub(asked) >= askAgain && (refused == nil || now.After(refused.RetryAt)) {
			asked, refused = now, nil
			_, err := b.Would(ctx, call, lease)
			if errors.As(err, &refused) && (!errors.Is(err, budget.ErrExhausted) || refused.RetryAt.IsZero()) {
				refused = nil
			}
		}
		if refused == nil {
			return "waiting for the store's answer"
		}
		text := fmt.Sprintf("waiting until %s for %s of %s", a.errorScreen().Time(refused.RetryAt), view.Plural(int(refused.Units), "unit"), b.Name())
		if refused.Limit != "" {
			text += ", limit " + refused.Limit
		}
		return text
	})
	return func() {
		cancel() // of a question that is asked just now
		shown()
	}
}

// askAgain is the least time between two questions of how long a call must wait.
const askAgain = 5 * time.Second
