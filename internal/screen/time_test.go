package screen

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// The time shown is never before the instant.
func TestTimeOfAPipe(t *testing.T) {
	second := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)
	for at, want := range map[time.Time]string{
		{}:                                  "-",
		second:                              "2026-12-31 23:59:59Z",
		second.Add(time.Microsecond):        "2027-01-01 00:00:00Z",
		second.In(time.FixedZone("", 3600)): "2026-12-31 23:59:59Z",
	} {
		check.Equal(t, Pipe().Time(at), want, at, "is shown as")
	}
}

// A terminal shows local times, and how far away they are.
func TestTimeOfATerminal(t *testing.T) {
	zone := must.Get(time.LoadLocation("Europe/Berlin"))(t)
	now := time.Date(2026, 10, 24, 22, 30, 0, 0, zone) // the clocks go back in the night
	on := Screen{Terminal: true, Zone: zone, Now: now}
	for after, want := range map[time.Duration]string{
		0:                              "22:30:00 (now)",
		12 * time.Second:               "22:30:12 (in 12s)",
		-12 * time.Second:              "22:29:48 (12s ago)",
		59 * time.Minute:               "23:29:00 (in 59m)",
		time.Hour + time.Microsecond:   "23:31 (in 1h0m)",
		90 * time.Minute:               "Sun 00:00 (in 1h30m)",
		5 * time.Hour:                  "Sun 02:30 (in 5h0m)", // the second one
		47 * time.Hour:                 "Mon 20:30 (in 47h0m)",
		49 * time.Hour:                 "Mon 22:30 (in 2d1h)",
		-5*24*time.Hour + time.Hour:    "Mon 23:30 (4d23h ago)",
		7 * 24 * time.Hour:             "31 Oct 21:30 (in 7d0h)",
		90 * 24 * time.Hour:            "22 Jan 2027 21:30 (in 90d0h)",
		-300 * 24 * time.Hour:          "28 Dec 2025 21:30 (300d0h ago)",
		30*time.Minute + 1*time.Second: "23:00:01 (in 30m)",
	} {
		check.Equal(t, on.Time(now.Add(after)), want, after)
	}
	check.Equal(t, on.Time(time.Time{}), "-", "no time")
}
