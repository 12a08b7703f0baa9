package budget_test

import (
	"context"
	"errors"
	"fmt"
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

// noHistory is a store whose history cannot be read.
type noHistory struct{ driver.Store }

func (noHistory) History(context.Context, driver.HistoryQuery) (driver.History, error) {
	return driver.History{}, errors.New("no permission")
}

func ratedSpec(t *testing.T) budget.Spec {
	day := limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t))
	return budget.Spec{
		Name: "up/key1", Costs: map[string]budget.Cost{"list": {Units: 10}, "get": {Units: 1}},
		Limits: []limit.Limit{
			{Name: "day", Quota: 1000, Limit: 1000, Counts: limit.CountUnits, Window: day},
			{Name: "lists", Limit: 100, Counts: limit.CountCalls, Window: limit.RollingWindow(24 * time.Hour), Operations: []string{"list"}},
			{Name: "minutes", Limit: 60, Counts: limit.CountUnits, Window: limit.RollingWindow(10 * time.Minute)},
			{Name: "open", Limit: 9, Counts: limit.CountCalls, Window: limit.ConcurrentWindow()},
		},
	}
}

// ratesOf are the rates in words, limit by limit.
func ratesOf(t *testing.T, b *budget.Budget) (list []string) {
	t.Helper()
	for _, l := range must.Get(b.Rated(t.Context()))(t).Limits {
		text := l.Name + " none"
		if r := l.Rate; r != nil {
			at := func(at time.Time) string {
				if at.IsZero() {
					return "-"
				}
				return at.Format("02 15:04:05")
			}
			text = fmt.Sprintf("%s %v of %d since %s, empty %s, reset %s", l.Name, r.PerHour, r.Charges, at(r.Since), at(r.EmptyAt), at(r.ResetsAt))
		}
		list = append(list, text)
	}
	return list
}

// What is charged is what the rates are made of, as it was settled. What is released, and what
// the upstream reports, is not. A day's rate is that of the last six hours, from a whole hour
// on; that of ten minutes is theirs.
func TestRated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := must.Get(budget.New(memstore.New(func() int64 { return time.Now().UnixMicro() }), ratedSpec(t)))(t)
		charge := func(operation string) {
			t.Helper()
			must.Get(b.Charge(t.Context(), budget.Call{Operation: operation}))(t)
		}
		midnight := time.Now()
		at := func(d time.Duration) { <-time.After(time.Until(midnight.Add(d))) }
		at(3*time.Hour + 59*time.Minute)
		charge("list") // too long ago at ten
		at(9*time.Hour + 55*time.Minute)
		charge("list")
		reserved := must.Get(b.Reserve(t.Context(), budget.Call{Operation: "get"}, time.Minute))(t)
		must.Do(t, reserved.Settle(t.Context(), 20))
		released := must.Get(b.Reserve(t.Context(), budget.Call{Operation: "list"}, time.Minute))(t)
		must.Do(t, released.Release(t.Context()))
		used := int64(500)
		must.Get(b.Report(t.Context(), budget.UpstreamReport{Limit: "day", Used: &used}))(t)
		at(10 * time.Hour)
		check.EqualSlices(t, ratesOf(t, b), []string{"day none", "lists none", "minutes none", "open none"}, "after two charges")
		at(10*time.Hour + time.Microsecond)
		charge("list")
		check.EqualSlices(t, ratesOf(t, b), []string{
			// 40 units in 6 hours; 490 are left.
			"day 6.667 of 3 since 01 04:00:00, empty -, reset 02 00:00:00",
			"lists none",
			// 40 units in 10 minutes; the 20 that are left last until 30 return.
			"minutes 240 of 3 since 01 09:50:00, empty -, reset -",
			"open none",
		}, "after the third")
		charge("list")
		check.EqualSlices(t, ratesOf(t, b), []string{
			"day 8.333 of 4 since 01 04:00:00, empty -, reset 02 00:00:00",
			"lists 0.5 of 3 since 01 04:00:00, empty -, reset -",
			"minutes 300 of 4 since 01 09:50:00, empty 01 10:02:00, reset -",
			"open none",
		}, "after the fourth")
		at(10*time.Hour + 15*time.Minute)
		check.EqualSlices(t, ratesOf(t, b)[2:3], []string{"minutes none"}, "when the ten minutes are over")
	})
}

// A history that cannot be read leaves the status unchanged.
func TestRatedWithoutHistory(t *testing.T) {
	b := must.Get(budget.New(noHistory{memstore.New(clock)}, ratedSpec(t)))(t)
	for range 3 {
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "list"}))(t)
	}
	check.EqualSlices(t, ratesOf(t, b), []string{"day none", "lists none", "minutes none", "open none"}, "rates")
	check.Equal(t, must.Get(b.Rated(t.Context()))(t).Limits[0].Used, 30, "used")
}
