package main

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/jobs"
)

// storeRetry is how long the daemon waits before it tries a store again that
// is out of reach.
const storeRetry = 5 * time.Second

// storeOf opens the store of the jobs and makes sure that it serves them. The
// daemon waits for one that is out of reach, and calls waiting at each try that
// failed; nil without an error means that it was told to stop meanwhile.
func (a *app) storeOf(ctx context.Context, drain <-chan struct{}, cfg *config.Config, list []*jobs.Job, once bool, waiting func()) (open.Backend, error) {
	try := func(ctx context.Context) (open.Backend, error) {
		store, err := a.serving(ctx, cfg, list)
		if errors.Is(err, budget.ErrUnavailable) {
			waiting()
		}
		return store, err
	}
	if once {
		return try(ctx)
	}
	return await(ctx, drain, a.logger(), try)
}

// serving opens the store and reads the jobs' state: opening alone asks a
// server for nothing.
func (a *app) serving(ctx context.Context, cfg *config.Config, list []*jobs.Job) (open.Backend, error) {
	store, err := a.openStore(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 { // decisions alone: what is out of reach fails as its policy says
		name := append(cfg.Budgets(), "any/any")[0]
		if _, err := store.Look(ctx, driver.Look{Budget: name, Now: a.now().UnixMicro()}); err != nil && !errors.Is(err, budget.ErrUnavailable) {
			return nil, errors.Join(err, store.Close())
		}
	}
	for _, job := range list { // each within the store's own timeout
		if _, err := store.Job(ctx, job.Name); err != nil {
			return nil, errors.Join(err, store.Close())
		}
	}
	return store, nil
}

// localPort is the end of a connection that is another each time.
var localPort = regexp.MustCompile(`\S+->`)

// await tries until the store serves, or says that it never will. What keeps it
// away is logged when it changes.
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
		if now := localPort.ReplaceAllString(err.Error(), ""); now != told {
			log.Error("the store is out of reach; trying again until it is there", "every", storeRetry, "error", err)
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
