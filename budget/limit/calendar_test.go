package limit_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Exact starts, written as RFC 3339 by hand from the zones' published rules.
func TestPeriods(t *testing.T) {
	for _, c := range []struct {
		name, length, zone string
		starts             time.Duration
		at, start, next    string
	}{
		{"a day of 23 hours", "day", "America/Los_Angeles", 0, "2026-03-08T20:00:00Z", "2026-03-08T00:00:00-08:00", "2026-03-09T00:00:00-07:00"},
		{"a day of 25 hours", "day", "America/Los_Angeles", 0, "2026-11-01T20:00:00Z", "2026-11-01T00:00:00-07:00", "2026-11-02T00:00:00-08:00"},
		{"its first microsecond", "day", "America/Los_Angeles", 0, "2026-11-01T00:00:00-07:00", "2026-11-01T00:00:00-07:00", "2026-11-02T00:00:00-08:00"},
		{"the one before it", "day", "America/Los_Angeles", 0, "2026-10-31T23:59:59.999999-07:00", "2026-10-31T00:00:00-07:00", "2026-11-01T00:00:00-07:00"},
		{"a start that is skipped", "day", "America/New_York", 150 * time.Minute, "2026-03-08T12:00:00Z", "2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"},
		{"a start that comes twice", "day", "America/New_York", 90 * time.Minute, "2026-11-01T12:00:00Z", "2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"},
		{"between the two", "day", "America/New_York", 90 * time.Minute, "2026-11-01T01:15:00-05:00", "2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"},
		{"a midnight that is skipped", "day", "America/Sao_Paulo", 0, "2018-11-04T12:00:00Z", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		{"a midnight that comes twice", "day", "America/Havana", 0, "2026-11-01T12:00:00Z", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00"},
		{"a skipped date", "day", "Pacific/Apia", 0, "2011-12-29T12:00:00-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"a month", "month", "America/Los_Angeles", 0, "2026-11-20T12:00:00Z", "2026-11-01T00:00:00-07:00", "2026-12-01T00:00:00-08:00"},
		{"a month's last instant", "month", "UTC", 0, "2026-02-28T23:59:59.999999Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{"a month with a start", "month", "UTC", 6 * time.Hour, "2026-03-01T05:59:59Z", "2026-02-01T06:00:00Z", "2026-03-01T06:00:00Z"},
		{"an hour", "hour", "UTC", 0, "2026-03-01T05:59:59Z", "2026-03-01T05:00:00Z", "2026-03-01T06:00:00Z"},
		{"an hour of a half-hour zone", "hour", "Asia/Kolkata", 0, "2026-03-01T05:59:59Z", "2026-03-01T05:30:00Z", "2026-03-01T06:30:00Z"},
		{"an hour cut short", "hour", "Australia/Lord_Howe", 0, "2026-04-05T01:10:00+11:00", "2026-04-05T01:00:00+11:00", "2026-04-05T02:00:00+11:00"},
		{"an hour of the last day of a leap year", "hour", "America/New_York", 0, "2048-12-31T05:59:59Z", "2048-12-31T05:00:00Z", "2048-12-31T06:00:00Z"},
		{"an hour before a year's end in UTC", "hour", "Australia/Adelaide", 0, "2047-12-31T23:45:00Z", "2047-12-31T23:30:00Z", "2048-01-01T00:30:00Z"},
		{"an hour after a year's end in UTC", "hour", "Australia/Adelaide", 0, "2048-01-01T00:15:00Z", "2047-12-31T23:30:00Z", "2048-01-01T00:30:00Z"},
		{"a quarter", "15m", "UTC", 0, "2026-03-01T05:59:59Z", "2026-03-01T05:45:00Z", "2026-03-01T06:00:00Z"},
	} {
		at, _ := time.Parse(time.RFC3339Nano, c.at)
		start, next := must.Get(limit.NewCalendar(c.length, c.zone, c.starts))(t).Period(at.UnixMicro())
		for _, edge := range []struct {
			what, want string
			got        int64
		}{{"starts", c.start, start}, {"ends", c.next, next}} {
			want := must.Get(time.Parse(time.RFC3339Nano, edge.want))(t)
			check.Equal(t, edge.got, want.UnixMicro(), c.name, edge.what)
		}
	}
}

// Periods hold their instants, touch each other, and have one start each.
func TestPeriodsTile(t *testing.T) {
	zones := []string{"UTC", "America/Los_Angeles", "America/Sao_Paulo", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kolkata", "Pacific/Apia", "Europe/London", "Africa/Casablanca", "America/St_Johns"}
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.SampledFrom([]string{"15m", "hour", "day", "month"}).Draw(t, "length")
		var starts time.Duration
		if length == "day" || length == "month" {
			starts = time.Duration(rapid.IntRange(0, 24*60-1).Draw(t, "starts")) * time.Minute
		}
		c := must.Get(limit.NewCalendar(length, rapid.SampledFrom(zones).Draw(t, "zone"), starts))(t)
		at := rapid.Int64Range(0, 4_000_000_000).Draw(t, "seconds")*1e6 + rapid.Int64Range(0, 999_999).Draw(t, "µs")
		start, next := c.Period(at)
		if at < start || at >= next {
			t.Fatalf("%d is not in [%d, %d)", at, start, next)
		}
		if next-start > limit.CalendarWindow(c).Longest() {
			t.Fatalf("a period of %d µs, longer than the longest", next-start)
		}
		for _, same := range []int64{start, next - 1} {
			if s, n := c.Period(same); s != start || n != next {
				t.Fatalf("%d is in [%d, %d), %d of the same period in [%d, %d)", at, start, next, same, s, n)
			}
		}
		if s, _ := c.Period(next); s != next {
			t.Fatalf("the period after [%d, %d) starts at %d", start, next, s)
		}
		if _, n := c.Period(start - 1); n != start {
			t.Fatalf("the period before [%d, %d) ends at %d", start, next, n)
		}
	})
}

func TestNewCalendarRefuses(t *testing.T) {
	for _, c := range []struct {
		length, zone string
		starts       time.Duration
	}{
		{"week", "UTC", 0}, {"", "UTC", 0}, {"day", "", 0}, {"day", "Local", 0}, {"day", "Mars/Olympus", 0},
		{"day", "UTC", -time.Minute}, {"day", "UTC", 24 * time.Hour}, {"hour", "UTC", time.Minute}, {"15m", "UTC", time.Minute},
	} {
		if _, err := limit.NewCalendar(c.length, c.zone, c.starts); err == nil {
			t.Errorf("%q in %q from %s was taken", c.length, c.zone, c.starts)
		}
	}
}
