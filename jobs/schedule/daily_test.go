package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/effort"
)

// A daily schedule ticks once for each day of its zone's calendar. A time that
// a day lacks ticks at the first instant after the gap, if need be on the next
// day; so does the time of a date that the zone left out, and only where the
// next day's tick is that same instant do two dates share one.
func TestDailySchedulesTickOnceADay(t *testing.T) {
	seed := effort.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	list := []string{"America/New_York", "Europe/London", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Cairo", "America/Havana", "Africa/Casablanca",
		"Antarctica/Troll", "America/Nuuk", "Pacific/Apia", "Pacific/Fakaofo", "Pacific/Kwajalein", "Pacific/Kanton", "Pacific/Kiritimati"}
	all := zones(t)
	for range 12 {
		list = append(list, all[random.IntN(len(all))])
	}
	for _, zone := range list {
		hour, minute := random.IntN(24), random.IntN(60)
		if random.IntN(2) == 0 {
			hour, minute = hour%4, minute/15*15
		}
		daily(t, zone, hour, minute)
	}
	for _, zone := range []string{"America/Sao_Paulo", "Africa/Cairo", "Pacific/Apia", "Pacific/Kwajalein", "America/Havana"} {
		daily(t, zone, 0, 0)
	}
}

// daily follows one schedule from 1973 to 2048.
func daily(t *testing.T, zone string, hour, minute int) {
	s := schedule(t, fmt.Sprintf("%d %d * * *", minute, hour), zone)
	wall := time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute
	// dateOf is the date that a tick stands for.
	dateOf := func(tick time.Time) time.Time {
		date, clock := localDay(tick, s.Zone())
		if clock < wall { // it is of the day before, whose end was skipped
			date = date.AddDate(0, 0, -1)
		}
		return date
	}
	tick := s.Next(time.Date(1973, time.January, 1, 0, 0, 0, 0, time.UTC))
	for tick.Year() < 2048 {
		next := s.Next(tick)
		if !next.After(tick) {
			t.Fatalf("%q in %s: after %s comes %s", s, zone, tick, next)
		}
		days := dateOf(next).Sub(dateOf(tick)) / (24 * time.Hour)
		before, _ := localDay(next.Add(-time.Second), s.Zone())
		date, clock := localDay(next, s.Zone())
		leftOut := date.Sub(before) == 48*time.Hour
		if days != 1 && (days != 2 || !leftOut || clock != wall) {
			t.Errorf("%q in %s: %s is for %s, and the next tick, %s, for %s", s, zone, tick, dateOf(tick).Format(time.DateOnly), next, dateOf(next).Format(time.DateOnly))
		}
		tick = next
	}
}

// localDay is the date of an instant in a zone, and the time on its clock.
func localDay(at time.Time, zone *time.Location) (date time.Time, clock time.Duration) {
	local := at.In(zone)
	date = time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC)
	return date, time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute + time.Duration(local.Second())*time.Second
}
