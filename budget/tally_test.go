package budget_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// tallySpec has a limit of 10 units a minute, one of 2 calls of each other operation, and one
// that only observes.
func tallySpec() budget.Spec {
	minute := limit.RollingWindow(time.Minute)
	return budget.Spec{
		Name: "up/key1", Costs: map[string]budget.Cost{"get": {Units: 1}, "list": {Units: 1}},
		Limits: []limit.Limit{
			{Name: "minute", Limit: 10, Quota: 10, Counts: limit.CountUnits, Window: minute},
			{Name: "each", Limit: 2, Quota: 2, Counts: limit.CountCalls, Window: minute, Operations: []string{"list"}, PerOperation: true},
			{Name: "seen", Limit: 1, Quota: 1, Counts: limit.CountUnits, Window: minute, Observe: true},
		},
	}
}

// refusalsOf are the counts in a store's history, by limit, operation and job.
func refusalsOf(t *testing.T, store driver.Store) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, row := range must.Get(store.History(t.Context(), driver.HistoryQuery{
		Budget: "up/key1", Now: time.Now().UnixMicro(), Operations: true, Jobs: true, Refusals: true, Limits: true,
	}))(t).Rows {
		if row.Refused != 0 || row.Waited != 0 {
			found[fmt.Sprintf("%s %s %s", row.Limit, row.Operation, row.Job)] = fmt.Sprint(row.Refused, row.Waited)
		}
	}
	return found
}

func wantTally(t *testing.T, store driver.Store, want map[string]string) {
	t.Helper()
	check.Equal(t, fmt.Sprint(refusalsOf(t, store)), fmt.Sprint(want), "refused and waited")
}

// get is a call of some units for a job.
func get(units int64, job string) budget.Call {
	return budget.Call{Operation: "get", Units: &units, Labels: budget.Labels{Job: job}}
}

// Refusals of callers are in the history once the budget is closed, once for each call,
// by the limit that the configuration names. What only looks, fails otherwise or is let through
// is not.
func TestRefusalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		b := must.Get(budget.New(store, tallySpec()))(t)
		ctx := t.Context()
		must.Get(b.Charge(ctx, budget.Call{Operation: "list"}))(t)
		must.Get(b.Charge(ctx, budget.Call{Operation: "list"}))(t)
		must.Is(t, check.Err(b.Charge(ctx, budget.Call{Operation: "list"})), budget.ErrExhausted)
		must.Get(b.Charge(ctx, get(8, "nightly")))(t)
		must.Is(t, check.Err(b.Charge(ctx, get(1, "nightly"))), budget.ErrExhausted)
		must.Is(t, check.Err(b.Reserve(ctx, get(1, "nightly"), time.Second)), budget.ErrExhausted)
		patient := get(1, "")
		patient.MaxWait = time.Second
		must.Is(t, check.Err(b.Wait(ctx, patient)), budget.ErrExhausted)
		must.Is(t, check.Err(b.WaitReserve(ctx, patient, time.Second)), budget.ErrExhausted)

		must.Is(t, check.Err(b.Would(ctx, get(1, ""), 0)), budget.ErrExhausted)
		must.Is(t, check.Err(b.Charge(ctx, get(11, ""))), budget.ErrNeverFits)
		must.Is(t, check.Err(b.Charge(ctx, budget.Call{Operation: "unknown"})), budget.ErrUnknownOperation)
		check.Equal(t, len(refusalsOf(t, store)), 0, "rows before the process writes them")
		must.Do(t, b.Close())
		want := map[string]string{"each list ": "1 0", "minute get nightly": "2 0", "minute get ": "2 0"}
		wantTally(t, store, want)

		spec := tallySpec()
		spec.Observe = true
		through := must.Get(budget.New(store, spec))(t)
		must.Get(through.Charge(ctx, get(1, "")))(t)
		must.Do(t, through.Close())
		wantTally(t, store, want)

		again := must.Get(budget.New(store, tallySpec()))(t) // another process adds its own
		must.Is(t, check.Err(again.Charge(ctx, get(1, "nightly"))), budget.ErrExhausted)
		must.Get(again.Lock(ctx, budget.LockOrder{Until: budget.Until{At: time.Now().Add(time.Hour)}}))(t)
		must.Is(t, check.Err(again.Charge(ctx, get(1, "nightly"))), budget.ErrLocked)
		must.Do(t, again.Close())
		want["minute get nightly"], want[" get nightly"] = "3 0", "1 0"
		wantTally(t, store, want)
	})
}

