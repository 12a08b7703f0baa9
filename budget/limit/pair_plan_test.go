package limit

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Beside a guarantee that lapses by plan, a call that counts in the next period is checked there.
func TestNextPeriodByPlan(t *testing.T) {
	shares := []Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 5, Plan: true}}
	day := CalendarWindow(must.Get(NewCalendar(Day, "UTC", 0))(t))
	check.Equal(t, Limit{Limit: 10, Window: day, Shares: shares}.ChecksNext(), true, "a calendar")
	check.Equal(t, Limit{Limit: 10, Window: day}.ChecksNext(), false, "without shares")
	check.Equal(t, Limit{Limit: 10, Window: RollingWindow(time.Hour), Shares: shares}.ChecksNext(), false, "a rolling limit has no next period")
}
