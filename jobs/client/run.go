package client

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
)

// Run is the run of the daemon that this program is started for: the labels of its
// charges and the number of its pass, for [budget.Call] and budgethttp.Options. They
// are in the environment, as QUOTACTL_JOB, _REGION, _RUN and _FENCE, and empty outside
// of a run. With the number nothing more is charged once the pass is taken for dead.
func Run() (labels budget.Labels, fence int64, err error) {
	labels = budget.Labels{Job: os.Getenv("QUOTACTL_JOB"), Region: os.Getenv("QUOTACTL_REGION"), Run: os.Getenv("QUOTACTL_RUN")}
	number := os.Getenv("QUOTACTL_FENCE")
	if number == "" {
		return labels, 0, nil
	}
	if fence, err = strconv.ParseInt(number, 10, 64); err != nil {
		return labels, 0, fmt.Errorf("%w: the environment's QUOTACTL_FENCE is no number: it is the daemon's, leave it as it is", budget.ErrInvalid)
	}
	return labels, fence, nil
}

// OpenCheckpoint opens the checkpoint of the run that this program is started for, in the
// store of its configuration: QUOTACTL_CONFIG, else costs.toml, and QUOTACTL_STORE
// where that is another. It stands for as long as the job's checkpoint says. Outside of
// the daemon QUOTACTL_JOB names the job, and QUOTACTL_REGION its region, if it has
// any. Close it when done.
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

// checkpointSpan is how long a job's checkpoints stand, as its table says.
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
