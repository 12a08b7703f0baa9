package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// purpose is the mode of a run of charge.lua.
type purpose string

const (
	deciding      purpose = ""
	looking       purpose = "look"
	recovering    purpose = "recover"
	beginningAnew purpose = "begin anew" // recovering a damaged ledger
	goingOn       purpose = "go on"      // deciding the rest of a batch
	reporting     purpose = "report"     // taking in an upstream's report
	importing     purpose = "import"     // adding rows of an exported ledger
)

// recovery is a driver.Recovery during as many script runs as it needs.
type recovery struct {
	driver.Recovery
	came []string // where each limit's sum ended in the run before
}

func (s *Store) recover(ctx context.Context, r driver.Recovery) (driver.Recovered, error) {
	run := s.newBatch(ctx, driver.Batch{Budget: r.Budget, Now: r.Now, Limits: r.Limits, Mark: r.Mark, Host: r.Host, Hosts: r.Hosts}, time.Now())
	run.mode, run.lost = recovering, &recovery{r, make([]string, len(r.Limits))}
	answer := driver.Recovered{Amounts: make([]int64, len(r.Limits))}
	for {
		done, err := run.step(ctx)
		if run.mode == beginningAnew && err == nil && run.status != statusPeriods && run.status != statusDays {
			// The ledger is begun anew, by this run or by another caller. The recovery continues.
			answer.Anew, run.mode = answer.Anew || run.status != statusRegistry, recovering
		}
		switch {
		case errors.Is(err, driver.ErrDamaged) && run.mode == recovering && !answer.Anew:
			run.mode = beginningAnew
			continue
		case err != nil:
			return driver.Recovered{}, err
		}
		for i, seen := range run.looks {
			answer.Amounts[i], run.lost.came[i] = numberAt(seen, 0), text(seen, 1)
			done = done && run.lost.came[i] == ""
		}
		if done {
			answer.Now, answer.Mark = run.decided.Now, run.told.mark
			return answer, nil
		}
		if ctx.Err() != nil {
			return driver.Recovered{}, fmt.Errorf("recover %s in Redis: %w: out of time; the next decision records what is missing", r.Budget, driver.ErrUnavailable)
		}
	}
}

// registry returns the registry that the ledger should have, the same with the limits'
// pseudo-operations, and the operations added. A ledger that is begun anew has none.
func (r *recovery) registry(had registry, limits []limit.Limit, m purpose) (registry, registry, []string) {
	var names []string
	if m == beginningAnew {
		names, had = had.names, registry{}
	}
	for _, l := range limits {
		if l.Window.Kind != limit.Bucket {
			names = append(names, limit.RecoveredOperation(l.Name))
		}
	}
	with, added := had.withNames(names)
	return had, with, added
}

// args are the arguments for one limit.
func (r *recovery) args(i int, l limit.Limit, known registry) any {
	own, id := r.OwnOf(i)
	return recoverArgs{r.At, r.Used[i], r.came[i], known.number(limit.RecoveredOperation(l.Name), ""), l.Limit, limit.RecoveredID(l.Name), own, id}
}

// keys are the ledger's keys. A recovery takes all keys that the ledger may have, to find
// what is left of one that was partly evicted.
func (b *batch) keys(r registry) []string {
	if b.mode != beginningAnew && b.mode != recovering {
		return b.store.daysKeys(b.Budget, r, b.historyDays())
	}
	return append(b.store.allKeys(b.Budget, len(r.names)), b.store.dayKeys(b.Budget, b.historyDays())...)
}

// allKeys are the keys of a ledger with the most operations and pairs that it may have, and
// more beyond these.
func (s *Store) allKeys(name string, more int) []string {
	all := registry{names: make([]string, driver.MaxOperations+driver.MaxPairs+more)}
	for i := range all.names {
		all.names[i] = strconv.Itoa(i)
	}
	return s.keys(name, all)
}

// maxLimits bounds the pseudo-operations whose keys a reset deletes.
const maxLimits = 256

func (s *Store) reset(ctx context.Context, name string) error {
	if err := s.convert(ctx, name); err != nil && !errors.Is(err, driver.ErrDamaged) {
		return err
	}
	if _, err := s.runForClock(ctx, s.scripts.Forget, "reset "+name, s.allKeys(name, maxLimits)); err != nil {
		return err
	}
	s.remember(name, registry{})
	return nil
}
