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

// errTaken says what a fence is when a checkpoint is changed behind it.
var errTaken = errors.New("its pass was taken for dead, and its tick is accounted for; stop, and let the next pass go on")

// Checkpoint is how far a region of a job has come: what a run keeps for the next
// one to go on from, such as a page token. Save it only once what came before it is
// safe, and Clear it when all is done; a run that is cut leaves it for the next.
//
// Within a run of the daemon Fence is the number of its pass: once that is taken for
// dead, nothing is changed any more. Alone, as by hand, it is 0, and nothing is
// changed while a pass of the job is under way.
type Checkpoint struct {
	Store       driver.JobStore
	Job, Region string // the region may be empty
	Fence       int64
	// For is how long what is saved stands, more than 0.
	For time.Duration
	// Closers are closed by Close, in order: the store, where it is only for this.
	Closers []io.Closer
}

// Load is what was saved last; nil where that is nothing, or is older than its span.
// The error is the store's.
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

// Save keeps data, at most MaxCheckpoint bytes and more than none, in the place of
// what was saved before. The error is ErrFenced when the pass was taken for dead,
// ErrConflict when there is no Fence and a pass of the job is under way, ErrInvalid,
// or the store's; after ErrUnavailable it is not known whether it was saved.
func (c *Checkpoint) Save(ctx context.Context, data []byte) error {
	if len(data) == 0 || len(data) > checkpoint.Max || c.For <= 0 {
		return c.fail("save", fmt.Errorf("%w: %d bytes for %s: keep 1 to %d bytes for more than 0s", budget.ErrInvalid, len(data), c.For, checkpoint.Max))
	}
	value := checkpoint.Value{Expires: time.Now().Add(c.For).UnixMicro(), Data: data}
	return c.fail("save", c.swap(ctx, value.Text()))
}

// Clear forgets what was saved, if anything. Errors are those of Save.
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

// swap puts a value in the place of what stands, while it may: a pass that is taken
// for dead is so by a change of the job's document.
func (c *Checkpoint) swap(ctx context.Context, text []byte) error {
	if !driver.ValidName(c.Job) || c.Region != "" && !driver.ValidName(c.Region) || c.Fence < 0 {
		return fmt.Errorf("%w: use the names of a job and of a region, and a fence of 0 or more", budget.ErrInvalid)
	}
	for {
		found, err := c.Store.Job(ctx, c.Job)
		if err != nil {
			return err
		}
		active, err := checkpoint.ActiveFences(found.Text)
		switch {
		case err != nil:
			return err
		case c.Fence == 0 && len(active) > 0:
			return fmt.Errorf("%w: a pass of the job is under way, and keeps it", budget.ErrConflict)
		case c.Fence != 0 && !slices.Contains(active, c.Fence):
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
