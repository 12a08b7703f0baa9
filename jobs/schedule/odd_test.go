package schedule

import (
	"strings"
	"testing"
)

func TestOddSchedules(t *testing.T) {
	const newYork, lordHowe, cairo = "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"
	for _, test := range []struct {
		spec, zone string
		tells      []string // one each
	}{
		{"0 */3 * * *", "UTC", nil},
		{"@daily", newYork, nil},
		{"@every 7h", newYork, nil},
		{"0 3 1-7 * 1", "UTC", []string{"either is enough; write * for one of them"}},
		{"0 3 *,5 * sun", "UTC", nil},
		{"0 3 5 * sun,*", "UTC", nil},
		{"0 3 1-7 * */3", "UTC", []string{"either is enough (Vixie cron and cronie require both if one begins with *); write", "day of week"}},
		{"0 3 */2 * 1", "UTC", []string{"either is enough (Vixie", `day of month "*/2" starts over each month: after 31 comes 1`}},
		{"0 3 * * 1-5", "UTC", nil},
		{"0 3 */1 * 1", "UTC", nil},
		{"0 3 ? * 1", "UTC", nil},

		{"* 3 * * *", "UTC", []string{`every minute of these hours; write "0 3 * * *"`}},
		{"? 3,4 * * *", "UTC", []string{`write "0 3,4 * * *"`}},
		{"* 9-17 * * 1-5", "UTC", []string{`write "0 9-17 * * 1-5"`}},
		{"*/1 3 * * *", "UTC", nil},
		{"* * * * 1-5", "UTC", nil},
		{"* 0-23 * * *", "UTC", nil},

		{"*/7 * * * *", "UTC", []string{`minute "*/7" is uneven: from 56 to the next 0 it is 4 minutes, not 7; take a step that divides 60, or list the minutes that are meant; "@every 7m"`}},
		{"3/7 * * * *", "UTC", []string{`from 59 to the next 3 it is 4 minutes, not 7`}},
		{"0-59/7 3 * * *", "UTC", []string{`from 56 to the next 0 it is 4 minutes, not 7; take a step that divides 60, or list the minutes that are meant`}},
		{"5/10 * * * *", "UTC", nil},
		{"10-59/7 * * * *", "UTC", nil},
		{"0-50/7 * * * *", "UTC", nil},
		{"0 */5 * * *", "UTC", []string{`hour "*/5" is uneven: from 20 to the next 0 it is 4 hours, not 5`}},
		{"0 */23 * * *", "UTC", []string{`from 23 to the next 0 it is 1 hour, not 23`}},
		{"0 9-23/5 * * *", "UTC", nil},
		{"0 3 1 */5 *", "UTC", []string{`month "*/5" is uneven: from 11 to the next 1 it is 2 months, not 5; list the months`}},
		{"0 3 * * */2", "UTC", []string{`day of week "*/2" is uneven: from 6 to the next 0 it is 1 day, not 2; list the days`}},

		{"0 3 31 * *", "UTC", []string{"day of month 31 does not exist in feb, apr, jun, sep, nov;"}},
		{"0 3 31,30 * *", "UTC", []string{"day of month 31 does not exist in feb, apr, jun, sep, nov;"}},
		{"0 3 30,31 6-9 *", "UTC", []string{"day of month 31 does not exist in jun, sep;"}},
		{"0 3 29-31 * *", "UTC", []string{"day of month 29 does not exist in feb except in leap years"}},
		{"0 3 30 2/2 *", "UTC", []string{"day of month 30 does not exist in feb;"}},
		{"0 3 31 jan,mar *", "UTC", nil},
		{"0 3 28-31 * *", "UTC", nil},
		{"0 3 31 * 1", "UTC", []string{"either is enough; write * for one of them"}},

		{"30 2 * * *", newYork, []string{"in America/New_York on 2026-03-08 the clock skips 02:30, and it ticks at 03:00; take"}},
		{"*/10 2 * * *", newYork, []string{"skips 02:00 and 5 more, and it ticks at 03:00; take"}},
		{"0 2 * * 1", newYork, nil},
		{"0 3 * * *", newYork, nil},
		{"0 1 * * *", newYork, []string{"in America/New_York on 2026-11-01 the clock shows 01:00 twice, and it ticks the first time; take"}},
		{"0 1-2 * * *", newYork, []string{"on 2026-03-08 the clock skips 02:00, and it ticks at 03:00; on 2026-11-01 the clock shows 01:00 twice, and it ticks the first time; take"}},
		{"30 * * * *", newYork, nil},
		{"45 1 * * *", lordHowe, []string{"on 2026-04-05 the clock shows 01:45 twice"}},
		{"15 1 * * *", lordHowe, nil},
		{"@weekly", cairo, nil},
		{"@daily", cairo, []string{"on 2026-04-24 the clock skips 00:00, and it ticks at 01:00"}},
		{"15 23 * * *", "America/Nuuk", []string{"on 2026-03-28 the clock skips 23:15, and it ticks at 00:00 on 2026-03-29; on 2026-10-24 the clock shows 23:15 twice"}},
		{"30 2 9 3 *", newYork, []string{"on 2031-03-09 the clock skips 02:30"}},
		{"30 2 20 3 *", newYork, nil},
	} {
		got := schedule(t, test.spec, test.zone).Odd()
		ok := len(got) == len(test.tells)
		for i := range got {
			ok = ok && strings.Contains(got[i], test.tells[i])
		}
		if !ok {
			t.Errorf("%q in %s: %q, want %q", test.spec, test.zone, got, test.tells)
		}
	}
}
