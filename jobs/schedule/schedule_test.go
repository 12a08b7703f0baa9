package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

func TestScheduleNext(t *testing.T) {
	for _, test := range []struct {
		name, spec, zone, from string
		want                   []string
	}{
		{"every three hours", "0 */3 * * *", "UTC", "2026-06-01T00:00:00Z", []string{"2026-06-01T03:00:00Z", "2026-06-01T06:00:00Z"}},
		{"just before", "0 3 * * *", "UTC", "2026-06-01T02:59:59.999999Z", []string{"2026-06-01T03:00:00Z"}},
		{"on the tick", "0 3 * * *", "UTC", "2026-06-01T03:00:00Z", []string{"2026-06-02T03:00:00Z"}},
		{"within the tick's second", "0 3 * * *", "UTC", "2026-06-01T03:00:00.5Z", []string{"2026-06-02T03:00:00Z"}},
		{"a zone", "30 9 * * 1-5", "Asia/Kolkata", "2026-06-05T05:00:00Z", []string{"2026-06-08T04:00:00Z"}},
		{"names", "0 0 1 jan,jul *", "UTC", "2026-01-01T00:00:00Z", []string{"2026-07-01T00:00:00Z"}},
		{"a leap day", "0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
		{"no leap day in 2100", "0 0 29 2 *", "America/New_York", "2096-03-01T00:00:00Z", []string{"2104-02-29T05:00:00Z"}},
		{"daily", "@daily", "America/Los_Angeles", "2026-06-01T00:00:00Z", []string{"2026-06-01T07:00:00Z", "2026-06-02T07:00:00Z"}},
		{"hourly", "@hourly", "UTC", "2026-06-01T00:30:00Z", []string{"2026-06-01T01:00:00Z"}},
		{"either day", "0 0 13 * 5", "UTC", "2026-02-06T00:00:00Z", []string{"2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z"}},

		{"from the epoch on", "@every 7h", "UTC", "1970-01-01T00:00:00Z", []string{"1970-01-01T07:00:00Z", "1970-01-01T14:00:00Z"}},
		{"whenever it is asked", "@every 90m", "UTC", "2026-06-01T00:17:23Z", []string{"2026-06-01T01:30:00Z", "2026-06-01T03:00:00Z"}},
		{"every second", "@every 1s", "UTC", "2026-06-01T00:00:00.3Z", []string{"2026-06-01T00:00:01Z"}},

		// 2026-03-01 is a Sunday.
		{"a step of days, or a Sunday", "0 3 */5 * sun", "UTC", "2026-03-01T04:00:00Z", []string{"2026-03-06T03:00:00Z", "2026-03-08T03:00:00Z", "2026-03-11T03:00:00Z", "2026-03-15T03:00:00Z", "2026-03-16T03:00:00Z"}},
		{"a day, or a step of weekdays", "0 3 5 * */3", "UTC", "2026-03-01T04:00:00Z", []string{"2026-03-04T03:00:00Z", "2026-03-05T03:00:00Z", "2026-03-07T03:00:00Z", "2026-03-08T03:00:00Z"}},
		{"all days in a list are not given", "0 3 *,5 * sun", "UTC", "2026-03-01T04:00:00Z", []string{"2026-03-08T03:00:00Z", "2026-03-15T03:00:00Z"}},
		{"all days in a range are", "0 3 1-31 * sun", "UTC", "2026-03-01T04:00:00Z", []string{"2026-03-02T03:00:00Z", "2026-03-03T03:00:00Z"}},
		// 2026-03-08, Los Angeles: 02:00 to 03:00 is skipped, at 10:00 UTC.
		{"in a gap", "30 2 * * *", "America/Los_Angeles", "2026-03-07T12:00:00Z", []string{"2026-03-08T10:00:00Z", "2026-03-09T09:30:00Z"}},
		{"in a gap and after it", "30 2,3 * * *", "America/Los_Angeles", "2026-03-08T09:00:00Z", []string{"2026-03-08T10:00:00Z", "2026-03-08T10:30:00Z"}},
		{"twice into one instant", "0,30 2,3 * * *", "America/Los_Angeles", "2026-03-08T09:00:00Z", []string{"2026-03-08T10:00:00Z", "2026-03-08T10:30:00Z", "2026-03-09T09:00:00Z"}},
		{"every hour over a gap", "0 * * * *", "America/Los_Angeles", "2026-03-08T08:30:00Z", []string{"2026-03-08T09:00:00Z", "2026-03-08T10:00:00Z", "2026-03-08T11:00:00Z"}},
		// 2026-11-01, Los Angeles: 01:00 to 02:00 comes twice, from 08:00 and
		// from 09:00 UTC.
		{"in an overlap", "30 1 * * *", "America/Los_Angeles", "2026-10-31T12:00:00Z", []string{"2026-11-01T08:30:00Z", "2026-11-02T09:30:00Z"}},
		{"asked within an overlap", "30 1 * * *", "America/Los_Angeles", "2026-11-01T09:10:00Z", []string{"2026-11-02T09:30:00Z"}},
		{"every hour over an overlap", "15 * * * *", "America/Los_Angeles", "2026-11-01T07:30:00Z", []string{"2026-11-01T08:15:00Z", "2026-11-01T09:15:00Z", "2026-11-01T10:15:00Z"}},
		{"quarters over an overlap", "*/30 * * * *", "America/Los_Angeles", "2026-11-01T08:10:00Z", []string{"2026-11-01T08:30:00Z", "2026-11-01T09:00:00Z", "2026-11-01T09:30:00Z", "2026-11-01T10:00:00Z"}},
		// Lord Howe shifts by half an hour: on 2026-10-04 02:00 becomes 02:30,
		// at 15:30 UTC the day before.
		{"half an hour", "0 4 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-03T17:00:00Z", "2026-10-04T17:00:00Z"}},
		{"every hour over half an hour", "0 * * * *", "Australia/Lord_Howe", "2026-10-03T14:45:00Z", []string{"2026-10-03T16:00:00Z", "2026-10-03T17:00:00Z"}},
		// Beirut skips midnight: on 2026-03-29 00:00 becomes 01:00, at 22:00 UTC.
		{"a day without midnight", "30 0 * * *", "Asia/Beirut", "2026-03-28T12:00:00Z", []string{"2026-03-28T22:00:00Z", "2026-03-29T21:30:00Z"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := must.Get(Parse(test.spec, test.zone))(t)
			at := must.Get(time.Parse(time.RFC3339, test.from))(t)
			var got []string
			for range test.want {
				at = s.Next(at)
				got = append(got, at.Format(time.RFC3339Nano))
				if !s.Ticks(at) || s.Ticks(at.Add(time.Millisecond)) != s.Ticks(at) || s.spec != "@every 1s" && s.Ticks(at.Add(-time.Second)) {
					t.Errorf("Ticks does not agree with Next at %s", at)
				}
			}
			check.EqualSlices(t, got, test.want, "ticks")
		})
	}
}

