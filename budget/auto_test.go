package budget_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/headroom"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// autoSpec is a budget of one day, UTC, of 10,000 units, of which at most 500 are kept back.
func autoSpec(t *testing.T, change func(*limit.Limit)) budget.Spec {
	t.Helper()
	day := limit.Limit{
		Name: "day", Quota: 10_000, Headroom: 500, Auto: 500, Limit: 9_500, Counts: limit.CountUnits,
		Window: limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)),
	}
	if change != nil {
		change(&day)
	}
	return budget.Spec{Name: "up/key1", Costs: map[string]budget.Cost{"list": {Units: 10}, "get": {Units: 1}}, Limits: []limit.Limit{day}}
}

// autoStore is a store by the time of the bubble.
func autoStore() *memstore.Store {
	return memstore.New(func() int64 { return time.Now().UnixMicro() })
}

// used reports what the upstream counts.
func used(t *testing.T, b *budget.Budget, n int64, receipt budget.Receipt) budget.Drift {
	t.Helper()
	return must.Get(b.Report(context.Background(), budget.UpstreamReport{Limit: "day", Used: &n, Receipt: receipt}))(t)
}

// parts is what the headroom of the only limit is made of.
func parts(t *testing.T, b *budget.Budget) headroom.Parts {
	t.Helper()
	l := must.Get(b.Status(context.Background()))(t).Limits[0]
	check.Equal(t, l.Headroom, l.Parts.Units(), "headroom in status")
	check.Equal(t, l.Limit.Limit, l.Quota-l.Headroom, "limit in status")
	return *l.Parts
}

// until sleeps until so long after the start of the bubble, which is a midnight.
func until(start time.Time, after time.Duration) { <-time.After(time.Until(start.Add(after))) }

const oneDay = 24 * time.Hour

// Two hosts and a stranger, who spends up to 1 % of the quota a day from the first day on,
// spend days from one key. The upstream, which reports after each call what it counts, never
// rejects a call, and from the fifth day on at most 1.5 % of what the stranger left is not
// spent.
func TestAutomaticHeadroom(t *testing.T) {
	luck := rand.New(rand.NewPCG(effort.Seed(t), 1))
	synctest.Test(t, func(t *testing.T) {
		store, start := autoStore(), time.Now()
		hosts := []*budget.Budget{must.Get(budget.New(store, autoSpec(t, nil)))(t), must.Get(budget.New(store, autoSpec(t, nil)))(t)}
		days := effort.Of(8, 15, 40)
		for day := range days {
			var ours, theirs int64
			stranger := luck.Int64N(101) // what is left of it
			for minute := luck.IntN(120); ; minute += luck.IntN(8) {
				at := time.Duration(day)*oneDay + time.Duration(minute)*time.Minute
				if at >= time.Duration(day+1)*oneDay {
					break
				}
				until(start, at)
				if n := min(stranger, luck.Int64N(4)); luck.IntN(8) == 0 && ours+theirs+n <= 10_000 {
					stranger, theirs = stranger-n, theirs+n
				}
				operation, units := "list", int64(10)
				if luck.IntN(5) == 0 {
					operation, units = "get", 1
				}
				if minute > 300 { // then whatever fits
					units *= 5
				}
				b := hosts[luck.IntN(2)]
				r, err := b.Reserve(context.Background(), budget.Call{Operation: operation, Units: &units}, time.Minute)
				if errors.Is(err, budget.ErrExhausted) {
					continue
				}
				must.Do(t, err)
				if ours += units; ours+theirs > 10_000 {
					t.Fatalf("day %d: rejected at %d of ours and %d of the stranger's; headroom: %+v", day+1, ours, theirs, parts(t, b))
				}
				<-time.After(time.Duration(luck.IntN(3000)) * time.Millisecond)
				must.Do(t, r.Settle(context.Background(), units))
				used(t, b, ours+theirs, r.Receipt)
			}
			if least := 985 * (10_000 - theirs) / 1000; day >= 4 && ours < least {
				t.Errorf("day %d: spent %d, want %d at least; the stranger %d; headroom: %+v", day+1, ours, least, theirs, parts(t, hosts[0]))
			}
		}
		until(start, time.Duration(days)*oneDay+time.Hour)
		one, other := parts(t, hosts[0]), parts(t, hosts[1])
		check.Equal(t, one, other, "headroom of two hosts")
		check.Equal(t, one.Known, true, "known")
	})
}

