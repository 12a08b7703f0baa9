package client

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
)

// Run returns the run for which the daemon started this program: the labels of its
// charges and the number of its pass (the fence), as [budget.RunFrom] reads them from the
// environment. They are empty outside of a run. A budget of open.Budget and a transport of
// budgethttp have them by themselves; a [budget.Call] on another budget needs them. With the
// fence, nothing more is charged once the pass is declared dead.
func Run() (labels budget.Labels, fence int64, err error) {
	run, err := budget.RunFrom(os.LookupEnv)
	return run.Labels, run.Fence, err
}

// OpenCheckpoint opens the checkpoint of the run for which the daemon started this
// program. The store is that of the configuration in QUOTACTL_CONFIG, else costs.toml, or
// the one in QUOTACTL_STORE if that is set. What is saved is valid for as long as the
// job's checkpoint key says. To use it without the daemon, set QUOTACTL_JOB to the job's
// name, and QUOTACTL_REGION to its region, if it has any. Close it when done.
func OpenCheckpoint(ctx context.Context) (*Checkpoint, error) {
	labels, fence, err := Run()
	if err != nil {
		return nil, err
	}
	if labels.Job == "" {
		return nil, fmt.Errorf("open the checkpoint: %w: the environment has no QUOTACTL_JOB: the daemon sets it; by hand, set it to the job's name", budget.ErrInvalid)
	}
	path := os.Getenv("QUOTACTL_CONFIG")
	if path == "" {
		path = "costs.toml"
	}
	config, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	span, err := checkpointSpan(config, labels.Job)
	if err != nil {
		return nil, err
	}
	url := os.Getenv("QUOTACTL_STORE")
	if url == "" {
		url = config.Store.URL
	}
	store, err := open.StoreOrLater(ctx, url, config.Store)
	if err != nil {
		return nil, err
	}
	return &Checkpoint{Store: store, Job: labels.Job, Region: labels.Region, Fence: fence, For: span, Closers: []io.Closer{store}}, nil
}

// checkpointSpan is how long a job's checkpoints are valid, as its table says.
func checkpointSpan(config *config.Config, job string) (time.Duration, error) {
	for _, table := range config.Jobs {
		if table.Key() != job {
			continue
		}
		for _, key := range table.List() {
			if key.Key() != "checkpoint" {
				continue
			}
			if span, ok := key.Duration(1, math.MaxInt64); ok {
				return span, nil
			}
		}
	}
	return 0, fmt.Errorf("open the checkpoint of job %s: %w: write checkpoint = \"72h\" in [job.%s]", job, budget.ErrInvalid, job)
}
