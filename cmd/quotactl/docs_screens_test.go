package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// The screen that docs/screens.md shows is one that the program draws.
func TestDocumentedScreens(t *testing.T) {
	blocks, _ := split(documents(t)["docs/screens.md"])
	shown := docBlock(t, blocks, "text", "nine-120")
	drawn := must.Get(os.ReadFile(filepath.Join("..", "..", "testdata", "screens", "nine-120.txt")))(t)
	check.Contains(t, plain.ReplaceAllString(strings.ReplaceAll(string(drawn), "␛", "\x1b"), ""), shown, "testdata/screens")
}
