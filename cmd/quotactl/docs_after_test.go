package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// What "Looking after jobs" of docs/jobs.md tells to run, beside the daemon that it
// speaks of, prints what it shows.
func TestDocumentedLookingAfter(t *testing.T) { runsBesideADaemon(t, "after", "job", "fetch.sh") }

// What "Go on when units return" tells to run prints what it shows.
func TestDocumentedDeferral(t *testing.T) { runsBesideADaemon(t, "deferred", "deferred") }

// runsBesideADaemon runs a block of docs/jobs.md beside a daemon, with the job of another
// block. That ticks in one to two hours: just before a tick fewer passes are complete by plan.
func runsBesideADaemon(t *testing.T, block string, job ...string) {
	t.Helper()
	t.Parallel()
	effort.Processes(t)
	w := newDocWay(t, "docs/jobs.md", 10_000)
	const documented = "0 */3 * * *"
	schedule := fmt.Sprintf("0 %d-23/3 * * *", (time.Now().UTC().Hour()+2)%3)
	w.write("costs.toml", w.block("toml", "costs.toml")+strings.ReplaceAll(w.block(append([]string{"toml"}, job...)...), documented, schedule))
	w.write("fetch.sh", w.block("sh", "fetch.sh"))
	log := must.Get(os.Create(filepath.Join(w.dir, "daemon.log")))(t)
	daemon := exec.CommandContext(t.Context(), "quotactl", "run")
	daemon.Dir, daemon.Env, daemon.Stderr = w.dir, w.env, log
	must.Do(t, daemon.Start())
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for !strings.Contains(string(w.run(0, "quotactl", "jobs", "--json")), `"followed": "`+schedule) {
		select {
		case <-look.C:
		case <-t.Context().Done():
			t.Fatal("the daemon has not looked at the job")
		}
	}
	w.write("after.run", "exec 2>&1\n"+w.block("sh", block))
	got := strings.ReplaceAll(string(w.run(0, "sh", "after.run")), schedule, documented)
	if want := w.block("text", block); nowhere(got) != nowhere(want) {
		t.Errorf("it said\n%s\nwant\n%s", got, want)
	}
	must.Do(t, daemon.Process.Signal(syscall.SIGTERM))
	check.NoError(t, daemon.Wait())
}

// What docs/jobs.md tells to run about needs prints what it shows.
func TestDocumentedNeeds(t *testing.T) {
	runsDocumented(t, "needs", func(w *docWay) string {
		return w.block("toml", "job", "fetch.sh") + w.block("toml", "job", "whole.sh")
	})
}

// What "Whole passes or none" tells to run prints what it shows.
func TestDocumentedHold(t *testing.T) {
	runsDocumented(t, "hold", func(w *docWay) string { return w.block("toml", "hold") })
}

// runsDocumented runs a block of docs/jobs.md with these jobs.
func runsDocumented(t *testing.T, block string, jobs func(w *docWay) string) {
	t.Helper()
	t.Parallel()
	effort.Processes(t)
	w := newDocWay(t, "docs/jobs.md", 10_000)
	w.write("costs.toml", w.block("toml", "costs.toml")+jobs(w))
	w.write("fetch.sh", w.block("sh", "fetch.sh"))
	w.write("block.run", w.block("sh", block))
	got := string(w.run(0, "sh", "block.run"))
	if want := w.block("text", block); nowhere(got) != nowhere(want) {
		t.Errorf("it said\n%s\nwant\n%s", got, want)
	}
}

var (
	somebody  = regexp.MustCompile(`\S+@\S+`)
	roughSpan = regexp.MustCompile(`\b(\d+(\.\d+)?(d|h|ms?|s))+\b`)
)

// nowhere is a string without what differs from one machine and moment to another: who,
// when, how long, and where lines break.
func nowhere(text string) string {
	text = roughSpan.ReplaceAllString(timeless(somebody.ReplaceAllString(text, "SOMEBODY ")), "SPAN")
	return strings.Join(strings.Fields(text), " ")
}
