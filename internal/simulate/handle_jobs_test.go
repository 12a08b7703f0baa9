package simulate

import (
	"context"

	"github.com/quotactl/quotactl/budget/driver"
)

func (h *handle) Job(ctx context.Context, job string) (driver.JobDocument, error) {
	return ask(ctx, h, "read a job", func() (driver.JobDocument, error) { return h.store.Job(ctx, job) })
}

func (h *handle) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	return ask(ctx, h, "read jobs", func() ([]driver.JobDocument, error) { return h.store.Jobs(ctx, names) })
}

func (h *handle) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	return ask(ctx, h, "swap a job", func() (bool, error) {
		swapped, err := h.store.SwapJob(ctx, swap)
		if swapped && err == nil {
			h.daemon.machine.history.noted(h.daemon.machine.t, swap, h.daemon.now())
		}
		return swapped, err
	})
}

func (h *handle) JobValue(ctx context.Context, job, key string) ([]byte, error) {
	return ask(ctx, h, "read a value", func() ([]byte, error) { return h.store.JobValue(ctx, job, key) })
}

func (h *handle) JobHistory(ctx context.Context, query driver.JobHistoryQuery) ([]driver.JobRecord, error) {
	return ask(ctx, h, "read the history", func() ([]driver.JobRecord, error) { return h.store.JobHistory(ctx, query) })
}
