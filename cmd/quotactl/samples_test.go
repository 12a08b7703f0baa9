package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/presets"
)

// youtubeOf are the prices of a configuration's youtube, and its budgets' names; nil where
// it has none, or is no whole configuration.
func youtubeOf(t *testing.T, text string) (prices map[string]int64, budgets []string) {
	t.Helper()
	cfg, err := config.Parse(writeConfig(t, text))
	if err != nil || cfg.Err() != nil {
		return nil, nil
	}
	for _, name := range cfg.Budgets() {
		if !strings.HasPrefix(name, "youtube/") {
			continue
		}
		spec := must.Get(cfg.Spec(name))(t)
		prices, budgets = map[string]int64{}, append(budgets, name)
		for operation, cost := range spec.Costs {
			prices[operation] = cost.Units
		}
	}
	return prices, budgets
}

// Samples, documents and presets name one budget and one price for each operation of
// YouTube: those until 2026-06-01, which are safe after it too. Only the preset youtube,
// which says so, has those since.
func TestSamplesTellOneTruth(t *testing.T) {
	truth, _ := youtubeOf(t, string(must.Get(presets.Compose([]string{"youtube-2025"}, nil))(t)))
	now, budgets := youtubeOf(t, string(must.Get(presets.Compose([]string{"youtube"}, nil))(t)))
	check.EqualSlices(t, budgets, []string{"youtube/key1"}, "the preset's budgets")
	check.Equal(t, now["search.list"], 1, "a search since 2026-06-01")
	check.Equal(t, truth["search.list"], 100, "a search until then")
	samples := map[string]string{}
	for _, path := range []string{"costs.toml", "docs/samples/small.toml"} {
		samples[path] = string(must.Get(os.ReadFile(filepath.Join("..", "..", path)))(t))
	}
	for page, text := range documents(t) {
		blocks, _ := split(text)
		for _, b := range blocks {
			if len(b.info) > 0 && b.info[0] == "toml" {
				samples[page+"\n"+b.text] = b.text
			}
		}
	}
	seen := 0
	for name, text := range samples {
		prices, budgets := youtubeOf(t, text)
		if prices == nil {
			continue
		}
		seen++
		check.EqualSlices(t, budgets, []string{"youtube/key1"}, "budgets of", name)
		for operation, price := range prices {
			check.Equal(t, price, truth[operation], operation, "in", name)
		}
	}
	check.Equal(t, seen >= 6, true, "samples of youtube:", seen)
}