// Nothing is lowered before three full days in which the upstream reported. Drift that a
// report of this process finds raises the headroom before the report returns; another
// process follows within a minute.
func TestHeadroomIsRaisedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, start := autoStore(), time.Now()
		b := must.Get(budget.New(store, autoSpec(t, nil)))(t)
		other := must.Get(budget.New(store, autoSpec(t, nil)))(t)
		check.Equal(t, parts(t, b), headroom.Parts{Least: 20, Most: 500}, "a new ledger")
		for day := range 5 {
			until(start, time.Duration(day)*oneDay+time.Hour)
			used(t, b, 0, budget.Receipt{})
			check.Equal(t, parts(t, b).Units(), map[bool]int64{true: 20, false: 500}[day == 4], "on day", day+1)
		}
		check.Equal(t, parts(t, other).Units(), 20, "the other's, read afresh")

		used(t, b, 30, budget.Receipt{})
		check.Equal(t, parts(t, b), headroom.Parts{Drift: 30, Least: 20, Most: 500, Periods: 3, Known: true}, "at once")
		used(t, b, 45, budget.Receipt{})
		check.Equal(t, parts(t, b).Units(), 45, "more in the same hour")
		check.Equal(t, parts(t, other).Units(), 20, "the other's, at first")
		<-time.After(time.Minute)
		_ = parts(t, other)
		synctest.Wait()
		check.Equal(t, parts(t, other).Units(), 45, "the other's, a minute later")
		check.Equal(t, parts(t, b).Units(), 45, "as the store has it")

		fresh := must.Get(budget.New(store, autoSpec(t, nil)))(t)
		check.Equal(t, parts(t, fresh), parts(t, b), "of a process that has just begun")
		refused := fresh.Spec().Limits[0]
		check.Equal(t, refused.Headroom, 500, "the configuration does not change")
	})
}

// A process that made no call for long decides its first by what others found meanwhile, and
// knows that periods have passed.
func TestHeadroomAfterIdling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, start := autoStore(), time.Now()
		b := must.Get(budget.New(store, autoSpec(t, nil)))(t)
		idle := must.Get(budget.New(store, autoSpec(t, nil)))(t)
		check.Equal(t, parts(t, idle).Units(), 500, "headroom of a new ledger")
		for day := range 5 {
			until(start, time.Duration(day)*oneDay+time.Hour)
			used(t, b, 0, budget.Receipt{})
		}
		check.Equal(t, parts(t, idle).Units(), 20, "headroom once periods have passed")
		<-time.After(time.Hour)
		used(t, b, 80, budget.Receipt{})
		charge := func(units int64) error {
			_, err := idle.Charge(context.Background(), budget.Call{Operation: "get", Units: &units})
			return err
		}
		must.Is(t, charge(9_841), budget.ErrExhausted)
		must.Do(t, charge(9_840))
	})
}

// The present headroom decides.
func TestAutomaticHeadroomDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, start := autoStore(), time.Now()
		b := must.Get(budget.New(store, autoSpec(t, nil)))(t)
		take := func(units int64) error {
			_, err := b.Charge(context.Background(), budget.Call{Operation: "get", Units: &units})
			return err
		}
		must.Do(t, take(9_500))
		must.Is(t, take(1), budget.ErrExhausted)
		for day := range 4 {
			until(start, time.Duration(day)*oneDay+time.Hour)
			used(t, b, 0, budget.Receipt{})
		}
		until(start, 4*oneDay+time.Hour)
		used(t, b, 0, budget.Receipt{})
		must.Do(t, take(9_980))
		must.Is(t, take(1), budget.ErrExhausted)
		check.Equal(t, b.Limits("get")[0].Limit, 9_980, "limit for the operation")
		why := must.Get(b.Why(context.Background(), budget.Call{Operation: "get"}))(t)
		check.Equal(t, why.Limits[0].Limit.Limit, 9_980, "limit in why")
		check.Equal(t, why.Limits[0].Parts.Units(), 20, "headroom in why")
	})
}

