package rate

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// noon is an instant on a whole hour.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixMicro()

func ago(d time.Duration) int64 { return noon - d.Microseconds() }

func of(n int64, w limit.Window) limit.Limit {
	return limit.Limit{Name: "l", Limit: n, Counts: limit.CountUnits, Window: w}
}

func daily(t *testing.T) limit.Window {
	return limit.CalendarWindow(must.Get(limit.NewCalendar("day", "UTC", 0))(t))
}

func bucket(t *testing.T, amount int64, period time.Duration) limit.Window {
	return limit.BucketWindow(must.Get(limit.NewRefill(amount, period))(t))
}

// hours has the amounts of the hours up to noon, the latest last.
func hours(amounts ...int64) (list []Hour) {
	for i, amount := range amounts {
		list = append(list, Hour{noon - int64(len(amounts)-i)*hour, amount})
	}
	return list
}

func TestSpan(t *testing.T) {
	month := limit.CalendarWindow(must.Get(limit.NewCalendar("month", "UTC", 0))(t))
	quarter := limit.CalendarWindow(must.Get(limit.NewCalendar("15m", "UTC", 0))(t))
	for _, test := range []struct {
		window         limit.Window
		span, lookback time.Duration
	}{
		{limit.RollingWindow(5 * time.Minute), 5 * time.Minute, time.Hour},
		{limit.RollingWindow(time.Hour - time.Microsecond), time.Hour - time.Microsecond, time.Hour},
		{limit.RollingWindow(time.Hour), time.Hour, time.Hour},
		{limit.RollingWindow(4 * time.Hour), time.Hour, 4 * time.Hour},
		{limit.RollingWindow(24 * time.Hour), 6 * time.Hour, 24 * time.Hour},
		{limit.RollingWindow(30 * 24 * time.Hour), 24 * time.Hour, 48 * time.Hour},
		{daily(t), 6 * time.Hour, 6 * time.Hour},
		{quarter, 15 * time.Minute, time.Hour},
		{month, 24 * time.Hour, 24 * time.Hour},
		{bucket(t, 50, time.Second), time.Hour, time.Hour},
		{limit.ConcurrentWindow(), 0, 0},
	} {
		check.Equal(t, Span(test.window, noon), test.span.Microseconds(), test.window)
		check.Equal(t, Lookback(test.window, noon), test.lookback.Microseconds(), test.window)
	}
}

