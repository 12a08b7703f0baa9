package budget

import (
	"cmp"
	"maps"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
)

// JobSays is what a job's table says about every charge with the job's label, whoever
// makes it. What the call says comes first.
type JobSays struct {
	// Floor is how many units each call leaves for others; 0: none.
	Floor int64
	// OnStoreError is empty if the upstream decides.
	OnStoreError Policy
	// MaxWait is the longest wait for units; nil: the job does not say.
	MaxWait *time.Duration
}

// ForJob is the same budget with other settings for a job's charges than the
// configuration has. It owns nothing to close.
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

// floor is how many units a call leaves, and the job that says so: the call's own
// where it has one.
func (s *Spec) floor(c Call) (units int64, job string) {
	switch says := s.Jobs[c.Labels.Job]; {
	case c.Floor == NoFloor:
		return 0, ""
	case c.Floor == 0 && says.Floor > 0:
		return says.Floor, c.Labels.Job
	}
	return c.Floor, ""
}

// nameFloor tells in a refusal by a limit which floor the limit was held to.
func (b *Budget) nameFloor(refused *RefusedError, call Call, l limit.Limit) {
	if l.Counts != limit.CountCalls {
		refused.Floor, refused.FloorJob = b.spec.floor(call)
	}
}

// policy is the first that is set: call, operation, job, upstream, closed.
func (s *Spec) policy(c Call) Policy {
	return cmp.Or(c.OnStoreError, s.Costs[c.Operation].OnStoreError, s.Jobs[c.Labels.Job].OnStoreError, s.OnStoreError, Closed)
}

// MaxWait is the longest wait of a call for units, as its job says; false if the job
// does not say.
func (s *Spec) MaxWait(labels Labels) (longest time.Duration, said bool) {
	if wait := s.Jobs[labels.Job].MaxWait; wait != nil {
		return *wait, true
	}
	return 0, false
}