func TestSchedulesThatAreRefused(t *testing.T) {
	for _, test := range []struct{ spec, zone, tells string }{
		{"TZ=UTC 0 3 * * *", "UTC", "timezone"},
		{"TZ=", "UTC", "timezone"},
		{"CRON_TZ=UTC", "UTC", "timezone"},
		{"@reboot", "UTC", "--now"},
		{"@fortnightly", "UTC", "@hourly"},
		{"", "UTC", "0 fields"},
		{"x", "UTC", "it has 1 field, not 5"},
		{"@", "UTC", "unknown descriptor; write minute"},
		{"0 3 * *", "UTC", "4 fields"},
		{"0 0 3 * * *", "UTC", "6 fields"},
		{"0 0 30 2 *", "UTC", "never ticks"},
		{"*/60 * * * *", "UTC", "goes beyond the last value"},
		{"5/55 * * * *", "UTC", "goes beyond the last value"},
		{"0 */24 * * *", "UTC", "goes beyond the last value"},
		{"0-10/11 * * * *", "UTC", "goes beyond the last value"},
		{", * * * *", "UTC", "empty part"},
		{"1,,2 * * * *", "UTC", "empty part"},
		{"0 0 * * 7", "UTC", "Sunday is 0"},
		{"0 22-2 * * *", "UTC", "hour \"22-2\" runs backwards: write \"22-23,0-2\""},
		{"0 0 * * 3-sun", "UTC", "day of week \"3-sun\" runs backwards"},
		{"H * * * *", "UTC", "minute \"H\": \"H\" is not one of 0 to 59; write a value"},
		{"60 * * * *", "UTC", "minute \"60\": \"60\" is not one of 0 to 59"},
		{"0 0 L * *", "UTC", "day of month \"L\": \"L\" is not one of 1 to 31; write"},
		{"0 0 0 * *", "UTC", "day of month \"0\""},
		{"0 0 1 june *", "UTC", "month \"june\": \"june\" is not one of 1 to 12 or \"jan\" to \"dec\""},
		{"0 0 * * 5#2", "UTC", "day of week \"5#2\""},
		{"0 0 * * 1-7", "UTC", "Sunday is 0"},
		{"0 1-2-3 * * *", "UTC", "hour \"1-2-3\": \"2-3\""},
		{"0 *-5 * * *", "UTC", "hour \"*-5\""},
		{"*/0 * * * *", "UTC", "minute \"*/0\": the step after '/'"},
		{"*/x * * * *", "UTC", "minute \"*/x\": the step after '/'"},
		{"*/5/2 * * * *", "UTC", "minute \"*/5/2\": the step after '/'"},
		{"@every", "UTC", "@every 90m"},
		{"@every soon", "UTC", "@every 90m"},
		{"@every 0s", "UTC", "whole seconds"},
		{"@every -5m", "UTC", "whole seconds"},
		{"@every 999ms", "UTC", "whole seconds"},
		{"@every 1500ms", "UTC", "whole seconds"},
		{"@every 9000h", "UTC", "8784h"},
		{"0 3 * * *", "Mars/Olympus", "Mars/Olympus"},
		{"0 3 * * *", "Local", "unknown time zone"},
		{"0 3 * * *", "", "unknown time zone"},
	} {
		s, err := Parse(test.spec, test.zone)
		if err == nil || !strings.Contains(err.Error(), test.tells) {
			t.Errorf("%q in %q: %v, %v; want an error telling %q", test.spec, test.zone, s, err, test.tells)
		} else if strings.Contains(err.Error(), "strconv") || strings.Contains(err.Error(), "failed to parse") {
			t.Errorf("%q: %v has the parser's own words", test.spec, err)
		}
	}
}

