package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/checkpoint"
)

// The errors of a change after the pass.
var (
	errTaken = errors.New("its pass was declared dead, and its tick is accounted for; stop, and let the next pass continue")
	errOver  = errors.New("its pass has ended; stop, and let the next pass continue")
)

// Checkpoint is how far a region of a job has come: what a run stores so that the next
// one can resume, such as a page token. Save it only when everything before it is safe,
// and Clear it when all is done; an interrupted run leaves it for the next.
//
// In a run of the daemon, Fence is the number of its pass: once the pass is declared dead,
// the checkpoint cannot be changed any more. Without the daemon, Fence is 0, and the
// checkpoint cannot be changed while a pass of the job is under way.
type Checkpoint struct {
	Store       driver.JobStore
	Job, Region string // the region may be empty
	Fence       int64
	// For is how long saved data is valid; more than 0.
	For time.Duration
	// Close closes the Closers, in order: the store, if nothing else uses it.
	Closers []io.Closer
}

// Load returns what was saved last; nil if nothing was saved or it has expired. The error
// is the store's.
func (c *Checkpoint) Load(ctx context.Context) ([]byte, error) {
	text, err := c.Store.JobValue(ctx, c.Job, checkpoint.Key(c.Region))
	if err != nil || text == nil {
		return nil, c.fail("load", err)
	}
	value, err := checkpoint.Read(text)
	if err != nil || value.Expired(time.Now()) {
		return nil, c.fail("load", err)
	}
	return value.Data, nil
}

// Save stores data, 1 byte to 64 KiB, and replaces what was saved before. The error is
// ErrFenced if the pass has ended or was declared dead, ErrConflict if Fence is 0 and a pass of the
// job is under way, ErrInvalid, or the store's. After ErrUnavailable it is not known
// whether data was saved.
func (c *Checkpoint) Save(ctx context.Context, data []byte) error {
	if len(data) == 0 || len(data) > checkpoint.Max || c.For <= 0 {
		return c.fail("save", fmt.Errorf("%w: %d bytes for %s: keep 1 to %d bytes for more than 0s", budget.ErrInvalid, len(data), c.For, checkpoint.Max))
	}
	value := checkpoint.Value{Expires: time.Now().Add(c.For).UnixMicro(), Data: data}
	return c.fail("save", c.swap(ctx, value.Text()))
}

// Clear removes what was saved, if anything. Errors are those of Save.
func (c *Checkpoint) Clear(ctx context.Context) error { return c.fail("clear", c.swap(ctx, nil)) }

// Close closes the Closers.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, closer := range c.Closers {
		errs = append(errs, closer.Close())
	}
	c.Closers = nil
	return errors.Join(errs...)
}

// swap replaces the stored value while it may. The swap fails if the job's document was
// changed meanwhile, which is how a pass is declared dead.
func (c *Checkpoint) swap(ctx context.Context, text []byte) error {
	if !driver.ValidName(c.Job) || c.Region != "" && !driver.ValidName(c.Region) || c.Fence < 0 {
		return fmt.Errorf("%w: use the names of a job and of a region, and a fence of 0 or more", budget.ErrInvalid)
	}
	for {
		found, err := c.Store.Job(ctx, c.Job)
		if err != nil {
			return err
		}
		passes, err := budget.PassesOf(found)
		switch {
		case err != nil:
			return err
		case c.Fence == 0 && len(passes.Active) > 0:
			return fmt.Errorf("%w: a pass of the job is under way, and owns the checkpoint", budget.ErrConflict)
		case c.Fence != 0 && passes.Ended(c.Fence):
			return fmt.Errorf("%w: %w", budget.ErrFenced, errOver)
		case c.Fence != 0 && !slices.Contains(passes.Active, c.Fence):
			return fmt.Errorf("%w: %w", budget.ErrFenced, errTaken)
		}
		swapped, err := c.Store.SwapJob(ctx, driver.JobSwap{Job: c.Job, Version: found.Version, Values: map[string][]byte{checkpoint.Key(c.Region): text}})
		if err != nil || swapped {
			return err
		}
	}
}

func (c *Checkpoint) fail(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s the checkpoint of job %s, region %q: %w", verb, c.Job, c.Region, err)
}