// faulty is a store whose history, or whose documents, cannot be read.
type faulty struct {
	*memstore.Store
	mu             sync.Mutex
	history, notes error
	read           int
}

func (f *faulty) fail(history, notes error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history, f.notes = history, notes
}

func (f *faulty) History(ctx context.Context, q driver.HistoryQuery) (driver.History, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read++
	if f.history != nil {
		return driver.History{}, f.history
	}
	return f.Store.History(ctx, q)
}

func (f *faulty) Job(ctx context.Context, name string) (driver.JobDocument, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.notes != nil {
		return driver.JobDocument{}, f.notes
	}
	return f.Store.Job(ctx, name)
}

// evidence has the upstream report on four days.
func evidence(t *testing.T, start time.Time, b *budget.Budget) {
	t.Helper()
	for day := range 5 {
		until(start, time.Duration(day)*oneDay+time.Hour)
		used(t, b, 0, budget.Receipt{})
	}
}

// Samples that cannot be read leave the headroom unchanged, and at its maximum at the start.
// Calls are decided all the same.
func TestUnreadableEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, start := &faulty{Store: autoStore()}, time.Now()
		b := must.Get(budget.New(store, autoSpec(t, nil)))(t)
		evidence(t, start, b)
		check.Equal(t, parts(t, b).Units(), 20, "known")
		for _, broken := range [][2]error{{driver.ErrUnavailable, nil}, {nil, driver.ErrUnavailable}} {
			store.fail(broken[0], broken[1])
			<-time.After(time.Hour)
			must.Get(b.Charge(context.Background(), budget.Call{Operation: "get"}))(t)
			synctest.Wait()
			check.Equal(t, parts(t, b).Units(), 20, "while unreadable", broken)
			fresh := must.Get(budget.New(store, autoSpec(t, nil)))(t)
			must.Get(fresh.Charge(context.Background(), budget.Call{Operation: "get"}))(t)
			check.Equal(t, parts(t, fresh).Units(), 500, "at the start", broken)
			store.fail(nil, nil)
			<-time.After(5*time.Second - 1)
			_ = parts(t, fresh)
			synctest.Wait()
			check.Equal(t, parts(t, fresh).Units(), 500, "before it is tried again")
			<-time.After(1)
			_ = parts(t, fresh)
			synctest.Wait()
			check.Equal(t, parts(t, fresh).Units(), 20, "readable again")
		}
	})
}

// The evidence is read at most once a minute, however many calls there are.
func TestEvidenceIsReadSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, start := &faulty{Store: autoStore()}, time.Now()
		b := must.Get(budget.New(store, autoSpec(t, nil)))(t)
		evidence(t, start, b)
		synctest.Wait()
		before := store.read
		for range 300 { // five minutes
			<-time.After(time.Second)
			must.Get(b.Charge(context.Background(), budget.Call{Operation: "get"}))(t)
			synctest.Wait()
		}
		check.Equal(t, store.read-before, 5, "reads")
		must.Do(t, b.Close())
		<-time.After(time.Hour)
		must.Get(b.Charge(context.Background(), budget.Call{Operation: "get"}))(t)
		synctest.Wait()
		check.Equal(t, store.read-before, 5, "reads once it is closed")
	})
}

