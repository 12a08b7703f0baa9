package answer

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// A run that found too few units is starved if the job's last complete pass, or else its first
// pass, is longer ago than its stale_after.
func TestStarving(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 3, 4, hour, 0, 0, 0, time.UTC) }
	exhausted := func(hour int) *Run {
		return &Run{Job: "pull", Tick: jobs.Instant{Time: at(hour)}, Run: jobs.Run{Outcome: jobs.Exhausted}}
	}
	store := memstore.New(nil)
	record := must.Get(json.Marshal(jobs.Record{Tick: jobs.Instant{Time: at(1)}, Outcome: jobs.Exhausted}))(t)
	must.Get(store.SwapJob(t.Context(), driver.JobSwap{Job: "pull", Text: []byte(`{}`), Records: []driver.JobRecord{{At: at(1).UnixMicro(), ID: "first", Text: record}}}))(t)

	for _, c := range []struct {
		about   string
		success time.Time
		run     *Run
		stale   time.Duration
		want    bool
	}{
		{"long after a success", at(1), exhausted(9), 7 * time.Hour, true},
		{"at its stale_after", at(2), exhausted(9), 7 * time.Hour, false},
		{"it succeeded since", at(12), exhausted(9), time.Hour, false},
		{"never, for long", time.Time{}, exhausted(9), 7 * time.Hour, true},
		{"never, since a short time", time.Time{}, exhausted(9), 8 * time.Hour, false},
		{"no stale_after", at(1), exhausted(9), 0, false},
		{"it failed", at(1), &Run{Job: "pull", Tick: jobs.Instant{Time: at(9)}, Run: jobs.Run{Outcome: jobs.Failed}}, time.Hour, false},
	} {
		s := Starving{State: store, Views: []Job{{Job: &jobs.Job{Name: "pull", StaleAfter: c.stale}, Overview: jobs.Overview{LastSuccess: c.success}}}}
		must.Do(t, s.Look(t.Context(), c.run))
		check.Equal(t, c.run.Starved, c.want, c.about)
		check.Equal(t, c.run.LastSuccess != nil, WantedUnits(c.run.Run), c.about)
	}
}
