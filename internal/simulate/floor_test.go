package simulate

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/jobs"
)

// least is how many units of a day must stand on kept pages, whatever goes wrong: the
// limit, less
//
//   - what the requests cost that failed, or whose answers nobody was there to get;
//   - what requests cost that were under way at one of its midnights, and so count in
//     two days of the ledger and in one of the upstream;
//   - what charges took whose answers an outage kept, and which nobody could use;
//   - what the floor of the job that fills the day keeps for the evening's others, but
//     for what these are certain to take. Where anything goes wrong in the evening, they
//     are certain of nothing.
func (m *machine) least(t *testing.T, day int, d *day) int64 {
	t.Helper()
	_, list := load(t, m.config)
	if m.month.important != "" {
		return 0 // what its month promises is of the whole month
	}
	backfill := jobOf(list, filling)
	kept := backfill.Floor
	if from := m.month.filled(day); !m.month.troubled(from.Add(-time.Hour), m.month.midnight(day+1)) {
		kept -= claims(list, m.month, day)
	}
	return limit - kept - d.failed - d.unheard - d.astride - d.unanswered
}

// claims are the units that the jobs which leave no floor take of a day for certain
// once it is filled: that is by the last tick of the dearest of them at the latest.
func claims(list []*jobs.Job, m month, day int) (units int64) {
	end := m.midnight(day + 1)
	last, dearest := time.Time{}, int64(0)
	for _, j := range list {
		if j.Floor > 0 || passUnits(j) < dearest {
			continue
		}
		for tick := j.Next(m.filled(day)); tick.Before(end); tick = j.Next(tick) {
			last, dearest = tick, passUnits(j)
		}
	}
	for _, j := range list {
		if j.Floor > 0 {
			continue
		}
		for tick := j.Next(last.Add(-time.Second)); tick.Add(j.Stagger + slowest).Before(end); tick = j.Next(tick) {
			units += passUnits(j)
		}
	}
	return units
}

// passUnits is what a pass of a job costs that has no page more than its max_pages.
func passUnits(j *jobs.Job) int64 {
	price := int64(1)
	if j.Fetch.Operation == "search.list" {
		price = 100
	}
	return int64(len(j.Regions)) * int64(max(1, j.Fetch.MaxPages)) * price
}

// longest is the most that a request's reservation may be open: as long as its run.
func longest(list []*jobs.Job) (d time.Duration) {
	for _, j := range list {
		d = max(d, j.Timeout)
	}
	return d
}
