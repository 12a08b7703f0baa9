package outage_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// dayOfNightly is a day that began in the last 24 h and has an hour's lapse of a full
// guarantee, which a call of nobody is put off to if it does not fit now.
func dayOfNightly(t *testing.T) limit.Limit {
	soon := time.Now().UTC().Add(10 * time.Minute)
	c := must.Get(limit.NewCalendar(limit.Day, "UTC", soon.Sub(soon.Truncate(24*time.Hour)).Truncate(time.Minute)))(t)
	return limit.Limit{
		Name: "day", Quota: 1000, Headroom: 50, Limit: 950, OutagePart: 20, Counts: limit.CountUnits, Window: limit.CalendarWindow(c),
		Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 950, Lapse: time.Hour.Microseconds()}},
	}
}

// by charges a call of a job, and returns the refusal.
func by(t *testing.T, b *budget.Budget, job string) *budget.RefusedError {
	t.Helper()
	_, err := b.Charge(context.Background(), budget.Call{Operation: "list", Labels: driver.Labels{Job: job}})
	var refused *budget.RefusedError
	must.Equal(t, errors.As(err, &refused), true, job, "refused:", err)
	return refused
}

// A call that fits a limit again, but then not another one's guarantees, is put off. For
// others, the limit counts as exhausted only while it is exhausted.
func TestPutOffOfOneJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInFakeTime(t)
		rolling := limit.Limit{Name: "rolling", Quota: 60, Headroom: 50, Limit: 10, OutagePart: 20, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}
		w.spec.Limits = []limit.Limit{rolling, dayOfNightly(t)}
		b := w.host(t.TempDir())
		for range 10 {
			must.Do(t, check.Err(b.Charge(t.Context(), budget.Call{Operation: "list", Labels: driver.Labels{Job: "backfill"}})))
		}
		put := by(t, b, "backfill")
		check.Equal(t, put.RetryAfter > 22*time.Hour, true, "put off for", put.RetryAfter)
		check.Equal(t, put.Ends.IsZero() || put.RetryAt.Sub(put.Ends) < 20*time.Hour, false, "the limit ends at", put.Ends)
		w.store.gone.Store(true)
		check.Equal(t, by(t, b, "nightly").RetryAfter <= time.Hour, true, "nightly waits for the limit alone")
	})
}

func TestPutOffBeyondALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInFakeTime(t)
		w.spec.Limits = []limit.Limit{dayOfNightly(t)}
		b := w.host(t.TempDir())
		lock := must.Get(b.Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: 30 * time.Minute}, Why: "403", ByHand: true}))(t)
		put := by(t, b, "backfill")
		check.Equal(t, put.Ends, lock.Until, "the lock ends")
		check.Equal(t, put.RetryAfter > 22*time.Hour, true, "put off for", put.RetryAfter)
		text := put.Error()
		if until := lock.Until.Format("2006-01-02T15:04:05.000000Z07:00"); !strings.Contains(text, "locked for 30m0s,") || !strings.Contains(text, "until "+until+" (403); fits in ") {
			t.Errorf("it says %q, want the lock's end, %s, and when it fits", text, until)
		}
		w.store.gone.Store(true)
		check.Equal(t, by(t, b, "nightly").RetryAfter <= 30*time.Minute, true, "nightly waits for the lock alone")
	})
}
