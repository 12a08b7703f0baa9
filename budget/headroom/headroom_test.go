package headroom

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// begin is a midnight, UTC.
var begin = time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC).UnixMicro()

// daily is a calendar day of 10,000, of which at most 500 are kept back.
func daily(t *testing.T) limit.Limit {
	day := must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)
	return limit.Limit{Name: "day", Quota: 10_000, Auto: 500, Headroom: 500, Limit: 9_500, Counts: limit.CountUnits, Window: limit.CalendarWindow(day)}
}

// reports are those of each day from begin on, so many.
func reports(days int) (n Noted) {
	for d := range int64(days) {
		n.See(limit.RollingWindow(24*time.Hour), begin, Seen{Start: begin + d*day, Reported: true})
	}
	return n
}

// Amounts are what the hours from begin on had.
func hours(amounts map[int64]int64) (list []Sample) {
	for h := range int64(24 * 40) {
		if amounts[h] > 0 {
			list = append(list, Sample{begin + h*hour, amounts[h]})
		}
	}
	return list
}

// The least is 0.2 % of the quota, rounded up.
func TestLeast(t *testing.T) {
	for quota, want := range map[int64]int64{1: 1, 499: 1, 500: 1, 501: 2, 10_000: 20, 10_001: 21, limit.MaxUnits: limit.MaxUnits / 500} {
		check.Equal(t, Least(quota), want, "of", quota)
	}
}

// The headroom is the sum of the parts, between the least and the most.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		parts  Parts
		want   int64
		capped bool
	}{
		{Parts{Least: 20, Most: 500}, 500, false},
		{Parts{Known: true, Least: 20, Most: 500}, 20, false},
		{Parts{Known: true, Drift: 12, InFlight: 8, Least: 20, Most: 500}, 20, false},
		{Parts{Known: true, Drift: 30, InFlight: 11, Least: 20, Most: 500}, 41, false},
		{Parts{Known: true, Drift: 30, InFlight: 11, Clock: 9, Outage: 450, Least: 20, Most: 500}, 500, false},
		{Parts{Known: true, Drift: 31, InFlight: 11, Clock: 9, Outage: 450, Least: 20, Most: 500}, 500, true},
		{Parts{Outage: 501, Least: 20, Most: 500}, 500, true},
	} {
		check.Equal(t, c.parts.Units(), c.want, "units of", c.parts)
		check.Equal(t, c.parts.Capped(), c.capped, "capped", c.parts)
	}
}

// The 0.99 quantile by nearest rank, of hours with drift alone.
func TestQuantile(t *testing.T) {
	now := begin + 14*day
	for _, c := range []struct {
		hours int64 // with drift, of 1, 2, 3 …
		want  int64
	}{{0, 0}, {1, 1}, {2, 2}, {99, 99}, {100, 99}, {101, 100}, {199, 198}, {200, 198}, {300, 297}, {301, 298}} {
		var list []Sample
		for n := range c.hours {
			list = append(list, Sample{now - (c.hours-n)*hour, n + 1})
		}
		check.Equal(t, highest(list, limit.RollingWindow(time.Hour), now, now), c.want, "of", c.hours)
	}
}

// Of fewer than a hundred hours the most of a day counts: of a calendar's, or of any 24
// hours, or of the window, if that is shorter.
func TestFewHours(t *testing.T) {
	amounts := map[int64]int64{0: 7, 1: 20, 24: 5, 60: 24}
	list, now := hours(amounts), begin+100*hour
	for span, want := range map[time.Duration]int64{time.Minute: 24, time.Hour: 24, 2 * time.Hour: 27, 23 * time.Hour: 27, 24 * time.Hour: 27, 30 * 24 * time.Hour: 27} {
		check.Equal(t, highest(list, limit.RollingWindow(span), now, now), want, "in", span)
	}
	rolling, calendar := limit.RollingWindow(24*time.Hour), daily(t).Window
	check.Equal(t, highest(list, rolling, begin, begin), 7, "at first")
	start, end := Period(calendar, begin+12*hour)
	list = []Sample{{start - hour, 30}, {start, 5}, {end - hour, 6}, {end, 40}, {end + hour, 3}}
	check.Equal(t, highest(list, calendar, end+2*hour, end+2*hour), 43, "of calendar days")
	check.Equal(t, highest(list[:3], calendar, end, end), 30, "of two calendar days")
	check.Equal(t, highest(list, rolling, end+2*hour, end+2*hour), 49, "of any 24 hours")
	for h := range int64(few) {
		amounts[2*24+h] = 1
	}
	check.Equal(t, highest(hours(amounts), rolling, begin+6*day+4*hour, begin+6*day+4*hour), 7, "of a hundred and more")
}

