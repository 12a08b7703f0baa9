package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Setting replaces or adds one value of a configuration: what "what if" asks.
type Setting struct {
	Key   []string // from the top of the file
	Value any
}

// ParseSetting reads KEY=VALUE, both as TOML writes them. A value that is not TOML is a
// string, so that a shell need not quote twice.
func ParseSetting(text string) (Setting, error) {
	key, value, found := strings.Cut(text, "=")
	wrong := func(format string, args ...any) (Setting, error) {
		return Setting{}, fmt.Errorf("%q: "+format+`: write KEY=VALUE as in a configuration, such as 'job.backfill.schedule="0 9 * * *"'`, append([]any{text}, args...)...)
	}
	if !found {
		return wrong("there is no '='")
	}
	var parsed map[string]any
	meta, err := toml.Decode(key+" = 0\n", &parsed)
	if err != nil || len(meta.Keys()) == 0 {
		return wrong("%q is no key", strings.TrimSpace(key))
	}
	longest := slices.MaxFunc(meta.Keys(), func(a, b toml.Key) int { return len(a) - len(b) })
	var holder struct{ Value any }
	if _, err := toml.Decode("value = "+value+"\n", &holder); err != nil {
		holder.Value = strings.TrimSpace(value)
	}
	return Setting{longest, holder.Value}, nil
}

// ParseWith is [Parse] of a file in which some values are replaced. Its errors name no lines,
// and say that values were replaced. An error that is not of the file wraps errSetting.
func ParseWith(path string, settings []Setting) (*Config, error) {
	if len(settings) == 0 {
		return Parse(path)
	}
	root, err := parseDocument(path)
	if err != nil {
		return nil, err
	}
	var all map[string]any
	before, err := toml.Decode(root.doc.text, &all)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, s := range settings {
		if err := s.into(all); err != nil {
			return nil, err
		}
	}
	var text bytes.Buffer
	if err := toml.NewEncoder(&text).Encode(all); err != nil {
		return nil, fmt.Errorf("%w: a value cannot be written as TOML: %w", errSetting, err)
	}
	changed, err := parseText(path, text.String())
	if err != nil {
		return nil, err
	}
	// The encoder sorts the keys; jobs that tick together begin in the order of the file.
	keys, known := before.Keys(), map[string]bool{}
	for _, key := range keys {
		known[placeOf(key...)] = true
	}
	for _, key := range changed.doc.meta.Keys() {
		if !known[placeOf(key...)] {
			keys = append(keys, key)
		}
	}
	changed.doc.order, changed.doc.lineless = orderOf(keys), true
	changed.doc.file += " as changed"
	return readConfig(path, changed), nil
}

var errSetting = errors.New("the configuration cannot be changed")

// into puts the value into the tables of a file.
func (s Setting) into(table map[string]any) error {
	for i, key := range s.Key[:len(s.Key)-1] {
		switch next := table[key].(type) {
		case nil:
			made := map[string]any{}
			table[key], table = made, made
		case map[string]any:
			table = next
		default:
			return fmt.Errorf("%w: %s is no table", errSetting, strings.Join(s.Key[:i+1], "."))
		}
	}
	table[s.Key[len(s.Key)-1]] = s.Value
	return nil
}
