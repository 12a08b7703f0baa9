package page

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/must"
)

func points(list []point) string {
	var words []string
	for _, p := range list {
		words = append(words, fmt.Sprintf("%s %d", p.at.UTC().Format("02T15:04"), p.used))
	}
	return strings.Join(words, ", ")
}

// What was used at each hour is what the window counted then: of what the limit covers, in what it
// counts, and from a reset on anew.
func TestUseByHour(t *testing.T) {
	now := time.Date(2026, 11, 27, 3, 30, 0, 0, time.UTC)
	hour := func(back int, operation string, units, calls int64) look.HourSpent {
		return look.HourSpent{Begin: now.Truncate(time.Hour).Add(-time.Duration(back) * time.Hour), Operation: operation, Units: units, Calls: calls}
	}
	spent := look.Spending{At: now, Since: now.Truncate(time.Hour).Add(-9 * time.Hour), Hours: []look.HourSpent{
		hour(9, "get", 100, 10), hour(4, "get", 20, 2), hour(4, "put", 7, 7), hour(3, "get", 5, 1), hour(1, "drift/l", 3, 0),
	}}
	two := limit.Limit{Name: "l", Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(2 * time.Hour)}
	day := two
	day.Window = limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t))
	gets := day
	gets.Operations = []string{"get"}
	calls := day
	calls.Counts = limit.CountCalls
	for _, test := range []struct {
		limit limit.Limit
		want  string
	}{
		{two, "27T00:00 27, 27T01:00 32, 27T02:00 5, 27T03:00 3, 27T03:30 8"},
		{day, "27T00:00 127, 27T00:00 0, 27T01:00 5, 27T02:00 5, 27T03:00 8, 27T03:30 8"},
		{gets, "27T00:00 120, 27T00:00 0, 27T01:00 5, 27T02:00 5, 27T03:00 8, 27T03:30 8"},
		{calls, "27T00:00 19, 27T00:00 0, 27T01:00 1, 27T02:00 1, 27T03:00 4, 27T03:30 8"},
	} {
		got := useByHour(budget.LimitStatus{Limit: test.limit, Used: 8}, spent, now.Add(-4*time.Hour), now)
		check.Equal(t, points(got), test.want, test.limit.Window.Kind, test.limit.Operations, test.limit.Counts)
	}
	spent.Since = now.Truncate(time.Hour).Add(-time.Hour)
	got := useByHour(budget.LimitStatus{Limit: two, Used: 8}, spent, now.Add(-4*time.Hour), now)
	check.Equal(t, points(got), "27T02:00 5, 27T03:00 3, 27T03:30 8", "where the history begins later")
}

// However long the window and whatever was charged when, each hour's use is the sum of the hours
// that the window had then.
func TestUseByHourIsASum(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 11, 27, 3, 30, 0, 0, time.UTC)
	zone := must.Get(limit.NewCalendar(limit.Day, "Asia/Kathmandu", 0))(t) // whose days begin amid an hour
	for _, window := range []limit.Window{limit.RollingWindow(2 * time.Hour), limit.RollingWindow(150 * time.Minute), limit.RollingWindow(90 * 24 * time.Hour), limit.CalendarWindow(zone)} {
		spent := look.Spending{At: now}
		for range 200 {
			begin := now.Truncate(time.Hour).Add(-time.Duration(random.IntN(200*24)) * time.Hour)
			spent.Hours = append(spent.Hours, look.HourSpent{Begin: begin, Operation: "get", Units: random.Int64N(100) - 20})
		}
		got := useByHour(budget.LimitStatus{Limit: limit.Limit{Counts: limit.CountUnits, Window: window}, Used: 8}, spent, now.Add(-100*24*time.Hour), now)
		must.Equal(t, len(got) > 100*24, true, window.Kind)
		for i, p := range got[:len(got)-1] {
			if i > 0 && p.at.Equal(got[i-1].at) {
				check.Equal(t, p.used, 0, "at a reset")
				continue
			}
			since := p.at.Add(-time.Duration(window.Length) * time.Microsecond)
			if window.Kind == limit.CalendarKind {
				start, _ := window.Calendar.Period(p.at.UnixMicro() - 1)
				since = time.UnixMicro(start)
			}
			want := int64(0)
			for _, h := range spent.Hours {
				if h.Begin.Add(time.Hour).After(since) && h.Begin.Before(p.at) {
					want += h.Units
				}
			}
			must.Equal(t, p.used, want, window.Kind, window.Length, p.at)
		}
	}
}

