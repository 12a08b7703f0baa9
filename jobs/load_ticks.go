package jobs

import (
	"time"

	"github.com/quotactl/quotactl/budget/config"
)

// The bounds of how ticks are caught up, and pages and commands tried again.
const (
	maxCatchUp   = 1000
	maxRetries   = 10
	maxRetryWait = 5 * time.Minute
)

// readTicks reads what becomes of ticks that come late or while a pass is under way,
// and of what fails.
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
	if t["max_late"].Exists() && j.CatchUp == CatchUpNone {
		t["max_late"].Warn("max_late does nothing without catch_up = %q or %q: a tick that is more than a minute late is missed", CatchUpLast, CatchUpAll)
	}
	if overlap, ok := t["overlap"].OneOf(string(Skip), string(Queue), string(Allow)); ok {
		j.Overlap = Overlap(overlap)
	}
	if j.Checkpoint > 0 && j.Overlap == Allow {
		t["checkpoint"].Fail("checkpoint and overlap = %q are both given: two passes of a region would go on from one place; keep one of them", Allow)
	}
	if retries, ok := t["retries"].Number(0, maxRetries); ok {
		j.Retries = int(retries)
	}
	if t["retry_wait"].Exists() && j.Retries == 0 {
		t["retry_wait"].Warn("retry_wait does nothing without retries")
	}
}
