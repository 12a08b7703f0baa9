package jobs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// result is a pass's end, waited for with patience.
func result(t *testing.T, ended <-chan Pass) Pass {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case p := <-ended:
		return p
	case <-timer.C:
		t.Fatal("the pass does not end")
		return Pass{}
	}
}

// Out of time: the whole group ends, also what does not want to. The time is the
// machine's own; where the processes do not begin within it, there is more.
func TestCommandTimeout(t *testing.T) {
	for timeout := 100 * time.Millisecond; !timesOut(t, timeout); timeout *= 2 {
		if timeout > patience {
			t.Fatal("the processes do not begin")
		}
	}
}

// timesOut has a command run out of time; false where it, or what it starts, did
// not begin within it.
func timesOut(t *testing.T, timeout time.Duration) bool {
	t.Helper()
	w := programWorld(t, "grace = \"0s\"", "stubborn", "parent")
	w.list[0].Timeout = timeout
	listener := w.listen()
	ended := w.begin(t.Context(), nil)
	first, second := w.callerWithin(timeout, listener), w.callerWithin(timeout, listener)
	check.EqualSlices(t, outcomes(result(t, ended)), []string{"timed_out timeout"}, "outcomes")
	if first == nil || second == nil {
		return false
	}
	first.ends()
	second.ends()
	w.logged("level=WARN", "command killed")
	return true
}

// A drain kills, once the grace is over, processes that got a signal to end and did not.
func TestCommandDrainKills(t *testing.T) {
	w := programWorld(t, "grace = \"0s\"\nregions = [\"US\", \"GB\"]", "stubborn", "parent")
	listener, drain := w.listen(), make(chan struct{})
	ended := w.begin(t.Context(), drain)
	parent, child := w.callers(listener)
	close(drain)
	check.EqualSlices(t, outcomes(result(t, ended)), []string{"US skipped drained", "GB skipped drained"}, "outcomes")
	parent.ends()
	child.ends()
	check.Equal(t, w.state().NextRegion, "GB", "the next pass begins with, want the region that was not started")
}

// A pass whose command was started is over when its daemon stops, though it charged nothing:
// its request is not begun again.
func TestACommandThatWasStartedIsNotGivenBack(t *testing.T) {
	w := programWorld(t, "grace = \"0s\"", "stubborn", "parent")
	must.Get(Trigger(t.Context(), w.store, w.list[0], nil, "to try"))(t)
	listener := w.listen()
	stop := w.daemon(false)
	parent, child := w.callers(listener)
	stop()
	parent.ends()
	child.ends()
	if s := w.state(); len(s.Active)+len(s.Waiting)+len(s.Requests) != 0 || s.Last == nil {
		t.Errorf("state %+v", s)
	}
}

// A second signal kills at once, however long the grace.
func TestCommandInterrupted(t *testing.T) {
	w := programWorld(t, "grace = \"1h\"", "stubborn", "parent")
	listener, drain := w.listen(), make(chan struct{})
	ctx, interrupt := context.WithCancelCause(t.Context())
	defer interrupt(nil)
	ended := w.begin(ctx, drain)
	parent, child := w.callers(listener)
	close(drain)
	interrupt(errors.New("second signal"))
	check.Equal(t, result(t, ended).Outcome, Skipped, "want skipped")
	parent.ends()
	child.ends()
}

// What a command has started has the grace too, when the command itself is gone.
func TestCommandDrainLetsAllEnd(t *testing.T) {
	w := programWorld(t, "grace = \"1h\"", "tidy", "parent")
	listener, drain := w.listen(), make(chan struct{})
	ended := w.begin(t.Context(), drain)
	parent, child := w.callers(listener)
	close(drain)
	must.Equal(t, child.hears(), "ending", "the child says: no signal to end has come")
	parent.ends()
	child.letGo()
	check.EqualSlices(t, outcomes(result(t, ended)), []string{"skipped drained"}, "outcomes")
	child.ends()
	w.logged("line=\"tidied up\"")
	if strings.Contains(w.log.String(), "command killed") {
		t.Errorf("killed within its grace:\n%s", w.log)
	}
}

// What a command leaves behind does not hang the run that it holds the output of.
func TestCommandLeavesSomethingBehind(t *testing.T) {
	w := programWorld(t, "", "leave")
	listener := w.listen()
	ended := w.begin(t.Context(), nil)
	parent, child := w.callers(listener)
	parent.letGo()
	check.EqualSlices(t, outcomes(result(t, ended)), []string{"succeeded"}, "outcomes")
	child.ends()
	w.logged("line=done")
	w.logged("level=WARN", "still held its output and was killed")
}

// Nor does what has left the group, though it cannot be killed with it.
func TestCommandLeavesItsGroup(t *testing.T) {
	w := programWorld(t, "", "leave", "the group")
	listener := w.listen()
	ended := w.begin(t.Context(), nil)
	parent, child := w.callers(listener)
	parent.letGo()
	check.EqualSlices(t, outcomes(result(t, ended)), []string{"succeeded"}, "outcomes")
	child.letGo()
	child.ends()
	w.logged("level=WARN", "has left its process group")
}

// As many run at once as the job says, and no more.
func TestCommandParallel(t *testing.T) {
	w := programWorld(t, "regions = [\"US\", \"GB\", \"DE\", \"FR\"]\nparallel = 2\ngrace = \"0s\"", "call", "{region}")
	listener, drain := w.listen(), make(chan struct{})
	ended := w.begin(t.Context(), drain)
	called := []string{w.caller(listener).name, w.caller(listener).name}
	slices.Sort(called)
	check.EqualSlices(t, called, []string{"GB", "US"}, "callers")
	close(drain)
	result(t, ended)
	check.Equal(t, w.state().NextRegion, "DE", "the first region that was not started")
}

// Without parallel, one at a time when each job has one pass.
func TestCommandOneAtATime(t *testing.T) {
	w := programWorld(t, "regions = [\"US\", \"GB\"]", "call", "{region}")
	listener := w.listen()
	ended := w.begin(t.Context(), nil)
	for _, region := range []string{"US", "GB"} {
		c := w.caller(listener)
		check.EqualSlices(t, []string{c.name}, []string{region}, "caller")
		c.letGo()
		c.ends()
	}
	check.EqualSlices(t, outcomes(result(t, ended)), []string{"US succeeded", "GB succeeded"}, "outcomes")
}
