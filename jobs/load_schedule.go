package jobs

import (
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/jobs/schedule"
)

// schedule reads when the job ticks.
func (l *loader) schedule(job config.Node, t map[string]config.Node, j *Job) {
	zone, known := l.zone(t["timezone"])
	node := t["schedule"]
	if !node.Exists() {
		job.Fail("job %s has no schedule: write schedule = \"0 */3 * * *\"", j.Name)
		return
	}
	spec, ok := node.Text()
	if !ok {
		return
	}
	schedule, err := schedule.ParseIn(spec, zone)
	if err != nil {
		node.Fail("schedule = %q: %s", spec, err)
		return
	}
	if !known {
		return
	}
	j.Schedule = schedule
	for _, odd := range schedule.Odd() {
		node.Warn("schedule = %q: %s", spec, odd)
	}
	if schedule.IsEvery() && t["timezone"].Exists() {
		t["timezone"].Warn("timezone does nothing with %q, which counts from midnight UTC of 1970-01-01: take it out, or write a cron line", spec)
	}
}

// zone reads a time zone, UTC where there is none; not known: there is such a
// key, and it is wrong.
func (l *loader) zone(node config.Node) (zone *time.Location, known bool) {
	if !node.Exists() {
		return time.UTC, true
	}
	name, ok := node.Text()
	if !ok {
		return time.UTC, false
	}
	if zone, ok := l.zones[name]; ok {
		return zone, true
	}
	zone, err := schedule.LoadZone(name)
	if err != nil {
		node.Fail("%s", err)
		return time.UTC, false
	}
	l.zones[name] = zone
	return zone, true
}