func TestOf(t *testing.T) {
	day := 24 * time.Hour
	guarded := daily(t)
	guarded.Guard = (13 * time.Hour).Microseconds()
	six, one := ago(6*time.Hour), ago(time.Hour)
	reset := 12 * time.Hour
	for _, test := range []struct {
		name    string
		use     Use
		perHour float64       // −1: no rate
		empty   time.Duration // after noon; −1: it does not run out
		resets  time.Duration // after noon; 0: it does not
	}{
		{"two charges", Use{Limit: of(100, daily(t)), Used: 60, Left: 40, Since: six, Amount: 60, Charges: 2}, -1, 0, 0},
		{"open reservations", Use{Limit: of(100, limit.ConcurrentWindow()), Used: 60, Left: 40, Since: six, Amount: 60, Charges: 9}, -1, 0, 0},
		{"nothing known yet", Use{Limit: of(100, daily(t)), Since: noon, Charges: 9}, -1, 0, 0},

		{"before the reset", Use{Limit: of(100, daily(t)), Used: 60, Left: 40, Since: six, Amount: 60, Charges: 3}, 10, 4 * time.Hour, reset},
		{"less is left, since some is held", Use{Limit: of(100, daily(t)), Used: 60, Left: 10, Since: six, Amount: 60, Charges: 3}, 10, time.Hour, reset},
		{"at the reset", Use{Limit: of(180, daily(t)), Used: 60, Left: 120, Since: six, Amount: 60, Charges: 3}, 10, -1, reset},
		{"a second before it", Use{Limit: of(43_200, daily(t)), Left: 43_199, Since: one, Amount: 3600, Charges: 3}, 3600, reset - time.Second, reset},
		{"in a guard", Use{Limit: of(180, guarded), Used: 60, Left: 5, Since: six, Amount: 60, Charges: 3}, 10, 30 * time.Minute, time.Hour},
		{"empty", Use{Limit: of(100, daily(t)), Used: 120, Since: six, Amount: 1, Charges: 3}, 0.167, 0, reset},
		{"without units", Use{Limit: of(100, daily(t)), Left: 100, Since: six, Charges: 3}, 0, -1, reset},

		{"below the refill", Use{Limit: of(100, bucket(t, 10, time.Hour)), Left: 100, Since: one, Amount: 9, Charges: 3}, 9, -1, 0},
		{"at the refill", Use{Limit: of(100, bucket(t, 10, time.Hour)), Left: 100, Since: one, Amount: 10, Charges: 3}, 10, -1, 0},
		{"above the refill", Use{Limit: of(100, bucket(t, 10, time.Hour)), Left: 100, Since: one, Amount: 60, Charges: 3}, 60, 2 * time.Hour, 0},

		// 10 an hour for six hours: nothing of it returns before 06:00 tomorrow.
		{"rolling, before anything returns", Use{Limit: of(200, limit.RollingWindow(day)), Used: 60, Left: 140, Since: six, Amount: 60, Charges: 6, First: ago(day), Hours: hours(10, 10, 10, 10, 10, 10)}, 10, 14 * time.Hour, 0},
		// 10 units return in each hour from 06:00 on, so what is left does not fall any more.
		{"rolling, as much as returns", Use{Limit: of(241, limit.RollingWindow(day)), Used: 60, Left: 181, Since: six, Amount: 60, Charges: 6, First: ago(day), Hours: hours(10, 10, 10, 10, 10, 10)}, 10, -1, 0},
		// 100 were used 24 to 22 hours ago, and return in the next two hours: 50 an hour, of
		// which 10 are spent. From 14:00 on what is left falls by 10 an hour from 80 + 20.
		{"rolling, after much has returned", Use{Limit: of(240, limit.RollingWindow(day)), Used: 160, Left: 80, Since: six, Amount: 60, Charges: 6, First: ago(day),
			Hours: append([]Hour{{ago(day), 50}, {ago(23 * time.Hour), 50}}, hours(10, 10, 10, 10, 10, 10)...)}, 10, 18 * time.Hour, 0},
		// The same but for 30 left: they are gone before.
		{"rolling, just before it returns", Use{Limit: of(100, limit.RollingWindow(day)), Used: 70, Left: 5, NextReturn: noon + hour, Since: six, Amount: 60, Charges: 6, First: ago(day),
			Hours: append([]Hour{{ago(23 * time.Hour), 10}}, hours(10, 10, 10, 10, 10, 10)...)}, 10, 30 * time.Minute, 0},
		// Of 7 days only two are known; 600 older units return evenly over five days, 5 an
		// hour, while 10 are spent: the 300 left fall by 5 an hour.
		{"rolling, of which the beginning is not known", Use{Limit: of(960, limit.RollingWindow(7*day)), Used: 660, Left: 300, Since: six, Amount: 60, Charges: 6, First: ago(2 * day),
			Hours: hours(10, 10, 10, 10, 10, 10)}, 10, 60 * time.Hour, 0},
		// 30 were charged in the last minutes; nothing returns for 15 minutes.
		{"rolling, minutes", Use{Limit: of(50, limit.RollingWindow(30*time.Minute)), Used: 30, Left: 10, NextReturn: noon + (15 * time.Minute).Microseconds(), Since: ago(30 * time.Minute), Amount: 30, Charges: 3}, 60, 10 * time.Minute, 0},
		{"rolling, minutes, in balance", Use{Limit: of(50, limit.RollingWindow(30*time.Minute)), Used: 30, Left: 20, NextReturn: noon, Since: ago(30 * time.Minute), Amount: 30, Charges: 3}, 60, -1, 0},
		// Reservations were settled for less in the meantime: all that is used returns.
		{"rolling, of which less is used than was charged", Use{Limit: of(100, limit.RollingWindow(day)), Used: 30, Left: 70, Since: six, Amount: 60, Charges: 6, First: ago(day), Hours: hours(10, 10, 10, 10, 10, 10)}, 10, 7 * time.Hour, 0},
	} {
		test.use.Now = noon
		r := Of(test.use)
		if test.perHour < 0 {
			check.Equal(t, r, nil, test.name)
			continue
		}
		if r == nil {
			t.Errorf("%s: no rate", test.name)
			continue
		}
		at := func(d time.Duration) time.Time { return time.UnixMicro(noon).UTC().Add(d) }
		empty, resets := time.Time{}, time.Time{}
		if test.empty >= 0 {
			empty = at(test.empty)
		}
		if test.resets > 0 {
			resets = at(test.resets)
		}
		check.Equal(t, *r, Rate{test.perHour, test.use.Charges, time.UnixMicro(test.use.Since).UTC(), empty, resets}, test.name)
	}
}
