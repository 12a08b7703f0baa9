package budget_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Plain charges within the longest request before a reset are in flight, those of a
// reservation are not, and a process that ends before the reset leaves word.
func TestInFlightAtAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, start := autoStore(), time.Now()
		open := func() *budget.Budget { return must.Get(budget.New(store, autoSpec(t, nil)))(t) }
		b, other := open(), open()
		take := func(b *budget.Budget, units int64) budget.Receipt {
			return must.Get(b.Charge(context.Background(), budget.Call{Operation: "get", Units: &units}))(t)
		}
		until(start, time.Hour)
		r := take(b, 1)
		<-time.After(4 * time.Second)
		used(t, b, 1, r)
		for day := 1; day < 5; day++ {
			until(start, time.Duration(day)*oneDay+time.Hour)
			used(t, b, 0, budget.Receipt{})
		}
		until(start, 5*oneDay-10*time.Second)
		take(b, 100)
		take(other, 100)
		until(start, 5*oneDay-3*time.Second)
		take(b, 7)
		take(other, 4)
		reserved := must.Get(b.Reserve(context.Background(), budget.Call{Operation: "list"}, time.Minute))(t)
		must.Do(t, other.Close())
		until(start, 5*oneDay+time.Second)
		must.Do(t, reserved.Settle(context.Background(), 10))
		take(b, 1)
		<-time.After(time.Minute)
		take(b, 1)
		synctest.Wait()
		check.Equal(t, parts(t, b).InFlight, 11, "in flight")
		check.Equal(t, parts(t, open()).InFlight, 11, "as others see it")
	})
}

// What is charged within the guard of a reset counts in both periods, so it is not in flight.
func TestInFlightWithinTheGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guarded := func(l *limit.Limit) { l.Window.Guard = (2 * time.Second).Microseconds() }
		b, start := must.Get(budget.New(autoStore(), autoSpec(t, guarded)))(t), time.Now()
		take := func(units int64) budget.Receipt {
			return must.Get(b.Charge(context.Background(), budget.Call{Operation: "get", Units: &units}))(t)
		}
		until(start, time.Hour)
		r := take(1)
		<-time.After(4 * time.Second)
		used(t, b, 1, r)
		for day := 1; day < 5; day++ {
			until(start, time.Duration(day)*oneDay+time.Hour)
			used(t, b, 0, budget.Receipt{})
		}
		for before, units := range map[time.Duration]int64{time.Second: 100, 3 * time.Second: 30, 5 * time.Second: 1000} {
			time.AfterFunc(time.Until(start.Add(5*oneDay-before)), func() { take(units) })
		}
		until(start, 5*oneDay+time.Minute)
		take(1)
		synctest.Wait()
		<-time.After(time.Minute)
		take(1)
		synctest.Wait()
		check.Equal(t, parts(t, b).InFlight, 30, "in flight")
	})
}

// Where all hosts' clocks are off the store's, what the busiest hour charges in the difference
// is kept back. One right clock is enough to tell that the store's is right.
func TestClocksOff(t *testing.T) {
	for _, right := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store, start := autoStore(), time.Now()
			off := func(by time.Duration) *budget.Budget {
				return must.Get(budget.New(store, autoSpec(t, nil), budget.WithNow(func() time.Time { return time.Now().Add(by) })))(t)
			}
			hosts := []*budget.Budget{off(-2 * time.Second), off(3 * time.Second)}
			if right {
				hosts = append(hosts, off(0))
			}
			for day := range 6 {
				until(start, time.Duration(day)*oneDay+time.Hour)
				for _, b := range hosts {
					_ = parts(t, b)
					synctest.Wait()
					used(t, b, 0, budget.Receipt{})
					<-time.After(2 * time.Minute)
					_ = parts(t, b) // shares what it saw
					synctest.Wait()
				}
				if day == 4 {
					units := int64(9_000)
					must.Get(hosts[0].Charge(context.Background(), budget.Call{Operation: "get", Units: &units}))(t)
				}
			}
			for i, b := range hosts {
				_ = parts(t, b)
				synctest.Wait()
				check.Equal(t, parts(t, b).Clock, map[bool]int64{true: 0, false: 5}[right], "9,000 an hour in 2 s, by host", i)
			}
		})
	}
}

// A report that the store does not take into account is no evidence: of a past day, or past its
// reset.
func TestOldReportsAreNoEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, start := must.Get(budget.New(autoStore(), autoSpec(t, nil)))(t), time.Now()
		until(start, time.Hour)
		first, none := must.Get(b.Charge(context.Background(), budget.Call{Operation: "get"}))(t), int64(0)
		for day := range 8 {
			until(start, time.Duration(day)*oneDay+2*time.Hour)
			for _, r := range []budget.UpstreamReport{
				{Limit: "day", Used: &none, Receipt: first},
				{Limit: "day", Used: &none, Reset: budget.Until{At: start.Add(time.Duration(day) * oneDay)}},
			} {
				if day > 0 || r.Receipt.ID == "" { // on the first day, its receipt is new
					must.Get(b.Report(context.Background(), r))(t)
				}
			}
		}
		check.Equal(t, parts(t, b).Periods, 0, "periods")
	})
}
