// Package presets holds configurations for upstreams that many call: complete
// ones, with costs, patterns, limits and what responses say about the quota.
// Each opens with the addresses that it was read from, the date, and what is to
// be filled in. Prices and quotas change: they are a beginning, not a promise.
package presets

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed *.toml
var files embed.FS

// Names are the names of the presets, sorted.
func Names() []string {
	entries, _ := files.ReadDir(".") // embedded: it is there
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".toml"))
	}
	slices.Sort(names)
	return names
}

// Describe is what a preset is, in one line; empty where there is none of that
// name.
func Describe(name string) string {
	text, err := Text(name)
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(first, "# ")
}

// Text is a preset as it is written to costs.toml. The error is for a name that
// none has, and tells those there are.
func Text(name string) ([]byte, error) {
	text, err := files.ReadFile(name + ".toml")
	if err != nil {
		return nil, fmt.Errorf("there is no preset %q; use %s", name, strings.Join(Names(), ", "))
	}
	return text, nil
}