// A sample counts for 14 days, and its quantile for as long as the evidence reaches back.
func TestHighest(t *testing.T) {
	list := hours(map[int64]int64{0: 70, 24: 5, 400: 9})
	for _, c := range []struct{ from, now, want int64 }{
		{0, 0, 70},
		{hour, 14*day - 1, 70},
		{14*day - 1, 14*day - 1, 70},
		{14 * day, 14 * day, 5},
		{15*day - 1, 15*day - 1, 5},
		{15 * day, 15 * day, 0},
		{15 * day, 400*hour - 1, 0},
		{15 * day, 400 * hour, 9},
		{14*day - 1, 20 * day, 70},
		{14 * day, 20 * day, 9},
	} {
		check.Equal(t, highest(list, limit.RollingWindow(24*time.Hour), begin+c.from, begin+c.now), c.want, "from", c.from/hour, "to", c.now/hour)
	}
	// As many small ones leave, a larger one is no longer beyond the quantile.
	amounts := map[int64]int64{200: 50}
	for h := range int64(100) {
		amounts[h] = 1
	}
	list = hours(amounts)
	check.Equal(t, highest(list, limit.RollingWindow(24*time.Hour), begin+201*hour, begin+201*hour), 1, "one of 101")
	check.Equal(t, highest(list, limit.RollingWindow(24*time.Hour), begin+201*hour, begin+14*day+hour), 50, "one of 99, later")
}

// It is lowered after three full periods in which the upstream reported, not before. The
// period of the first report is a full one only if the report came as it began.
func TestThreePeriods(t *testing.T) {
	l := daily(t)
	for _, c := range []struct {
		first   int64 // report, after begin
		days    int
		now     int64
		periods int
		known   bool
	}{
		{0, 0, 3 * day, 0, false},
		{0, 2, 3 * day, 2, false},
		{0, 3, 3*day - 1, 2, false},
		{0, 3, 3 * day, 3, true},
		{1, 3, 3 * day, 2, false},
		{1, 4, 4*day - 1, 2, false},
		{1, 4, 4 * day, 3, true},
		{0, 3, 30 * day, 3, true}, // there was no evidence since, so it stays
	} {
		n := Noted{}
		for d := range int64(c.days) {
			n.See(l.Window, begin+c.first, Seen{Start: begin + d*day, Reported: true})
		}
		p := Of(l, Evidence{Noted: n, Since: begin - Span}, begin+c.now)
		check.Equal(t, p.Periods, c.periods, "periods", c)
		check.Equal(t, p.Known, c.known, "known", c)
		check.Equal(t, p.Units(), map[bool]int64{true: 20, false: 500}[c.known], "units", c)
	}
	n := reports(3)
	check.Equal(t, Of(l, Evidence{Noted: n, Since: begin}, begin+3*day).Known, true, "history from the first period on")
	check.Equal(t, Of(l, Evidence{Noted: n, Since: begin + 1}, begin+3*day).Known, false, "history from later on")
}

// Days without a report are no evidence: three others count.
func TestPeriodsWithGaps(t *testing.T) {
	l, n := daily(t), Noted{}
	for _, d := range []int64{0, 7, 14} {
		n.See(l.Window, begin, Seen{Start: begin + d*day, Reported: true})
	}
	from, periods := n.Begin(l.Window, begin+15*day)
	check.Equal(t, periods, Full, "periods")
	check.Equal(t, from, begin, "the third began")
	p := Of(l, Evidence{Noted: n, Since: begin, Drift: hours(map[int64]int64{8: 40})}, begin+15*day)
	check.Equal(t, p.Drift, 40, "drift of the first, which is more than 14 days ago")
}

