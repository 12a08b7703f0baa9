package jobs

import (
	"testing"
	"time"
)

// What a stop cuts is drained where it had spent, whoever spent it, and skipped where
// it had not.
func TestWhatAStopCutIsDrainedWhereItHadSpent(t *testing.T) {
	for name, test := range map[string]struct {
		cut  *ending
		run  Run
		want string
	}{
		"had spent":              {&ending{outcome: Skipped, reason: ReasonDrained}, Run{Units: 3, Calls: 3}, "drained stop"},
		"had called for nothing": {&ending{outcome: Skipped, reason: ReasonDrained}, Run{Calls: 1}, "drained stop"},
		"at once":                {&ending{outcome: Skipped, reason: ReasonInterrupted}, Run{Units: 3}, "drained interrupted"},
		"had not spent":          {&ending{outcome: Skipped, reason: ReasonDrained}, Run{}, "skipped drained"},
		"its timeout":            {&ending{outcome: TimedOut, reason: ReasonTimeout}, Run{Units: 3}, "timed_out timeout"},
	} {
		end := test.cut.of(test.run)
		if got := string(end.outcome) + " " + end.reason; got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	var none *ending
	if none.of(Run{Units: 1}) != nil {
		t.Error("a run that is complete has an ending")
	}
}

// A pass is drained where one of its runs is; a failure tells more than that, and a
// region that was not started less.
func TestAPassOfDrainedRuns(t *testing.T) {
	for want, runs := range map[Outcome][]Run{
		Drained: {{Outcome: Succeeded}, {Outcome: Exhausted}, {Outcome: Drained}, {Outcome: Skipped}},
		Failed:  {{Outcome: Drained}, {Outcome: Failed}},
	} {
		r := Record{Runs: runs, Started: Instant{time.Now()}}
		if r.conclude(); r.Outcome != want {
			t.Errorf("%s, want %s", r.Outcome, want)
		}
	}
}
