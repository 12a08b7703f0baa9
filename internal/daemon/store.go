package daemon

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/jobs"
)

// storeRetry is how long the daemon waits before it retries a store that is out of reach.
const storeRetry = 5 * time.Second

// OpenStore opens the store with connect and makes sure that it answers for the jobs. If
// the store is out of reach, OpenStore retries, except with Once. A nil store without an
// error means that drain was closed meanwhile.
func (d *Daemon) OpenStore(ctx context.Context, drain <-chan struct{}, cfg *config.Config, list []*jobs.Job, connect func(context.Context) (open.Backend, error)) (open.Backend, error) {
	try := func(ctx context.Context) (open.Backend, error) {
		store, err := connect(ctx)
		if err == nil {
			err = d.serves(ctx, store, cfg, list)
		}
		if errors.Is(err, budget.ErrUnavailable) {
			d.notices.waiting()
		}
		if err != nil && store != nil {
			return nil, errors.Join(err, store.Close())
		}
		return store, err
	}
	if d.o.Once {
		return try(ctx)
	}
	if d.o.Sandbox {
		return await(ctx, drain, d.log, try)
	}
	unreached := alert.NewUnreached(ctx, d.o.Env, d.log, cfg.Alerts)
	store, err := await(ctx, drain, d.log, func(ctx context.Context) (open.Backend, error) {
		store, err := try(ctx)
		unreached.Tried(err)
		return store, err
	})
	if store == nil {
		unreached.Close()
		return nil, err
	}
	d.unreached = unreached
	return store, nil
}

// serves reads the jobs' state from a store: opening alone does not ask the server.
func (d *Daemon) serves(ctx context.Context, store open.Backend, cfg *config.Config, list []*jobs.Job) error {
	if len(list) == 0 { // only charges: while the store is out of reach, on_store_error applies
		name := append(cfg.Budgets(), "any/any")[0]
		if _, err := store.Look(ctx, driver.Look{Budget: name, Now: d.o.Now().UnixMicro()}); err != nil && !errors.Is(err, budget.ErrUnavailable) {
			return err
		}
	}
	for _, job := range list { // each within the store's own timeout
		if _, err := store.Job(ctx, job.Name); err != nil {
			return err
		}
	}
	return nil
}

// localPort matches the local end of a connection, which differs each time.
var localPort = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\S+->`) })

// await tries until the store answers, or fails with an error other than ErrUnavailable.
// It logs the reason when that changes.
func await(ctx context.Context, drain <-chan struct{}, log *slog.Logger, try func(context.Context) (open.Backend, error)) (open.Backend, error) {
	told := ""
	for {
		store, err := try(ctx)
		switch {
		case err == nil:
			if told != "" {
				log.Info("the store is within reach again")
			}
			return store, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, budget.ErrUnavailable):
			return nil, err
		}
		if now := localPort().ReplaceAllString(err.Error(), ""); now != told {
			log.Error("the store is out of reach; retrying until it answers", "every", storeRetry, "error", err)
			told = now
		}
		timer := time.NewTimer(storeRetry)
		select {
		case <-timer.C:
		case <-drain:
			timer.Stop()
			return nil, nil
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}