// Drift raises at once. It is lowered when three full periods have begun and ended since the
// drift has left the 14 days.
func TestRaisedAtOnceLoweredLate(t *testing.T) {
	l := daily(t)
	e := Evidence{Noted: reports(30), Since: begin, Drift: hours(map[int64]int64{24*5 + 7: 30, 24*6 + 8: 10})}
	struck := begin + 5*day + 7*hour
	for _, c := range []struct{ now, drift, units int64 }{
		{struck - 1, 0, 20},
		{struck, 30, 30},
		{begin + 6*day + 8*hour, 30, 30},
		{begin + 23*day - 1, 30, 30}, // the third full period began on day 19: it still had the drift
		{begin + 22*day - 1, 30, 30},
		{begin + 23*day, 10, 20},
		{begin + 24*day, 0, 20},
	} {
		p := Of(l, e, c.now)
		check.Equal(t, p.Drift, c.drift, "drift", (c.now-begin)/hour)
		check.Equal(t, p.Units(), c.units, "units", (c.now-begin)/hour)
	}
}

// What was in flight adds up over hosts, the highest period counts, and a guard is outside of it.
func TestInFlight(t *testing.T) {
	l, e := daily(t), Evidence{Noted: reports(4), Since: begin}
	see := func(d int64, host string, amount int64) {
		e.Noted.See(l.Window, 0, Seen{Start: begin + d*day, InFlight: map[string]int64{host: amount}})
	}
	see(1, "a", 4)
	see(1, "a", 3)
	see(1, "b", 4)
	see(2, "a", 9)
	check.Equal(t, Of(l, e, begin+4*day).InFlight, 11, "in a calendar, a host's processes add up")

	rolling := l
	rolling.Window, e.Noted = limit.RollingWindow(24*time.Hour), reports(4)
	l = rolling
	see(1, "a", 4)
	see(1, "a", 3)
	see(1, "b", 4)
	check.Equal(t, Of(l, e, begin+4*day).InFlight, 8, "in a rolling window, a host's highest counts")
}

// The clocks' part is what the busiest hour charges in their difference, beyond the guard.
func TestClock(t *testing.T) {
	l, e := daily(t), Evidence{Noted: reports(4), Since: begin, Spent: hours(map[int64]int64{3: 720, 5: 3601})}
	for _, c := range []struct{ off, guard, want int64 }{
		{0, 0, 0}, {100_000, 0, 1}, {1_000_000, 0, 2}, {2_000_000, 0, 3}, {2_000_000, 1_000_000, 2}, {1_000_000, 1_000_000, 0}, {3_600_000_000, 0, 61},
	} {
		e.Noted = reports(4)
		for _, off := range []int64{c.off + 5, c.off, 30_000_000_000} { // a wrong host clock is no matter
			e.Noted.See(l.Window, 0, Seen{Start: begin + 2*day, Clock: &off})
		}
		l.Window.Guard = c.guard
		check.Equal(t, Of(l, e, begin+4*day).Clock, c.want, "off by", c.off, "with a guard of", c.guard)
	}
	l.Window.Guard = 0
	off := int64(50_000_000)
	e.Noted = reports(4)
	e.Noted.See(l.Window, 0, Seen{Start: begin + 3*day, Clock: &off})
	check.Equal(t, Of(l, e, begin+4*day-1).Clock, 0, "while others may still measure less")
	check.Equal(t, Of(l, e, begin+4*day).Clock, 51, "in the next period")
	l.Window = limit.RollingWindow(24 * time.Hour)
	check.Equal(t, Of(l, e, begin+4*day).Clock, 0, "in a rolling window both ends are by one clock")
	check.Equal(t, within(limit.MaxUnits, hour), limit.MaxUnits, "the largest amount")
}

// The outage part counts whether or not there is evidence.
func TestOutage(t *testing.T) {
	l := daily(t)
	l.OutagePart = 60
	check.Equal(t, Unknown(l).Outage, 60, "unknown")
	p := Of(l, Evidence{Noted: reports(3), Since: begin}, begin+3*day)
	check.Equal(t, p, Parts{Outage: 60, Least: 20, Most: 500, Periods: 3, Known: true}, "parts")
	check.Equal(t, p.Units(), 60, "units")
}

