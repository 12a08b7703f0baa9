package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// planned is when docs/plan.md asks: a plan depends on the time of day.
var planned = time.Date(2026, 11, 27, 3, 55, 19, 0, time.UTC)

// mainThen is the program at the instant planned.
func mainThen() {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // what serves signals begins outside of the bubble
	args := os.Args
	os.Args = args[:1] // those of a test
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "then", F: func(t *testing.T) {
			synctest.Test(t, func(*testing.T) {
				time.Sleep(time.Until(planned))
				os.Args = args
				main() // exits
			})
		},
	}}, nil, nil)
}

// newPlanWay is a way in whose program runs at the instant planned.
func newPlanWay(t *testing.T) *docWay {
	w := newDocWay(t, "docs/plan.md", 10_000)
	bin := t.TempDir()
	test := must.Get(os.Executable())(t)
	must.Do(t, os.Symlink(test, filepath.Join(bin, "quotactl-then")))
	must.Do(t, os.WriteFile(filepath.Join(bin, "quotactl"), []byte("#!/bin/sh\nexec '"+bin+"/quotactl-then' \"$@\"\n"), 0o700)) //nolint:gosec // a program
	w.env = append(w.env, "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return w
}

// What docs/plan.md shows is what the commands write at that instant.
func TestDocumentedPlan(t *testing.T) {
	t.Parallel()
	effort.Processes(t)
	w := newPlanWay(t)
	const documented = "2026-11-27 03:00:00Z"
	hour := documented // of the first call that does not fit
	says := func(name string) {
		t.Helper()
		w.write(name+".run", "exec 2>&1\n"+w.block("sh", name))
		if got, want := string(w.run(0, "sh", name+".run")), strings.ReplaceAll(w.block("text", name), documented, hour); got != want {
			t.Errorf("%s said\n%s\nwant\n%s", name, got, want)
		}
	}
	for _, name := range []string{"plan", "set", "other", "check"} {
		says(name)
	}
	w.run(0, "sh", "-ec", w.block("sh", "ci")) // CI stops at the first command that fails
	w.run(75, "sh", "-ec", strings.Replace(w.block("sh", "ci"), "larger.toml", "costs.toml", 1))
	says("status")
	says("json")
	charged := json.NewDecoder(bytes.NewReader(w.run(0, "sh", "-c", "for i in $(seq 80); do quotactl charge youtube/key1 search.list --job backfill --json || exit; done")))
	for range 76 { // 75 fit; the ledger's clock goes on in real time, and a busy machine needs five minutes for all calls
		var call struct{ At time.Time }
		must.Do(t, charged.Decode(&call))
		hour = call.At.UTC().Truncate(time.Hour).Format("2006-01-02 15:04:05Z")
	}
	says("replay")
}

// The line of docs/plan.md for a crontab writes the plan if a pass lacks units, else nothing.
func TestDocumentedPlanFromCron(t *testing.T) {
	t.Parallel()
	effort.Processes(t)
	w := newDocWay(t, "docs/plan.md", 10_000)
	_, command, _ := strings.Cut(w.block("crontab"), "0 16 * * * ")
	w.run(0, "quotactl", "lock", "youtube/key1", "--for", "72h")
	if got := string(w.run(0, "sh", "-c", command)); !strings.HasPrefix(got, "short: ") {
		t.Errorf("it wrote %q", got)
	}
	w.run(0, "quotactl", "unlock", "youtube/key1")
	w.edit("10_000", "20_000")
	if got := string(w.run(0, "sh", "-c", command)); got != "" {
		t.Errorf("it wrote %q", got)
	}
}
