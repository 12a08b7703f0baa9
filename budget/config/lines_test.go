package config

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
)

// writer writes a configuration line by line, in one of the many forms that TOML
// allows, and remembers at which line it wrote the key that is at fault.
type writer struct {
	rng   *rand.Rand
	lines []string
	fault int
	plant int // so many keys from here on the fault is planted; −1 when it is
}

func (w *writer) chance(n int) bool { return w.rng.IntN(n) == 0 }

func (w *writer) line(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// noise is text between keys without a meaning.
func (w *writer) noise() {
	for w.chance(3) {
		w.line("%s", []string{"", "# a = 1", "   ", "\t# [table]", "# \"\"\""}[w.rng.IntN(5)])
	}
}

// key writes a key, and before or after it perhaps the one at fault.
func (w *writer) key(name, value string) {
	w.noise()
	w.line("%s%s %s= %s%s", strings.Repeat(" ", w.rng.IntN(3)), w.quoted(name), strings.Repeat(" ", w.rng.IntN(3)), value, []string{"", "  # why"}[w.rng.IntN(2)])
	if w.plant--; w.plant == 0 {
		w.noise()
		w.line("%s = %s", w.quoted("surplus"), []string{"1", `"x"`, "[1,\n 2]", "\"\"\"\nlong\n\"\"\"", "{ a = 1 }", "true"}[w.rng.IntN(6)])
		w.fault = strings.Count(strings.Join(w.lines[:len(w.lines)-1], "\n"), "\n") + 2
	}
}

func (w *writer) quoted(name string) string {
	switch {
	case strings.ContainsAny(name, ".*"), w.chance(4):
		return fmt.Sprintf("%q", name)
	}
	return name
}

// texts is an array, on one line or several.
func (w *writer) texts(words ...string) string {
	if w.chance(2) {
		return `["` + strings.Join(words, `", "`) + `"]`
	}
	return "[\n  \"" + strings.Join(words, "\",  # one\n  \"") + "\",\n]"
}

// limit is a limit of any kind.
func (w *writer) limit(name string) {
	w.noise()
	w.line("[upstream.ads.limit.%s]", w.quoted(name))
	w.key("limit", "1_000")
	switch w.rng.IntN(5) {
	case 0:
		w.key("window", `"24h"`)
	case 1:
		w.key("window", `"24h"`)
		w.key("precision", `"1m"`)
	case 2:
		w.key("calendar", `"day"`)
		w.key("timezone", `"Europe/Berlin"`)
		w.key("guard", `"5s"`)
	case 3:
		w.key("refill", `"50/s"`)
	default:
		w.key("window", `"1m"`)
		w.key("per", `"operation"`)
		w.key("operations", w.texts("report.*", "!report.large"))
	}
}

// refusal is a rule on what a refusal means.
func (w *writer) refusal(name string) {
	w.noise()
	w.line("[upstream.ads.refusal.%s]", w.quoted(name))
	w.key("means", `"exhausted"`)
	w.key("status", []string{"429", "[403, 429]", "[\n  403,\n  429,\n]"}[w.rng.IntN(3)])
	w.key("header", `{ "x-remaining" = "0" }`)
	w.key("text", w.texts("per day", "daily"))
	w.key("limit", `"all"`)
	w.key("reset", []string{
		`{ header = "retry-after" }`,
		`[{ header = "retry-after" }, { json = "error.reset", as = "epoch" }]`,
		"[\n  { header = \"retry-after\" },\n  { json = \"error.reset\", as = \"epoch\" }, # two\n]",
	}[w.rng.IntN(3)])
}

// report is a rule on where the remainder stands.
func (w *writer) report(name string) {
	w.noise()
	w.line("[upstream.ads.report.%s]", w.quoted(name))
	w.key("limit", `"all"`)
	w.key("remaining", `{ header = "x-remaining" }`)
	w.key("reset", `{ header = "x-reset", as = "epoch" }`)
}

// document writes a configuration that is right but for one key.
func (w *writer) document() string {
	w.noise()
	if w.chance(2) {
		w.key("state_dir", `"state"`)
	}
	w.line("[store]")
	w.key("url", `"sqlite:q.db"`)
	w.key("hosts", "2")
	for i := range w.rng.IntN(3) {
		w.refusal(fmt.Sprint("r", i))
	}
	if w.chance(2) {
		w.report("all")
	}
	w.line("[upstream.ads]")
	w.key("unknown_operation", `"refuse"`)
	w.noise()
	w.line("[upstream.ads.costs]")
	w.lines = append(w.lines, `"report.small" = 1`, `"report.large" = { units = 50, on_store_error = "closed" }`)
	w.line("[upstream.ads.limit.all]")
	w.key("quota", "10_000")
	w.key("headroom", `"5%"`)
	w.key("calendar", `"day"`)
	for i := range 1 + w.rng.IntN(4) {
		w.limit(fmt.Sprint("l", i))
	}
	w.line("[upstream.ads.credential.%s]", []string{"eu", `"*"`, `"eu"`}[w.rng.IntN(3)])
	w.key("secret_env", `"ADS_KEY"`)
	return strings.Join(w.lines, "\n") + "\n"
}

// FuzzFaultLines writes configurations with one key too many, wherever and however
// it stands, and wants that one fault at its line.
func FuzzFaultLines(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := &writer{rng: rand.New(rand.NewPCG(seed, 2))}
		w.plant = 1 + w.rng.IntN(9) // so many keys each has
		text := w.document()
		path := filepath.Join(t.TempDir(), "costs.toml")
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := Load(path)
		var faults Errors
		if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Line != w.fault || !strings.Contains(faults[0].Message, `unknown key "surplus"`) {
			t.Fatalf("seed %d: %v, want one unknown key at line %d of\n%s", seed, err, w.fault, numbered(text))
		}
	})
}

func numbered(text string) string {
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		fmt.Fprintf(&b, "%3d %s\n", i+1, line)
	}
	return b.String()
}
