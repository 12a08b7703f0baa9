package schedule_test

import (
	"fmt"
	"time"

	"github.com/quotactl/quotactl/jobs/schedule"
)

// A schedule fires by the clock of its zone: half past two does not exist on
// the day the clocks go forward, so the tick comes at the end of the gap.
func ExampleParse() {
	s, err := schedule.Parse("30 2 * * *", "America/New_York")
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 3, 7, 12, 0, 0, 0, time.UTC)
	for range 2 {
		at = s.Next(at)
		fmt.Println(at.UTC().Format(time.RFC3339))
	}
	// Output:
	// 2026-03-08T07:00:00Z
	// 2026-03-09T06:30:00Z
}
