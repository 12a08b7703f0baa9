package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
)

// No line makes the parser or the search panic, stall, or go backwards; from
// wherever it is asked the next tick is the same, Between counts what Next
// gives, and in UTC, where no clock is set, the parser's library agrees.
func FuzzSchedule(f *testing.F) {
	for _, spec := range []string{"0 */3 * * *", "TZ=", "*/60 * * * *", "@every 90m", "30 2 29 2 *", "@daily", "1-5/2,7 * 1,2 * mon", "*/10 1 * * *", "0 0-22 30,31 */2 ?"} {
		f.Add(spec, "America/Los_Angeles", int64(1_780_000_000), uint16(700))
		f.Add(spec, "Pacific/Apia", int64(1_325_200_000), uint16(3))
		f.Add(spec, "UTC", int64(2_000_000_000), uint16(999))
	}
	f.Fuzz(func(t *testing.T, spec, zone string, unix int64, part uint16) {
		s, err := Parse(spec, zone)
		if err != nil {
			if strings.Contains(err.Error(), "it is not a cron line") {
				t.Fatalf("%q: the parser refuses what was found right", spec)
			}
			return
		}
		start := time.Unix(unix%(1<<33), 0)
		at := start
		for range 6 {
			next := s.Next(at)
			if !next.After(at) || next.Nanosecond() != 0 {
				t.Fatalf("%q in %s: %s after %s", spec, zone, next, at)
			}
			between := at.Add(next.Sub(at) / 1000 * time.Duration(part%1000))
			if again := s.Next(between); !again.Equal(next) {
				t.Fatalf("%q in %s: %s after %s, and %s after %s", spec, zone, next, at, again, between)
			}
			if probe := between.Add(time.Second); !s.Ticks(next) || probe.Before(next) && s.Ticks(probe) {
				t.Fatalf("%q in %s: Ticks does not agree with Next, %s", spec, zone, next)
			}
			if zone == "UTC" && s.every == 0 {
				if want, err := cron.ParseStandard(spec); err != nil || !want.Next(between.UTC()).IsZero() && !want.Next(between.UTC()).Equal(next) {
					t.Fatalf("%q: %s after %s, the library says %s (%v)", spec, next, between.UTC(), want.Next(between.UTC()), err)
				}
			}
			at = next
		}
		betweenAgrees(t, s, start, at.Add(time.Duration(part)*time.Second), int(part%8))
	})
}
