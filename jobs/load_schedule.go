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

// zone reads a time zone; without the key it is UTC. known is false if the key exists and
// is wrong.
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

// The bounds of catch_up_limit, retries and retry_wait.
const (
	maxCatchUp   = 1000
	maxRetries   = 10
	maxRetryWait = 5 * time.Minute
)

// readTicks reads what happens to ticks that come late or while a pass is under way, and
// to failures.
func (j *Job) readTicks(t map[string]config.Node) {
	if catchUp, ok := t["catch_up"].OneOf(string(CatchUpNone), string(CatchUpLast), string(CatchUpAll)); ok {
		j.CatchUp = CatchUp(catchUp)
	}
	if limit, ok := t["catch_up_limit"].Number(1, maxCatchUp); ok {
		j.CatchUpLimit = int(limit)
		if j.CatchUp != CatchUpAll {
			t["catch_up_limit"].Warn("catch_up_limit does nothing without catch_up = %q", CatchUpAll)
		}
	}
	if j.CatchUp == CatchUpLast {
		j.CatchUpLimit = 1
	}
	if set, ok := t["on_exhausted"].OneOf(string(StopExhausted), string(DeferExhausted)); ok {
		j.OnExhausted = OnExhausted(set)
	}
	if t["max_late"].Exists() && j.CatchUp == CatchUpNone && j.OnExhausted != DeferExhausted {
		t["max_late"].Warn("max_late does nothing without catch_up = %q or %q, or on_exhausted = %q: a tick that is more than a minute late is missed", CatchUpLast, CatchUpAll, DeferExhausted)
	}
	if overlap, ok := t["overlap"].OneOf(string(Skip), string(Queue), string(Allow)); ok {
		j.Overlap = Overlap(overlap)
	}
	if j.Checkpoint > 0 && j.Overlap == Allow {
		t["checkpoint"].Fail("checkpoint and overlap = %q are both given: two passes of a region would resume from one checkpoint; keep one of them", Allow)
	}
	if retries, ok := t["retries"].Number(0, maxRetries); ok {
		j.Retries = int(retries)
	}
	if t["retry_wait"].Exists() && j.Retries == 0 {
		t["retry_wait"].Warn("retry_wait does nothing without retries")
	}
}
