package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// State keeps what jobs need between their passes, and what several daemons agree on.
// Every store is a State.
type State = driver.JobStore

// documents reads and changes the jobs' documents of a [State].
type documents struct {
	state     State
	now       func() time.Time // the wall clock
	heartbeat time.Duration    // how often this process renews what it holds
	watch     watch
	log       *slog.Logger
}

// hold is how long a claim or a slot is valid without being renewed.
func (d *documents) hold() time.Duration { return 4 * d.heartbeat }

// change reads a job's state, has do change it, and swaps it; if another process changed
// it meanwhile, it starts over. It returns do's errors, except errStays, and then changes
// nothing.
func (d *documents) change(ctx context.Context, job *Job, do func(s *state, at clocks) (edit, error)) error {
	err := changeDocument(ctx, d.state, job.Name, d.now, job.History, do)
	if err != nil { // then others cannot renew their claims either
		d.watch.forget(job.Name)
	}
	return err
}

// edit is what a change stores besides the document.
type edit struct {
	records []driver.JobRecord
	values  map[string][]byte
	// same: the document stays as it is.
	same bool
}

// errStays leaves a state as it is.
var errStays = errors.New("the state stays as it is")

// changeDocument is change for any document; history is how long its records are kept.
func changeDocument[T any](ctx context.Context, in State, name string, now func() time.Time, history time.Duration, do func(t *T, at clocks) (edit, error)) error {
	for {
		found, err := in.Job(ctx, name)
		if err != nil {
			return err
		}
		t, err := readDocument[T](name, found)
		if err != nil {
			return err
		}
		at := clocks{wall: now(), store: found.Wall, now: found.Now}
		e, err := do(t, at)
		switch {
		case errors.Is(err, errStays):
			return nil
		case err != nil:
			return err
		}
		swap := driver.JobSwap{Job: name, Version: found.Version, Values: e.values, Records: e.records}
		if !e.same {
			if swap.Text, err = json.Marshal(t); err != nil {
				return fmt.Errorf("write the state of job %s: %w", name, err)
			}
		}
		if len(e.records) > 0 {
			// The earlier of the two clocks counts: one that is ahead must not remove new records.
			at := min(at.wall.UnixMicro(), at.store)
			swap.Forget, swap.Most = at-history.Microseconds(), maxHistory
			for i := range swap.Records { // the record of a tick older than the history is kept as long as others
				if record := &swap.Records[i]; record.At < swap.Forget {
					record.At = at
				}
			}
		}
		if swapped, err := in.SwapJob(ctx, swap); err != nil || swapped {
			return err
		}
	}
}

// readDocument parses a document; the zero value if it does not exist.
func readDocument[T any](name string, found driver.JobDocument) (*T, error) {
	t := new(T)
	if found.Text == nil {
		return t, nil
	}
	if err := json.Unmarshal(found.Text, t); err != nil {
		return nil, fmt.Errorf("read the state of job %s: %w; was it written by another version?", name, err)
	}
	return t, nil
}

// boundedState is a State that bounds how many changes are under way at once. When a
// thousand jobs tick in one second, their changes wait here and not in the store, where
// they would time out.
type boundedState struct {
	State
	changing chan struct{} // its capacity is the bound
}

// SwapJob implements State.
func (b *boundedState) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	select {
	case b.changing <- struct{}{}:
		defer func() { <-b.changing }()
	case <-ctx.Done():
		return false, fmt.Errorf("change job %s, while others are changed: %w: %w", swap.Job, budget.ErrUnavailable, context.Cause(ctx))
	}
	return b.State.SwapJob(ctx, swap)
}