func TestLeastGap(t *testing.T) {
	const day = 24 * time.Hour
	for spec, want := range map[string]time.Duration{
		"0 */3 * * *":      3 * time.Hour,
		"0,5 3 * * *":      5 * time.Minute,
		"@every 90m":       90 * time.Minute,
		"* * * * *":        time.Minute,
		"*/20 * * * *":     20 * time.Minute,
		"*/7 * * * *":      4 * time.Minute,
		"59,1 * * * *":     2 * time.Minute,
		"0 1,23 * * *":     2 * time.Hour,
		"30 0,23 * * 6,0":  time.Hour,
		"30 0,23 * * 1,3":  23 * time.Hour,
		"0 3 * * *":        day,
		"0 3 * * 1,3":      2 * day,
		"0 0 1,31 * *":     day,
		"0 0 31 * *":       31 * day,
		"0 0 1 * *":        28 * day,
		"0 0 1 1 *":        365 * day,
		"0 0 29 2 *":       1461 * day,
		"0 12 30 1,3,12 *": 31 * day,
	} {
		check.Equal(t, schedule(t, spec, "America/New_York").LeastGap(), want, spec)
	}
}

// After a long absence the newest tick is found without a walk over all.
func TestTheLatestTick(t *testing.T) {
	for spec, want := range map[string]string{
		"@every 1s":           "2026-06-01T12:34:56Z",
		"*/5 * * * *":         "2026-06-01T12:30:00Z",
		"0 0 1 1 *":           "2026-01-01T00:00:00Z",
		"0 12 * * *":          "2026-06-01T12:00:00Z",
		"0,1,2,3,50 11 * * *": "2026-06-01T11:50:00Z",
	} {
		s := must.Get(Parse(spec, "UTC"))(t)
		now := time.Date(2026, time.June, 1, 12, 34, 56, 789, time.UTC)
		if _, _, newest := s.Between(firstDay.AddDate(0, 0, -1), now, 1); len(newest) != 1 || newest[0].Format(time.RFC3339) != want {
			t.Errorf("%s: %s, want %s", spec, newest, want)
		}
	}
}