// What a host may spend while the store is out of reach, which package outage takes from the
// headroom, is the same whatever the headroom is now.
func TestOutagePartOfAHost(t *testing.T) {
	for _, hosts := range []int64{1, 2, 3, 7} {
		for _, allowance := range []int64{0, 1, 20, 70, 166, 167, 500, 1000} {
			l := daily(t)
			l.OutagePart = min(allowance, l.Auto/hosts) * hosts // as package config does
			for drift := range int64(600) {
				p := Unknown(l)
				p.Known, p.Drift = drift > 0, drift
				check.Equal(t, min(allowance, p.Units()/hosts), l.OutagePart/hosts, "of", hosts, "hosts with", allowance, "and a drift of", drift)
			}
		}
	}
}

// The text names the parts that are not 0, and what bounds them.
func TestText(t *testing.T) {
	for _, c := range []struct {
		parts Parts
		want  string
	}{
		{Parts{Known: true, Periods: 3, Drift: 30, InFlight: 11, Least: 20, Most: 500}, "41: 30 drift, 11 in flight"},
		{Parts{Known: true, Periods: 3, Drift: 30, InFlight: 11, Clock: 2, Outage: 60, Least: 20, Most: 500}, "103: 30 drift, 11 in flight, 2 clock, 60 outage"},
		{Parts{Known: true, Periods: 3, Least: 20, Most: 500}, "20, its minimum"},
		{Parts{Known: true, Periods: 3, Clock: 3, Least: 20, Most: 500}, "20, its minimum: 3 clock"},
		{Parts{Known: true, Periods: 3, Drift: 600, Clock: 3, Least: 20, Most: 500}, "500, its maximum, of 603: 600 drift, 3 clock"},
		{Parts{Periods: 1, Least: 20, Most: 500}, "500, its maximum, until the upstream has reported in 3 full periods; so far it has in 1"},
		{Parts{Periods: 3, Least: 20, Most: 500}, "500, its maximum, because the history does not reach back to the third full period in which the upstream reported"},
	} {
		check.Equal(t, c.parts.String(), c.want, "text")
	}
}

// Periods of evidence are a calendar's days and months, else the window's length, at least a
// day.
func TestPeriod(t *testing.T) {
	pacific := func(length string) limit.Window {
		return limit.CalendarWindow(must.Get(limit.NewCalendar(length, "America/Los_Angeles", 0))(t))
	}
	at := time.Date(2026, 11, 1, 12, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		window      limit.Window
		start, next time.Time
	}{
		{pacific(limit.Day), time.Date(2026, 11, 1, 7, 0, 0, 0, time.UTC), time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)},
		{pacific(limit.Month), time.Date(2026, 11, 1, 7, 0, 0, 0, time.UTC), time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)},
		{pacific(limit.Hour), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)},
		{limit.RollingWindow(time.Minute), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)},
		{limit.RollingWindow(48 * time.Hour), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)},
	} {
		start, next := Period(c.window, at.UnixMicro())
		check.Equal(t, time.UnixMicro(start).UTC(), c.start, "start of", c.window.Key())
		check.Equal(t, time.UnixMicro(next).UTC(), c.next, "end of", c.window.Key())
	}
}

// Recent keeps a minute, by the second.
func TestRecent(t *testing.T) {
	var r Recent
	const second = int64(1_000_000)
	r.Add(100*second, 1)
	r.Add(100*second+1, 2)
	r.Add(103*second, 4)
	r.Add(99*second, 8) // late
	check.Equal(t, r.Sum(99*second, 104*second), 15, "all")
	check.Equal(t, r.Sum(100*second+5, 103*second), 3, "of touched seconds")
	check.Equal(t, r.Sum(100*second, 103*second+1), 7, "up to within a second")
	r.Add(161*second, 16)
	check.Equal(t, r.Sum(0, 200*second), 4+16+3, "the last minute")
	r.Add(300*second, 32)
	check.Equal(t, r.Sum(0, 400*second), 32, "long after")
	r.Add(100*second, 64)
	check.Equal(t, r.Sum(0, 400*second), 32, "too late")
}

// Notes do not grow without bound.
func TestNotesAreBounded(t *testing.T) {
	n := reports(100)
	check.Equal(t, len(n.Periods), mostPeriods, "periods")
	check.Equal(t, n.Periods[len(n.Periods)-1].Start, begin+99*day, "the last")
	check.Equal(t, n.Since, begin, "the first report is kept")
	check.Equal(t, n.See(limit.RollingWindow(24*time.Hour), begin, Seen{Start: begin + 99*day, Reported: true}), false, "seen before")
}