// A headroom above the maximum is logged once.
func TestCappedHeadroomIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		b := must.Get(budget.New(autoStore(), autoSpec(t, nil), budget.WithLog(slog.New(slog.NewTextHandler(&logged, nil)))))(t)
		evidence(t, time.Now(), b)
		check.Equal(t, logged.String(), "", "logged before")
		used(t, b, 501, budget.Receipt{})
		used(t, b, 510, budget.Receipt{})
		check.Equal(t, parts(t, b).Units(), 500, "headroom")
		check.Contains(t, logged.String(), "budget=up/key1 limit=day max=500 drift=501 in_flight=0 clock=0 outage=0")
		check.Equal(t, strings.Count(logged.String(), "\n"), 1, "lines")
	})
}

// A limit for each operation has a headroom for each. One of an operation without a price is
// not followed: the most is kept back.
func TestAutomaticHeadroomPerOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := autoSpec(t, func(l *limit.Limit) { l.PerOperation = true })
		spec.Unknown = budget.Unknown{Allowed: true, Units: 1}
		b, start := must.Get(budget.New(autoStore(), spec))(t), time.Now()
		for day := range 5 {
			until(start, time.Duration(day)*oneDay+time.Hour)
			for _, operation := range []string{"list", "other"} {
				none := int64(0)
				must.Get(b.Report(context.Background(), budget.UpstreamReport{Limit: "day", Operation: operation, Used: &none}))(t)
			}
		}
		for operation, want := range map[string]int64{"list": 9_980, "get": 9_500, "other": 9_500} {
			_, err := b.Charge(context.Background(), budget.Call{Operation: operation, Units: &want})
			check.NoError(t, err, operation)
			_, err = b.Charge(context.Background(), budget.Call{Operation: "get", Units: new(int64)})
			check.NoError(t, err, operation)
			one := int64(1)
			_, err = b.Charge(context.Background(), budget.Call{Operation: operation, Units: &one})
			check.Is(t, err, budget.ErrExhausted, operation)
		}
	})
}

// A waiter is woken when a lower headroom leaves room.
func TestWaitForALowerHeadroom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, start := autoStore(), time.Now()
		b := must.Get(budget.New(store, autoSpec(t, nil)))(t)
		for day := range 4 {
			until(start, time.Duration(day)*oneDay+time.Hour)
			used(t, b, 0, budget.Receipt{})
		}
		until(start, 4*oneDay)
		units := int64(9_500)
		must.Get(b.Charge(context.Background(), budget.Call{Operation: "get", Units: &units}))(t)
		one := int64(10)
		r := must.Get(b.Wait(context.Background(), budget.Call{Operation: "get", Units: &one}))(t)
		if after := r.At.Sub(start.Add(4 * oneDay)); after > 2*time.Minute {
			t.Errorf("charged %s after the headroom could be lowered", after)
		}
	})
}

// A store that keeps no documents needs the option.
func TestNoJobStore(t *testing.T) {
	alone := struct{ driver.Store }{autoStore()}
	_, err := budget.New(alone, autoSpec(t, nil))
	check.Is(t, err, budget.ErrInvalid)
	if err == nil || !strings.Contains(err.Error(), "WithJobStore") {
		t.Errorf("the error gives no advice: %v", err)
	}
	_, err = budget.New(alone, autoSpec(t, nil), budget.WithJobStore(autoStore()))
	check.NoError(t, err)
}

// The first call of a process may wait for units that only the known headroom allows.
func TestAutomaticHeadroomOfTheFirstWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, start := autoStore(), time.Now()
		b := must.Get(budget.New(store, autoSpec(t, nil)))(t)
		for day := range 5 {
			until(start, time.Duration(day)*oneDay+time.Hour)
			used(t, b, 10, must.Get(b.Charge(t.Context(), budget.Call{Operation: "list"}))(t))
		}
		must.Do(t, b.Close())
		until(start, 5*oneDay)
		other, units := must.Get(budget.New(store, autoSpec(t, nil)))(t), int64(9_600)
		defer func() { must.Do(t, other.Close()) }()
		must.Get(other.Wait(t.Context(), budget.Call{Operation: "list", Units: &units, NewID: true}))(t)
	})
}