// A call that waits and is granted is no refusal, though the store refused it several times;
// those that wait behind it wait for the same limit. One that is granted at once has not waited.
func TestWaitsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		b := must.Get(budget.New(store, tallySpec()))(t)
		must.Get(b.Wait(t.Context(), get(10, "nightly")))(t)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { check.NoError(t, check.Err(b.Wait(t.Context(), get(1, "nightly")))) })
		}
		all.Wait()
		must.Get(b.Wait(t.Context(), get(1, "nightly")))(t)
		must.Get(b.WaitReserve(t.Context(), get(7, "feeds"), time.Second))(t) // after a minute
		must.Do(t, b.Close())
		wantTally(t, store, map[string]string{"minute get nightly": "0 3", "minute get feeds": "0 1"})
	})
}

// A call that its caller makes again after a wait in line counts as one that waited, or, if it
// is refused in the end, as refused once.
func TestRetriesAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		b := must.Get(budget.New(store, tallySpec()))(t)
		must.Get(b.Charge(t.Context(), get(10, "")))(t)
		retry := func(job string, tries int) error {
			line := b.Line()
			defer line.Leave(false)
			for {
				_, err := b.Charge(t.Context(), get(10, job))
				var refused *budget.RefusedError
				if tries--; err == nil || tries == 0 || !errors.As(err, &refused) {
					line.Leave(err == nil)
					return err
				}
				must.Do(t, line.Wait(t.Context(), refused, refused.RetryAfter))
			}
		}
		must.Do(t, retry("granted", 2))
		must.Is(t, retry("refused", 1), budget.ErrExhausted)
		must.Do(t, b.Close())
		wantTally(t, store, map[string]string{"minute get granted": "0 1", "minute get refused": "1 0"})
	})
}

// uncounting is a store that does not count refusals for some time.
type uncounting struct {
	driver.Store
	hangs bool

	mu    sync.Mutex
	err   error // nil: it counts
	asked int
}

func (u *uncounting) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err = err
}

func (u *uncounting) wantAsked(t *testing.T, want int, what string) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	must.Equal(t, u.asked, want, what)
}

func (u *uncounting) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	u.mu.Lock()
	u.asked++
	err := u.err
	u.mu.Unlock()
	if u.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return u.Store.Change(ctx, change)
}

// A process that goes on writes its refusals every ten seconds. While the store fails they wait,
// in bounded memory, and a charge is neither slower nor refused otherwise.
func TestRefusalsAreWrittenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &uncounting{Store: memstore.New(nil)}
		b := must.Get(budget.New(store, tallySpec()))(t)
		must.Get(b.Charge(t.Context(), get(10, "")))(t)
		refuse := func(job string) {
			t.Helper()
			began := time.Now()
			must.Is(t, check.Err(b.Charge(t.Context(), get(1, job))), budget.ErrExhausted)
			must.Equal(t, time.Since(began), 0, "the refusal took")
		}
		refuse("nightly")
		refuse("nightly")
		time.Sleep(10*time.Second - 1)
		store.wantAsked(t, 0, "writes before ten seconds")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		store.wantAsked(t, 1, "writes")
		wantTally(t, store, map[string]string{"minute get nightly": "2 0"})
		time.Sleep(time.Minute)
		synctest.Wait()
		store.wantAsked(t, 1, "writes when nothing was refused")

		store.fail(fmt.Errorf("gone: %w", budget.ErrUnavailable))
		must.Get(b.Charge(t.Context(), get(10, "")))(t)
		for i := range 3000 {
			refuse(fmt.Sprint("job", i))
		}
		time.Sleep(25 * time.Second)
		synctest.Wait()
		store.wantAsked(t, 3, "one try every ten seconds")
		store.fail(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		found := refusalsOf(t, store)
		check.Equal(t, len(found), driver.MaxSeries-1, "rows: the charges have the other one, and the limit one beyond them")
		check.Equal(t, found["minute  "], "1979 0", "beyond what waits or what a day keeps apart, for the limit alone")
		must.Do(t, b.Close())
	})
}

