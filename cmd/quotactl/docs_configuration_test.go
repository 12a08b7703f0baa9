package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/presets"
)

var tomlBlock = regexp.MustCompile("(?s)```toml\n(.*?)```")

// configurationPages are the pages on costs.toml, one after the other. The index links to
// each.
func configurationPages(t *testing.T) string {
	t.Helper()
	docs := filepath.Join("..", "..", "docs")
	index := string(must.Get(os.ReadFile(filepath.Join(docs, "configuration.md")))(t))
	all := index
	for _, path := range must.Get(filepath.Glob(filepath.Join(docs, "configuration", "*.md")))(t) {
		if !strings.Contains(index, "(configuration/"+filepath.Base(path)+")") {
			t.Errorf("docs/configuration.md does not link to %s", path)
		}
		all += string(must.Get(os.ReadFile(path))(t))
	}
	return all
}

// Each configuration of the pages is right, without a warning.
func TestConfigurationPage(t *testing.T) {
	blocks := tomlBlock.FindAllStringSubmatch(configurationPages(t), -1)
	if len(blocks) < 9 {
		t.Fatalf("%d configurations, want one for each kind of limit", len(blocks))
	}
	for _, block := range blocks {
		stdout, stderr, code := runIn(t, everySecret, time.Unix(0, 0), "check", "-c", writeConfig(t, block[1]))
		if code != exitDone || strings.Contains(stdout, "warning") {
			t.Errorf("%s\n%s%s", block[1], stdout, stderr)
		}
	}
}

// The pages have each key that is read. What is read is what check offers in
// place of a key that it does not know.
func TestConfigurationKeys(t *testing.T) {
	page := configurationPages(t)
	stdout, _, _ := runAt(t, time.Unix(0, 0), "check", "-c", writeConfig(t, `zzzzzz = 1
[store]
zzzzzz = 1
[upstream.ads]
zzzzzz = 1
[upstream.ads.costs]
"get" = { units = 1, zzzzzz = 1 }
"once" = { units = 1, once = { zzzzzz = 1 } }
[upstream.ads.limit.day]
zzzzzz = 1
[upstream.ads.share.feeds]
zzzzzz = 1
[upstream.ads.refusal.spent]
zzzzzz = 1
[upstream.ads.report.day]
zzzzzz = 1
[upstream.ads.report.hour]
remaining = { zzzzzz = 1 }
[upstream.ads.credential.eu]
zzzzzz = 1
[job.pull]
zzzzzz = 1
[job.pull.fetch]
zzzzzz = 1
[alert.team]
zzzzzz = 1
[alert.team.smtp]
zzzzzz = 1
`))
	offers := regexp.MustCompile(`unknown key "zzzzzz": use one of ([a-z_, ]+)`).FindAllStringSubmatch(stdout, -1)
	if len(offers) != 15 {
		t.Fatalf("%d tables were offered keys, want 15:\n%s", len(offers), stdout)
	}
	tables := []string{"store", "upstream", "job", "alert", "units"} // told as headings, or as a cost
	for _, offer := range offers {
		for key := range strings.SplitSeq(offer[1], ", ") {
			if !slices.Contains(tables, key) && !strings.Contains(page, "`"+key+"`") {
				t.Errorf("no page has the key %s", key)
			}
		}
	}
}

// pricedIn has the upstream of a table of prices and its lines, chargedIn the upstream and the
// operation that a command names.
var (
	pricedIn  = regexp.MustCompile(`(?m)^\[upstream\.(\w+)\.costs\]\n((?:".*\n)+)`)
	priceLine = regexp.MustCompile(`(?m)^"([^"]+)"`)
	chargedIn = regexp.MustCompile(`quotactl (?:charge|exec|feedback|why) (\w+)/\S+ ([a-zA-Z][\w.]*)`)
)

// What the docs and the help call the operations of an upstream is what its preset calls them.
func TestPresetOperations(t *testing.T) {
	known := map[string][]string{}
	for _, name := range presets.Names() {
		cfg := must.Get(config.Load(writeConfig(t, string(must.Get(presets.Text(name))(t)))))(t)
		upstream := cfg.Upstreams[0]
		known[upstream.Name] = append(known[upstream.Name], slices.Collect(maps.Keys(upstream.Costs))...)
	}
	found := 0
	texts := documents(t)
	root := newRootCommand(&app{})
	for _, command := range append(root.Commands(), root) {
		texts["the help of "+command.Name()] = command.Example
	}
	for where, text := range texts {
		see := func(upstream, operation string) {
			if names := known[upstream]; names != nil {
				found++
				if !slices.Contains(names, operation) {
					t.Errorf("%s: the preset of %s has no operation %s", where, upstream, operation)
				}
			}
		}
		for _, table := range pricedIn.FindAllStringSubmatch(text, -1) {
			for _, operation := range priceLine.FindAllStringSubmatch(table[2], -1) {
				see(table[1], operation[1])
			}
		}
		for _, command := range chargedIn.FindAllStringSubmatch(text, -1) {
			see(command[1], command[2])
		}
	}
	if found < 60 {
		t.Fatalf("%d operations of presets in the docs, want those of a page at least", found)
	}
}
