package ledgerfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Result is what an import did.
type Result struct {
	Facts        // as far as the file was read
	Before int64 // Rows that an earlier import of this file took in, or a call of this one whose answer was lost
	Added  int64
	Known  int64 // the ledger had them from elsewhere
	Gone   int64 // no limit counts them any more
}

// patience is how long Import retries while the store is out of reach; firstPause is its
// first wait.
const (
	patience   = 30 * time.Second
	firstPause = 20 * time.Millisecond
)

// Import adds a file, which Check has accepted, to the ledger of its budget, with that
// budget's limits. The ledger records the progress: an interrupted import is resumed, and
// a second import of the same file adds nothing. If the store is out of reach, Import
// retries for 30 s. Errors are those of [driver.Store] and [Check].
func Import(ctx context.Context, store driver.Store, r io.Reader, limits []limit.Limit, now func() time.Time) (Result, error) {
	f, err := open(r)
	if err != nil {
		return Result{}, err
	}
	result := Result{Facts: f.facts}
	result.Rows, result.History = 0, 0
	part := driver.Import{Budget: f.facts.Budget, Limits: limits, Export: f.facts.Export, Head: f.facts.Head}
	row, err := f.next()
	for !part.Last {
		part.Rows = part.Rows[:0]
		for err == nil && len(part.Rows) < driver.MaxImport {
			part.Rows = append(part.Rows, row)
			row, err = f.next() // one ahead: the last part must not be empty
		}
		if part.Last = errors.Is(err, io.EOF); err != nil && !part.Last {
			return result, err
		}
		done, failed := retry(ctx, store, part, now)
		upto := part.From + int64(len(part.Rows))
		before := result.Rows
		for _, row := range part.Rows {
			result.count(row)
		}
		if failed != nil {
			return result, failed
		}
		if done.Done < upto {
			return result, fmt.Errorf("import into %s: the ledger has recorded %d rows of this file, but %d were imported before: it no longer knows this file; export again, and import the new file", part.Budget, done.Done, part.From)
		}
		result.Added, result.Known, result.Gone = result.Added+done.Added, result.Known+done.Known, result.Gone+done.Gone
		result.Before += result.Rows - before - done.Added - done.Known - done.Gone
		part.From = upto
	}
	return result, nil
}

// retry imports a part, and repeats it while the store is out of reach.
func retry(ctx context.Context, store driver.Store, part driver.Import, now func() time.Time) (driver.Imported, error) {
	began, pause := time.Now(), firstPause
	for {
		part.Now = now().UnixMicro()
		done, err := driver.Apply(ctx, store, part)
		if err == nil || !errors.Is(err, driver.ErrUnavailable) || time.Since(began) > patience {
			return done, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return done, ctx.Err()
		}
		pause = min(2*pause, time.Second)
	}
}
