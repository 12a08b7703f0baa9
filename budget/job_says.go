package budget

import (
	"cmp"
	"maps"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
)

// JobSays holds the settings of a job's table that apply to every charge with the job's
// label, whichever program makes it. A call's own settings come first.
type JobSays struct {
	// Floor is how many units each call leaves for others; 0: none.
	Floor int64
	// OnStoreError is empty if the upstream decides.
	OnStoreError Policy
	// MaxWait is the longest wait for units; nil: the job sets none.
	MaxWait *time.Duration
}

// ForJob returns the same budget with other settings for one job's charges. Closing it
// closes nothing that b owns.
func (b *Budget) ForJob(name string, says JobSays) *Budget {
	job := *b
	job.spec.Jobs = maps.Clone(b.spec.Jobs)
	if job.spec.Jobs == nil {
		job.spec.Jobs = map[string]JobSays{}
	}
	job.spec.Jobs[name] = says
	job.closers = nil
	return &job
}

// floor returns how many units must remain after a call, and the job that says so;
// the job is empty if the call's own floor counts.
func (s *Spec) floor(c Call) (units int64, job string) {
	switch says := s.Jobs[c.Labels.Job]; {
	case c.Floor == NoFloor:
		return 0, ""
	case c.Floor == 0 && says.Floor > 0:
		return says.Floor, c.Labels.Job
	}
	return c.Floor, ""
}

// nameFloor notes in a refusal by limit l which floor applied. Limits that count calls
// have none.
func (b *Budget) nameFloor(refused *RefusedError, call Call, l limit.Limit) {
	if l.Counts != limit.CountCalls {
		refused.Floor, refused.FloorJob = b.spec.floor(call)
	}
}

// nameFloorOf is nameFloor for the limit of which the host's allowance has too little left;
// an empty name: it did not decide.
func (b *Budget) nameFloorOf(refused *RefusedError, call Call, name string) {
	if l, known := b.limitNamed(name); known {
		b.nameFloor(refused, call, l)
	}
}

// policy is the first that is set of: the call's, the operation's, the job's, the
// upstream's, Closed.
func (s *Spec) policy(c Call) Policy {
	return cmp.Or(c.OnStoreError, s.Costs[c.Operation].OnStoreError, s.Jobs[c.Labels.Job].OnStoreError, s.OnStoreError, Closed)
}

// MaxWait is the longest wait of a call for units, as its job sets it; false if the job
// sets none.
func (s *Spec) MaxWait(labels Labels) (longest time.Duration, said bool) {
	if wait := s.Jobs[labels.Job].MaxWait; wait != nil {
		return *wait, true
	}
	return 0, false
}
