package alert

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/config"
)

// Unreached tells of a store that a daemon does not reach at its start, when there is no [Watcher]
// yet, which needs the store. Either a Watcher goes on with it ([Options].After), or Close ends it.
type Unreached struct {
	ctx     context.Context //nolint:containedctx // of tries to deliver, which outlast Tried
	cancel  context.CancelFunc
	w       *Watcher
	alerts  []config.Alert
	mu      sync.Mutex // guards counted
	counted []counted
}

// counted is a try to deliver that is still to be counted.
type counted struct {
	alert  string
	result Result
}

// NewUnreached makes one for the alerts of a configuration; env is os.LookupEnv if it is nil.
func NewUnreached(ctx context.Context, env func(name string) (string, bool), log *slog.Logger, alerts []config.Alert) *Unreached {
	u := &Unreached{alerts: alerts}
	u.ctx, u.cancel = context.WithCancel(ctx)
	u.w = New(Options{Env: env, Log: log, Count: func(alert string, r Result) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.counted = append(u.counted, counted{alert, r})
	}})
	return u
}

// Tried takes the error of a try to reach the store, nil if it answers, and begins to deliver the
// messages of an outage. It does not wait for them.
func (u *Unreached) Tried(err error) {
	u.w.outage.saw(u.w, u.alerts, err)
	for _, a := range u.alerts {
		u.w.alone(a.Name, func() { u.w.outage.deliver(u.ctx, u.w, a) })
	}
}

// end ends the tries under way. What they were to deliver stays with the outage.
func (u *Unreached) end() {
	u.cancel()
	u.w.working.Wait()
}

// handOver has a Watcher go on.
func (u *Unreached) handOver(w *Watcher) {
	u.end()
	w.outage, w.holder = u.w.outage, u.w.holder
	for _, c := range u.counted {
		w.o.Count(c.alert, c.result)
	}
}

// Close ends it where the store was never reached: it leaves tries under way a few seconds.
// Messages that are not delivered by then are lost, and logged.
func (u *Unreached) Close() {
	defer time.AfterFunc(stopTakes, u.cancel).Stop()
	u.w.working.Wait()
	u.end()
	u.w.outage.lose(u.w.o.Log)
}
