package budget_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// driftWorld is a budget of one limit.
func driftWorld(t *testing.T, l limit.Limit) *budget.Budget {
	t.Helper()
	l.Name, l.Quota, l.Limit, l.Counts = "all", 100, 100, limit.CountUnits
	b := must.Get(budget.New(memstore.New(func() int64 { return time.Now().UnixMicro() }), budget.Spec{
		Name: "up/key1", Costs: map[string]budget.Cost{"list": {Units: 1}}, Limits: []limit.Limit{l},
	}))(t)
	return b
}

// Whatever an upstream says, a bucket drains in twice the time of its quota.
func TestReportIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refill := must.Get(limit.NewRefill(1, time.Second))(t)
		b := driftWorld(t, limit.Limit{Window: limit.BucketWindow(refill)})
		for _, n := range []int64{-1 << 63, -1 << 50, -1} {
			for _, r := range []budget.UpstreamReport{{Limit: "all", Remaining: &n}, {Limit: "all", Used: &n}} {
				if _, err := b.Report(t.Context(), r); !errors.Is(err, budget.ErrInvalid) {
					t.Errorf("%d reported: %v, want an error", n, err)
				}
			}
		}
		must.Get(b.Charge(t.Context(), budget.Call{Operation: "list"}))(t)
		for _, n := range []int64{1<<63 - 1, 1 << 50, 101} {
			must.Get(b.Report(context.Background(), budget.UpstreamReport{Limit: "all", Used: &n}))(t)
		}
		if _, err := b.Charge(context.Background(), budget.Call{Operation: "list"}); err == nil {
			t.Fatal("charged, though the upstream says that nothing remains")
		}
		<-time.After(101 * time.Second)
		must.Get(b.Charge(context.Background(), budget.Call{Operation: "list"}))(t)
	})
}

// A report whose reset has passed changes nothing, in a window of any kind; one whose reset
// is less than a microsecond ahead counts.
func TestReportPastItsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)
		for _, window := range []limit.Window{
			limit.RollingWindow(time.Hour), limit.CoarseWindow(time.Hour, time.Minute), limit.CalendarWindow(day),
			limit.BucketWindow(must.Get(limit.NewRefill(1, time.Hour))(t)),
		} {
			<-time.After(49 * time.Hour)
			b, used, left := driftWorld(t, limit.Limit{Window: window}), int64(90), int64(10)
			now := time.Now()
			for _, reset := range []budget.Until{{After: -time.Second}, {After: -1}, {At: now}, {At: now.Add(-time.Second)}, {At: now.Add(-24 * time.Hour)}} {
				for _, r := range []budget.UpstreamReport{{Used: &used}, {Remaining: &left}} {
					r.Limit, r.Reset = "all", reset
					d := must.Get(b.Report(t.Context(), r))(t)
					must.Equal(t, d, budget.Drift{Limit: "all"}, window.Kind, "reset", reset)
				}
			}
			must.Equal(t, *must.Get(b.Status(t.Context()))(t).Remaining, 100, window.Kind)
			d := must.Get(b.Report(t.Context(), budget.UpstreamReport{Limit: "all", Used: &used, Reset: budget.Until{After: 1}}))(t)
			must.Equal(t, d.Added, 90, window.Kind)
		}
	})
}

// A lock of less than a microsecond is one of a microsecond; no lock ends early.
func TestLockIsRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := driftWorld(t, limit.Limit{Window: limit.RollingWindow(time.Hour)})
		now := time.Now().Truncate(time.Microsecond)
		for _, until := range []budget.Until{{After: 1}, {After: 999}, {After: 1000}, {At: now.Add(1)}, {At: now.Add(1000)}} {
			lock := must.Get(b.Lock(t.Context(), budget.LockOrder{Until: until, ByHand: true}))(t)
			must.Equal(t, lock.Until.Sub(now), time.Microsecond, until)
		}
		lock := must.Get(b.Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: 3*time.Second + 1}, ByHand: true}))(t)
		must.Equal(t, lock.Until.Sub(now), 3*time.Second+time.Microsecond)
	})
}

// A lock that was cut says so in its reason, however long that is.
func TestACutLockSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := driftWorld(t, limit.Limit{Window: limit.RollingWindow(time.Hour)})
		const asked = "; the upstream asked for it until 2000-01-04T00:00:00Z"
		for _, why := range []string{"banned: 999", strings.Repeat("w", 150), strings.Repeat("w", 400)} {
			lock := must.Get(b.Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: 72 * time.Hour}, Why: why}))(t)
			check.Equal(t, lock.Why, why[:min(len(why), 200-len(asked))]+asked, "why")
			must.Get(b.Unlock(t.Context(), ""))(t)
			lock = must.Get(b.Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: time.Hour}, Why: why}))(t)
			check.Equal(t, lock.Why, why[:min(len(why), 200)], "why, if it was not cut")
			must.Get(b.Unlock(t.Context(), ""))(t)
		}
	})
}

// An upstream whose clock is behind still tells of the day before when ours has
// begun a new one: its reset says so.
func TestReportOfTheDayBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)
		b := driftWorld(t, limit.Limit{Window: limit.CalendarWindow(day)})
		midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		report := func(reset budget.Until, want int64) {
			t.Helper()
			used := int64(95)
			d := must.Get(b.Report(context.Background(), budget.UpstreamReport{Limit: "all", Used: &used, Reset: reset}))(t)
			must.Equal(t, d.Added, want, "reset", reset)
		}
		<-time.After(time.Until(midnight.Add(time.Second)))
		report(budget.Until{At: midnight.Add(3 * time.Second)}, 0)
		report(budget.Until{After: 2 * time.Second}, 0)
		report(budget.Until{At: time.UnixMicro(-1 << 63)}, 0)
		report(budget.Until{At: time.UnixMicro(1<<63 - 1)}, 95)
		<-time.After(time.Until(midnight.Add(24*time.Hour - time.Second)))
		report(budget.Until{At: midnight.Add(24*time.Hour + 3*time.Second)}, 0)
		<-time.After(time.Second)
		must.Get(b.Charge(context.Background(), budget.Call{Operation: "list"}))(t)
		report(budget.Until{At: midnight.Add(48 * time.Hour)}, 94)
	})
}
