package alert

import (
	"context"
	"log/slog"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
)

// Unreached tells of a store that a daemon does not reach at its start: before there is a
// [Watcher], which needs the store.
type Unreached struct {
	w      *Watcher
	alerts []config.Alert
}

// NewUnreached makes one that tells what alerts say; env is os.LookupEnv if it is nil.
func NewUnreached(env func(name string) (string, bool), log *slog.Logger, alerts []config.Alert) *Unreached {
	return &Unreached{New(Options{Env: env, Log: log}), alerts}
}

// Tried takes how a try to reach the store has ended, nil if it answers, and begins to deliver
// what there is to tell. It waits for nothing.
func (u *Unreached) Tried(ctx context.Context, err error) {
	u.w.outage.saw(u.w, u.alerts, err)
	for _, a := range u.alerts {
		u.w.alone(a.Name, func() { u.w.outage.deliver(ctx, u.w, a) })
	}
}

// Leave waits for tries under way, and writes down what was not delivered, for any daemon. It is
// called last.
func (u *Unreached) Leave(ctx context.Context, state driver.JobStore) {
	u.w.working.Wait()
	u.w.o.State = state
	u.w.outage.leave(ctx, u.w)
}
