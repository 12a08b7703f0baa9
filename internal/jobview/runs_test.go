package jobview

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/jobs"
)

// A run of a starved job is shown as that.
func TestStarvedRuns(t *testing.T) {
	at := time.Date(2026, 3, 4, 9, 0, 0, 0, time.UTC)
	last := answer.Instant(at.Add(-48 * time.Hour))
	run := answer.Run{Job: "pull", Tick: jobs.Instant{Time: at}, Run: jobs.Run{Region: "US", Outcome: jobs.Exhausted, Reason: "limit"}, LastSuccess: &last, Starved: true}
	check.Equal(t, Runs(screen.Pipe(), at, []answer.Run{run}, false), `TICK                  JOB   REGION  OUTCOME          UNITS  TOOK
2026-03-04 09:00:00Z  pull  US      starved (limit)      -     -
  starved: without a complete pass for longer than its stale_after
  its last pass of all regions that succeeded ended at 2026-03-02 09:00:00Z
`, "runs")
}