// Drawing a long window takes about as long for each hour as drawing a short one.
func BenchmarkUseByHour(b *testing.B) {
	now := time.Date(2026, 11, 27, 3, 30, 0, 0, time.UTC)
	for _, days := range []int{1, 90, 365} {
		length := time.Duration(days) * 24 * time.Hour
		spent := look.Spending{At: now}
		for back := range 24 * days {
			spent.Hours = append(spent.Hours, look.HourSpent{Begin: now.Truncate(time.Hour).Add(-time.Duration(back) * time.Hour), Operation: "get", Units: 1})
		}
		l := budget.LimitStatus{Limit: limit.Limit{Counts: limit.CountUnits, Window: limit.RollingWindow(length)}}
		b.Run(fmt.Sprintf("%d-days", days), func(b *testing.B) {
			for b.Loop() {
				useByHour(l, spent, now.Add(-length), now)
			}
		})
	}
}

// A chart has the past, the plan, the limit, what is kept and the resets in their places.
func TestDraw(t *testing.T) {
	from := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	at := func(hours int) time.Time { return from.Add(time.Duration(hours) * time.Hour) }
	p := plot{limit: 100, kept: 25, from: from, until: at(20), now: at(10), past: []point{{at(0), 0}, {at(10), 50}}, ahead: []point{{at(10), 50}, {at(15), 100}, {at(15), 0}}, resets: []time.Time{at(15), at(25)}}
	c := p.draw()
	check.Equal(t, c.Past, "M0.0 1000.0L500.0 500.0")
	check.Equal(t, c.Area, "M0.0 1000.0L500.0 500.0L500.0 1000L0.0 1000Z")
	check.Equal(t, c.Ahead, "M500.0 500.0L750.0 0.0L750.0 1000.0")
	check.Equal(t, c.Now, "50.00%")
	check.Equal(t, fmt.Sprint(c.LimitY, c.KeptY, c.KeptH), fmt.Sprint(plotTop, plotTop, plotHeight/4))
	check.Equal(t, fmt.Sprint(c.Resets), "[{75.00% 0 reset 2026-11-27 15:00:00Z}]", "resets beyond the end are left out")
	check.Equal(t, fmt.Sprint(c.Times), "[{15.00% 0 03:00} {30.00% 0 06:00} {45.00% 0 09:00} {60.00% 0 12:00} {75.00% 0 15:00} {90.00% 0 18:00}]")
	check.Equal(t, c.Legend, legend{true, true, true, true})
	p.past[1].used, p.kept, p.limit = 200, 0, 1 // far above the limit
	c = p.draw()
	check.Equal(t, c.Past, "M0.0 1000.0L500.0 0.0")
	check.Equal(t, c.LimitY, plotTop+131)
	check.Equal(t, len(c.Levels), 1, "half of one unit is none")
}

// Buckets, open reservations and windows shorter than two hours are not drawn.
func TestCharted(t *testing.T) {
	refill := must.Get(limit.NewRefill(1, time.Second))(t)
	for _, test := range []struct {
		window limit.Window
		want   bool
	}{
		{limit.RollingWindow(time.Hour), false}, {limit.RollingWindow(2 * time.Hour), true}, {limit.BucketWindow(refill), false}, {limit.ConcurrentWindow(), false},
		{limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)), true}, {limit.CalendarWindow(must.Get(limit.NewCalendar("hour", "UTC", 0))(t)), false},
	} {
		check.Equal(t, charted(budget.LimitStatus{Limit: limit.Limit{Window: test.window}}), test.want, test.window.Kind)
	}
}

// A bar is the limit, divided.
func TestBar(t *testing.T) {
	l := budget.LimitStatus{
		Limit: limit.Limit{Name: "l", Limit: 200, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}, Used: 50, Remaining: 130,
		Held: []budget.Held{{Job: "a", Amount: 20}}, Shares: []budget.ShareStatus{{Kept: 60}},
	}
	row := newLimitRow(l, budget.Status{})
	check.Equal(t, row.Bar, bar{Used: "25.00%", HeldAt: "25.00%", Held: "10.00%", KeptAt: "70.00%", Kept: "30.00%", Level: levelGood, Label: "50 of 200 units used, 20 held, 60 kept for shares"})
	l.Used, l.Remaining = 300, 0
	row = newLimitRow(l, budget.Status{})
	check.Equal(t, row.Bar, bar{Used: "100.00%", HeldAt: "100.00%", Held: "0.00%", KeptAt: "100.00%", Kept: "0.00%", Level: levelOut, Label: "300 of 200 units used, 20 held"})
}

// A plan's peak between two samples is on its curve.
func TestPeakBetweenSamples(t *testing.T) {
	from := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	peak := from.Add(10 * time.Minute)
	c := plot{limit: 100, from: from, until: from.Add(time.Hour), now: from}
	c.foresee(&answer.PlanLimit{Limit: 100, Least: 20, LeastAt: answer.Instant(peak)})
	check.Equal(t, len(c.ahead), 1, "points")
	check.Equal(t, c.ahead[0], point{peak, 80}, "the peak")
}
