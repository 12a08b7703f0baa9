package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The configuration that the README shows is one that check takes, with each
// of the README's stores.
func TestReadmeConfiguration(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of configuration in the README, want the jobs' and the store's", len(blocks))
	}
	text := append(append([]byte{}, blocks[0][1]...), blocks[1][1]...)
	path := filepath.Join(t.TempDir(), "costs.toml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{configPath: path}
	cfg, list, err := a.loadConfig()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || len(cfg.Budgets()) != 1 || cfg.Store.URL != "redis://redis.internal:6379/0" {
		t.Fatalf("%d jobs, budgets %v, store %s", len(list), cfg.Budgets(), cfg.Store.URL)
	}
}
