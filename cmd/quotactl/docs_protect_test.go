package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/effort"
)

var instantText = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z`)

// What docs/protect.md tells to run, in its order, prints what it shows.
func TestDocumentedProtection(t *testing.T) {
	t.Parallel()
	effort.Processes(t)
	w := newDocWay(t, "docs/protect.md", 10_000)
	w.write("costs.toml", w.block("toml", "costs.toml"))
	says := func(script, shown string) {
		t.Helper()
		w.write("step.run", "exec 2>&1\n"+w.block("sh", script))
		got, want := string(w.run(0, "sh", "step.run")), w.block("text", shown)
		if plainProtection(got) != plainProtection(want) {
			t.Errorf("it said\n%s\nwant\n%s", got, want)
		}
	}
	says("backfill", "backfill")
	says("starved", "starved")
	w.run(0, "quotactl", "reset", "youtube/key1", "--yes")
	w.write("costs.toml", w.block("toml", "costs.toml")+w.block("toml", "share"))
	says("check", "check")
	says("backfill", "refused")
	says("nightly", "nightly")
	w.write("step.run", w.block("sh", "history"))
	history := string(w.run(0, "sh", "step.run"))
	for _, want := range []string{"DAY", "JOB", "13000", "19000", "total"} { // of both days of the page
		if !strings.Contains(history, want) {
			t.Errorf("no %s in\n%s", want, history)
		}
	}
	w.write("step.run", w.block("sh", "each"))
	each := strings.Split(string(w.run(0, "sh", "step.run")), "\n")
	for _, job := range []string{"nightly", "backfill"} {
		if !slices.Contains(each, job) {
			t.Errorf("no days of %s in\n%s", job, strings.Join(each, "\n"))
		}
	}
}

// What docs/protect.md says of automatic headroom is what a new budget shows.
func TestDocumentedAutomaticHeadroom(t *testing.T) {
	t.Parallel()
	effort.Processes(t)
	w := newDocWay(t, "docs/protect.md", 10_000)
	head, _, _ := strings.Cut(w.block("toml", "costs.toml"), "[upstream.youtube.limit")
	w.write("costs.toml", head+w.block("toml", "automatic")+"[upstream.youtube.credential.key1]\n")
	w.shell("automatic")
}

// plainProtection is a string without instants, spans and the breaks of lines.
func plainProtection(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	text = instantText.ReplaceAllString(text, "AT")
	text = regexp.MustCompile(`fits in \S+,`).ReplaceAllString(text, "fits in SPAN,")
	// The test begins the next day with a reset, which the ledger mentions.
	return strings.Replace(text, " Charges up to AT no longer count and are not included.", "", 1)
}