// A store that hangs holds Close no longer than a decision.
func TestRefusalsDoNotHoldClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &uncounting{Store: memstore.New(nil), hangs: true}
		spec := tallySpec()
		spec.Timeout = 3 * time.Second
		b := must.Get(budget.New(store, spec))(t)
		must.Get(b.Charge(t.Context(), get(10, "")))(t)
		must.Is(t, check.Err(b.Charge(t.Context(), get(1, ""))), budget.ErrExhausted)
		began := time.Now()
		must.Do(t, b.Close())
		must.Equal(t, time.Since(began), spec.Timeout, "Close took")
	})
}

// History has refusals beside what was charged: by limit only them, of one job only its own. Rated
// says whose were most in the last day. Neither the rates nor the charges change by them.
func TestHistoryOfRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		b := must.Get(budget.New(store, tallySpec()))(t)
		must.Get(b.Charge(t.Context(), get(10, "nightly")))(t)
		quiet := must.Get(b.Rated(t.Context()))(t)
		check.Equal(t, quiet.Denied, budget.Denied{Since: quiet.Denied.Since}, "denied before any refusal")
		count := func(ago time.Duration, limit, job string, refused, waited int64) {
			must.Get(driver.Apply(t.Context(), store, driver.Refusals{Budget: "up/key1", Now: time.Now().UnixMicro(), Counts: []driver.RefusalCount{
				{Hour: driver.HourOf(time.Now().Add(-ago).UnixMicro()), Limit: limit, Operation: "get", Job: job, Refused: refused, Waited: waited},
			}}))(t)
		}
		count(0, "minute", "nightly", 5, 1)
		count(time.Hour, "minute", "nightly", 4, 0)
		count(0, "", "feeds", 8, 0)
		count(30*time.Hour, "minute", "feeds", 100, 0)
		rows := func(h budget.History, err error) string {
			t.Helper()
			must.Do(t, err)
			return fmt.Sprint(h.Rows, h.Total)
		}
		day := 24 * time.Hour
		check.Equal(t, rows(b.History(t.Context(), budget.ByLimit, day, time.UTC)), "[{minute 0 0 9 1} { 0 0 8 0}] { 0 0 17 1}")
		check.Equal(t, rows(b.History(t.Context(), budget.ByJob, day, time.UTC)), "[{nightly 10 1 9 1} {feeds 0 0 8 0}] { 10 1 17 1}")
		check.Equal(t, rows(b.History(t.Context(), budget.ByOperation, 3*day, time.UTC)), "[{get 10 1 117 1}] { 10 1 117 1}")
		check.Equal(t, rows(b.JobHistory(t.Context(), "nightly", budget.ByLimit, day, time.UTC)), "[{minute 0 0 9 1}] { 0 0 9 1}")
		noisy := must.Get(b.Rated(t.Context()))(t)
		since := time.UnixMicro(driver.HourOf(time.Now().Add(-day).UnixMicro())).UTC()
		check.Equal(t, noisy.Denied, budget.Denied{Since: since, Refused: 17, Waited: 1, Job: "nightly", Limit: "minute", Most: 9})
		check.Equal(t, fmt.Sprintf("%+v", noisy.Limits), fmt.Sprintf("%+v", quiet.Limits), "the limits and their rates")
	})
}
