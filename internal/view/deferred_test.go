package view

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/jobs"
)

// A deferred pass says when it goes on, and if the job's next tick will come before that.
func TestDeferred(t *testing.T) {
	noon := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	v := answer.Job{Overview: jobs.Overview{Deferred: []jobs.DeferredPass{{Tick: jobs.Instant{Time: noon.Add(-6 * time.Hour)}, Part: 2, At: jobs.Instant{Time: noon.Add(3 * time.Hour)}, Regions: []string{"GB", "DE"}}}}}
	text := "deferred: GB DE until 2026-11-20 15:00:00Z (in 3h); part 2 of the pass of 2026-11-20 06:00:00Z"
	check.EqualSlices(t, Deferred(screen.Pipe(), v, noon), []string{text}, "without a further tick")
	v.NextTick = noon.Add(3*time.Hour + time.Second)
	check.EqualSlices(t, Deferred(screen.Pipe(), v, noon), []string{text}, "before the next tick")
	v.NextTick = noon.Add(2 * time.Hour)
	check.EqualSlices(t, Deferred(screen.Pipe(), v, noon), []string{
		"deferred: GB DE until the next tick, 2026-11-20 14:00:00Z (in 2h), which begins with what is left: the units return later, at 2026-11-20 15:00:00Z (in 3h); part 2 of the pass of 2026-11-20 06:00:00Z",
	}, "after the next tick")
}
