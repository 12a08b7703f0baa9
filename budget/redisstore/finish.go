package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Finish implements driver.Store.
func (s *Store) Finish(ctx context.Context, f driver.Finish) (driver.Finished, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return driver.Finished{}, err
	}
	defer cancel()
	began := time.Now()
	until := giveUp(ctx, f.Deadline, f.Now, began)
	unsure, days := false, s.daysAround(f.Budget, f.Now)
	for {
		r := s.registry(f.Budget)
		a, err := s.ask(ctx, "finish a reservation of", f.Budget, s.scripts.Finish, s.daysKeys(f.Budget, r, days), func(attempt time.Time) []any {
			return arguments(finishArgs{ledgerArgs{r.sig, f.Now, s.historyOf(f.Budget, days)}, f.ID, f.Release, f.Units, s.serverTimes(f.Budget)(earlier(until, attempt)), f.Age})
		})
		if err == nil && a.status == statusDone && !finishRest(a.rest) {
			err = s.strange("finish a reservation of "+f.Budget, a.rest)
		}
		if err != nil {
			return driver.Finished{}, err
		}
		unsure, days = unsure || a.unsure, withDays(days, a)
		result := driver.FinishResult(numberAt(a.rest, 0))
		switch late := a.status == statusDone && result == driver.FinishLate; {
		case late && time.Now().Before(until):
			s.learnAnew(f.Budget, a.now) // late for this attempt only, or by an outdated offset
		case late && unsure:
			return driver.Finished{}, lostAnswer("finish a reservation of " + f.Budget)
		case a.status == statusDone:
			return driver.Finished{Result: result, Replayed: numberAt(a.rest, 1) == 1, At: numberAt(a.rest, 2), Now: earlierClock(a.now, f.Now)}, nil
		}
		if ctx.Err() != nil {
			return driver.Finished{}, fmt.Errorf("finish a reservation of %s in Redis: %w: out of time", f.Budget, driver.ErrUnavailable)
		}
	}
}
