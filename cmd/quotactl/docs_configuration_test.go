package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
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
