package main

import (
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/quotactl/quotactl/internal/effort"
)

// What docs/plan.md tells to run, in its order, prints what it shows, but for numbers, plots
// and the hour that the advice names: they depend on the time of day.
func TestDocumentedPlan(t *testing.T) {
	t.Parallel()
	effort.Processes(t)
	w := newDocWay(t, "docs/plan.md", 10_000)
	says := func(name string) {
		t.Helper()
		w.write(name+".run", "exec 2>&1\n"+w.block("sh", name))
		if got, want := string(w.run(0, "sh", name+".run")), w.block("text", name); atAnyHour(got) != atAnyHour(want) {
			t.Errorf("%s said\n%s\nwant\n%s", name, got, want)
		}
	}
	for _, name := range []string{"plan", "set", "other", "check"} {
		says(name)
	}
	w.run(0, "sh", "-c", w.block("sh", "ci"))
	w.run(75, "sh", "-c", strings.Replace(w.block("sh", "ci"), "larger.toml", "costs.toml", 1))
	says("status")
	says("json")
	w.run(0, "sh", "-c", "for i in $(seq 80); do quotactl charge youtube/key1 search.list --job backfill || exit; done")
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

var aNumber = regexp.MustCompile(`\d+(h|m|s)?`)

// atAnyHour is a text without what depends on the time of day, and without the breaks of lines.
func atAnyHour(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == '^' || r == '|' || r >= '▁' && r <= '█' {
			return ' '
		}
		return r
	}, text)
	text = aNumber.ReplaceAllString(instantText.ReplaceAllString(text, "AT"), "N")
	return strings.Join(strings.FieldsFunc(text, unicode.IsSpace), " ")
}
