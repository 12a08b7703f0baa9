package presets_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/presets"
)

// load reads a preset as it is written out.
func load(t *testing.T, name string) *config.Config {
	t.Helper()
	text := must.Get(presets.Text(name))(t)
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, text, 0o600))
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return cfg
}

func TestNames(t *testing.T) {
	want := []string{"github", "openai", "shopify", "slack", "strava", "youtube", "youtube-2025"}
	check.EqualSlices(t, presets.Names(), want, "the presets")
}

// Each preset is right as it is written out, and nothing in it is odd.
func TestLoads(t *testing.T) {
	for _, name := range presets.Names() {
		cfg := load(t, name)
		for _, w := range cfg.Warnings() {
			t.Errorf("%s: %v", name, w)
		}
		if len(cfg.Upstreams) != 1 || len(cfg.Upstreams[0].Credentials) != 1 {
			t.Errorf("%s: want one upstream with one credential", name)
			continue
		}
		u := cfg.Upstreams[0]
		if !strings.HasPrefix(name, u.Name) || len(u.Feedback.Refusals) == 0 {
			t.Errorf("%s: upstream %s, %d refusals", name, u.Name, len(u.Feedback.Refusals))
		}
		for _, l := range u.Limits {
			if l.Window.Kind == limit.CalendarKind && l.Window.Guard == 0 {
				t.Errorf("%s: limit %s trusts that clocks agree: it has no guard", name, l.Name)
			}
		}
		for operation, cost := range u.Costs {
			if len(cost.Match) == 0 {
				t.Errorf("%s: no request is %s", name, operation)
			}
		}
	}
}

// Each says in its first line what it is, and in its first comment where it was
// read, when, and what is to be filled in.
func TestOpensWithItsSources(t *testing.T) {
	sources := regexp.MustCompile(`(?s)\n# Sources?, read 20\d\d-\d\d-\d\d( \([^)]*\))?:\n#   https://.*\n# To fill in: `)
	for _, name := range presets.Names() {
		text := must.Get(presets.Text(name))(t)
		opening, _, _ := strings.Cut(string(text), "\n\n")
		if !sources.MatchString(opening) {
			t.Errorf("%s opens with\n%s", name, opening)
		}
		if about := presets.Describe(name); about == "" || len(about) > 64 || "# "+about != strings.SplitN(opening, "\n", 2)[0] {
			t.Errorf("%s is described as %q", name, about)
		}
		for i, line := range strings.Split(opening, "\n") {
			if len(line) > 120 || !strings.HasPrefix(line, "#") {
				t.Errorf("%s:%d: %s", name, i+1, line)
			}
		}
	}
}

func TestUnknownName(t *testing.T) {
	for _, name := range []string{"youtub", "", ".", "presets.go", "../memstore/memstore", "testdata/SOURCES.md"} {
		text, err := presets.Text(name)
		if err == nil || text != nil || !strings.Contains(err.Error(), "use github, openai, ") {
			t.Errorf("%q is %q, %v", name, text, err)
		}
		check.Equal(t, presets.Describe(name), "", name, "is described as")
	}
}
