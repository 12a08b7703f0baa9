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

// State keeps what jobs need between their passes, and what several daemons agree
// on. Every store is one.
type State = driver.JobStore

// documents is what a [State] keeps of jobs, as this process reads and changes it.
type documents struct {
	state     State
	now       func() time.Time // the wall clock
	heartbeat time.Duration    // how often this process renews what it holds
	watch     watch
	log       *slog.Logger
}

// hold is how long a claim or a slot stands that is not renewed.
func (d *documents) hold() time.Duration { return 4 * d.heartbeat }

// change reads a job's state, has it changed, and swaps it, again until nobody came
// in between. An error of do's is returned, but errStays; nothing is changed then.
func (d *documents) change(ctx context.Context, job *Job, do func(s *state, at clocks) (edit, error)) error {
	err := changeDocument(ctx, d.state, job.Name, d.now, job.History, do)
	if err != nil { // then others cannot renew their claims either
		d.watch.forget(job.Name)
	}
	return err
}

// edit is what a change of a state brings along.
type edit struct {
	records []driver.JobRecord
	values  map[string][]byte
	// same: the document stays as it is.
	same bool
}

// errStays leaves a state as it is.
var errStays = errors.New("the state stays as it is")

// changeDocument is change for any document; history is how long its records are
// kept.
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
			// A clock that is ahead forgets nothing that is new by the other.
			at := min(at.wall.UnixMicro(), at.store)
			swap.Forget, swap.Most = at-history.Microseconds(), maxHistory
			for i := range swap.Records { // of a tick that is older than what is kept it is told all the same, and for as long
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

// readDocument is what a document says; the zero value where there is none.
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

// boundedState is a State with a bound on how many changes are under way at once: those
// of a thousand jobs that tick in one second wait here, and not in the store until its
// timeout.
type boundedState struct {
	State
	changing chan struct{} // as many as may be under way
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
