package jobs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// counts is a script that notes each time it is started.
const counts = `echo x >>starts; n=$(wc -l <starts); `

// starts is how often it was.
func (w *world) starts() int {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "starts"))
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Count(string(text), "x")
}

// A command that failed is started again, as often as the job says; one that has
// said that the units are gone, or could not be started, is not.
func TestACommandIsTriedAgain(t *testing.T) {
	for script, want := range map[string]struct {
		Run
		starts int
	}{
		"exit 0":                           {Run{Outcome: Succeeded, Attempts: 1}, 1},
		"test $n -ge 3 || exit 4":          {Run{Outcome: Succeeded, Attempts: 3}, 3},
		"test $n -ge 2 || kill -9 $$":      {Run{Outcome: Succeeded, Attempts: 2}, 2},
		"exit 4":                           {Run{Outcome: Failed, Reason: "exit 4", Attempts: 3}, 3},
		"exit 75":                          {Run{Outcome: Exhausted, Reason: "exit 75", Attempts: 1}, 1},
		"test $n -ge 2 && exit 75; exit 1": {Run{Outcome: Exhausted, Reason: "exit 75", Attempts: 2}, 2},
	} {
		w := commandWorld(t, "retries = 2", counts+script)
		w.list[0].RetryWait = time.Millisecond
		got := w.onlyRun()
		if got.Outcome != want.Outcome || got.Reason != want.Reason || got.Attempts != want.Attempts || w.starts() != want.starts {
			t.Errorf("%s: %+v after %d starts, want %+v", script, got, w.starts(), want)
		}
		if want.Attempts > 1 {
			w.logged("level=WARN", "failed; trying again", "attempt=2", "region=")
		}
	}
	w := commandWorld(t, "retries = 2", "")
	w.list[0].Command = []string{"./not-there"}
	if run := w.onlyRun(); run.Reason != ReasonCommand || run.Attempts != 1 {
		t.Errorf("%+v, want one try to start it", run)
	}
}

// The run's timeout is that of all its tries, and nothing is tried again past it.
func TestACommandThatTimedOutIsNotTriedAgain(t *testing.T) {
	w := commandWorld(t, "retries = 9\ngrace = \"0s\"", counts+`test $n -ge 3 && exec sleep 60; exit 1`)
	w.list[0].RetryWait, w.list[0].Timeout = time.Millisecond, 3*time.Second // the machine may be busy
	if run := w.onlyRun(); run.Outcome != TimedOut || run.Attempts != 3 || w.starts() != 3 {
		t.Errorf("%+v after %d starts", run, w.starts())
	}
	w = commandWorld(t, "retries = 9", counts+`exit 1`)
	w.list[0].RetryWait, w.list[0].Timeout = time.Hour, time.Minute
	if run := w.onlyRun(); run.Outcome != Failed || run.Reason != "exit 1" || run.Attempts != 1 {
		t.Errorf("%+v, want it failed at once", run)
	}
}

// What a try has left behind does not run beside the next one.
func TestATryLeavesNothingBesideTheNext(t *testing.T) {
	w := programWorld(t, "retries = 1", "fail", "once")
	w.list[0].RetryWait = time.Millisecond
	listener := w.listen()
	ended := w.begin(t.Context(), nil)
	parent, child := w.callers(listener)
	parent.letGo()
	child.ends()
	if run := result(t, ended).Runs[0]; run.Outcome != Succeeded || run.Attempts != 2 {
		t.Errorf("%+v", run)
	}
}

// A command whose pass is taken for dead is not started again: it may have failed by
// that.
func TestACommandOfALostPassIsNotTriedAgain(t *testing.T) {
	for _, retries := range []string{"", "retries = 9"} {
		w := programWorld(t, retries, "call", "there", "exit")
		w.list[0].RetryWait = time.Millisecond
		listener := w.listen()
		r := w.runner()
		ended := make(chan Pass, 1)
		go func() { ended <- r.Once(t.Context(), nil)[0] }()
		c := w.caller(listener)
		w.takesForDead(r)
		c.letGo()
		c.ends()
		if run := result(t, ended).Runs[0]; run.Outcome != Lost || run.Reason != ReasonFenced {
			t.Errorf("%q: %+v, want it lost", retries, run)
		}
		if err := listener.SetDeadline(time.Now().Add(10 * time.Millisecond)); err != nil { // who has called in waits there
			t.Fatal(err)
		}
		if conn, err := listener.Accept(); err == nil {
			t.Errorf("%q: it was started again", retries)
			_ = conn.Close()
		}
	}
}
