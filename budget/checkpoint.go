package budget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// errTaken says what a fence is when a checkpoint is changed behind it.
var errTaken = errors.New("its pass was taken for dead, and its tick is accounted for; stop, and let the next pass go on")

// MaxCheckpoint is the most that a program may keep in a checkpoint, in bytes.
const MaxCheckpoint = 64 << 10

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
	text, err := c.Store.JobValue(ctx, c.Job, CheckpointKey(c.Region))
	if err != nil || text == nil {
		return nil, c.fail("load", err)
	}
	value, err := ReadCheckpoint(text)
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
	if len(data) == 0 || len(data) > MaxCheckpoint || c.For <= 0 {
		return c.fail("save", fmt.Errorf("%w: %d bytes for %s: keep 1 to %d bytes for more than 0s", ErrInvalid, len(data), c.For, MaxCheckpoint))
	}
	value := CheckpointValue{Expires: time.Now().Add(c.For).UnixMicro(), Data: data}
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
		return fmt.Errorf("%w: use the names of a job and of a region, and a fence of 0 or more", ErrInvalid)
	}
	for {
		found, err := c.Store.Job(ctx, c.Job)
		if err != nil {
			return err
		}
		active, err := ActiveFences(found.Text)
		switch {
		case err != nil:
			return err
		case c.Fence == 0 && len(active) > 0:
			return fmt.Errorf("%w: a pass of the job is under way, and keeps it", ErrConflict)
		case c.Fence != 0 && !slices.Contains(active, c.Fence):
			return fmt.Errorf("%w: %w", ErrFenced, errTaken)
		}
		swapped, err := c.Store.SwapJob(ctx, driver.JobSwap{Job: c.Job, Version: found.Version, Values: map[string][]byte{CheckpointKey(c.Region): text}})
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

// CheckpointKey is the key, beside a job's document, of a region's checkpoint.
func CheckpointKey(region string) string { return "checkpoint/" + region }

// CheckpointValue is a checkpoint as it stands in the store, in JSON. Of Data, a
// program's, and Fetch, which is package jobs' own, it has one.
type CheckpointValue struct {
	Expires int64           `json:"expires"` // µs, by the clock of who wrote it
	Data    []byte          `json:"data,omitempty"`
	Fetch   json.RawMessage `json:"fetch,omitempty"`
}

// ReadCheckpoint reads a value; members that it does not know are left aside.
func ReadCheckpoint(text []byte) (value CheckpointValue, err error) {
	if err := json.Unmarshal(text, &value); err != nil {
		return CheckpointValue{}, fmt.Errorf("it cannot be read: %w; was it written by another version?", err)
	}
	return value, nil
}

// Expired reports whether it is too old to go on from.
func (v CheckpointValue) Expired(now time.Time) bool { return v.Expires <= now.UnixMicro() }

// Text is the value as it is kept.
func (v CheckpointValue) Text() []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the only member that might fail is JSON already
	}
	return text
}

// ActiveFences reads the numbers of the passes under way from a job's document, of
// which package jobs writes the rest; none where there is no document.
func ActiveFences(document []byte) ([]int64, error) {
	if document == nil {
		return nil, nil
	}
	var claims struct {
		Active []struct {
			Fence int64 `json:"fence"`
		} `json:"active"`
	}
	if err := json.Unmarshal(document, &claims); err != nil {
		return nil, fmt.Errorf("read the state of the job: %w; was it written by another version?", err)
	}
	var list []int64
	for _, claim := range claims.Active {
		list = append(list, claim.Fence)
	}
	return list, nil
}
