package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
)

// The configuration that the README shows is one that check takes, with each
// of the README's stores.
func TestReadmeConfiguration(t *testing.T) {
	readme := must.Get(os.ReadFile(filepath.Join("..", "..", "README.md")))(t)
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllSubmatch(readme, -1)
	must.Equal(t, len(blocks), 2, "blocks of configuration in the README, want the jobs' and the store's")
	text := append(append([]byte{}, blocks[0][1]...), blocks[1][1]...)
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, text, 0o600))
	a := &app{configPath: path}
	cfg, list, err := a.loadConfig()
	must.Do(t, err)
	if len(list) != 1 || len(cfg.Budgets()) != 1 || cfg.Store.URL != "redis://quotactl@redis.internal:6379/0" {
		t.Fatalf("%d jobs, budgets %v, store %s", len(list), cfg.Budgets(), cfg.Store.URL)
	}
}
