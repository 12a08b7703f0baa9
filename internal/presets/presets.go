// Package presets holds complete configurations for widely used upstreams: costs,
// patterns, limits, and rules for responses. Each begins with its sources, the date on
// which they were read, and what the user must fill in. Prices and quotas change: check
// them against the sources.
package presets

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed *.toml
var files embed.FS

// Names lists the presets, sorted.
func Names() []string {
	entries, _ := files.ReadDir(".") // embedded: it cannot fail
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".toml"))
	}
	slices.Sort(names)
	return names
}

// Describe is a preset's description in one line; empty for an unknown name.
func Describe(name string) string {
	text, err := Text(name)
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(first, "# ")
}

// Text is the text of a preset. The error for an unknown name lists the known ones.
func Text(name string) ([]byte, error) {
	text, err := files.ReadFile(name + ".toml")
	if err != nil {
		return nil, fmt.Errorf("there is no preset %q; use %s", name, strings.Join(Names(), ", "))
	}
	return text, nil
}
