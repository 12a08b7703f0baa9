package main

import (
	"errors"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/jobs"
)

// What the store alone caused may succeed later; with any other failure the exit is as ever.
func TestTheExitOfPasses(t *testing.T) {
	run := func(outcome jobs.Outcome, reason string) jobs.Pass {
		return jobs.Pass{Record: jobs.Record{Outcome: outcome, Reason: reason, Runs: []jobs.Run{{Outcome: outcome, Reason: reason}}}}
	}
	fine, spent := run(jobs.Succeeded, ""), run(jobs.Exhausted, jobs.ReasonLimit)
	store, other, lost := run(jobs.Failed, jobs.ReasonStore), run(jobs.Failed, "status 500"), run(jobs.Lost, jobs.ReasonFenced)
	for name, c := range map[string]struct {
		passes []jobs.Pass
		want   int
	}{
		"none failed": {[]jobs.Pass{fine, spent}, 0},
		"the store":   {[]jobs.Pass{fine, store}, exitUnavailable},
		"both":        {[]jobs.Pass{store, other}, exitFailed},
		"in between":  {[]jobs.Pass{other, store}, exitFailed},
		"lost":        {[]jobs.Pass{lost}, exitFailed},
	} {
		var exit *exitError
		code := 0
		if errors.As(failure(c.passes), &exit) {
			code = exit.code
		}
		check.Equal(t, code, c.want, name)
	}
}
