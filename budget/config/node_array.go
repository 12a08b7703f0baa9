package config

import (
	"fmt"
	"slices"

	"github.com/BurntSushi/toml"
)

// Texts reads an array of strings.
func (n Node) Texts() ([]string, bool) {
	if !n.Exists() {
		return nil, false
	}
	items, ok := n.value.([]any)
	if !ok {
		n.Fail("%s is %s: write an array of strings, [\"…\", \"…\"]", n.key, n.typeName())
		return nil, false
	}
	list := make([]string, 0, len(items))
	for _, item := range items {
		s, isText := item.(string)
		if !isText {
			n.Fail("%s holds %v: write an array of strings, [\"…\", \"…\"]", n.key, item)
			return nil, false
		}
		list = append(list, s)
	}
	return list, true
}

// SomeTexts reads a string, or an array of one or more strings. An empty string is an
// error.
func (n Node) SomeTexts() ([]string, bool) {
	if !n.Exists() {
		return nil, false
	}
	list := []string{""}
	switch value := n.value.(type) {
	case string:
		list[0] = value
	case []any:
		var ok bool
		if list, ok = n.Texts(); !ok {
			return nil, false
		}
	default:
		n.Fail("%s is %s: write a string in quotes, or an array of them", n.key, n.typeName())
		return nil, false
	}
	whole := len(list)
	list = slices.DeleteFunc(list, func(text string) bool { return text == "" })
	switch {
	case len(list) == 0:
		n.Fail("%s is empty: write a string, or take it out", n.key)
		return nil, false
	case len(list) < whole: // the others may have mistakes of their own
		n.Fail("%s holds an empty string: take it out", n.key)
	}
	return list, true
}

// SomeNumbers reads a whole number from least to most, or an array of one or more such
// numbers.
func (n Node) SomeNumbers(least, most int64) ([]int64, bool) {
	if !n.Exists() {
		return nil, false
	}
	items, isArray := n.value.([]any)
	if !isArray {
		items = []any{n.value}
	}
	if len(items) == 0 {
		n.Fail("%s is empty: write a number from %d to %d, or take it out", n.key, least, most)
		return nil, false
	}
	list, all := make([]int64, len(items)), true
	for i, item := range items {
		one, ok := n, false
		one.value = item
		list[i], ok = one.Number(least, most)
		all = all && ok
	}
	return list, all
}

// Elements returns the elements of an array, or the value itself if it is not an array.
// Each element has the array's line, and its index in its key.
func (n Node) Elements() []Node {
	if !n.Exists() {
		return nil
	}
	switch n.value.(type) {
	case []any, []map[string]any:
	default:
		return []Node{n}
	}
	var prims []toml.Primitive
	if n.doc.meta.PrimitiveDecode(n.prim, &prims) != nil {
		return nil
	}
	list := make([]Node, len(prims))
	for i, prim := range prims {
		list[i] = n.doc.node(Node{}, n.path, prim)
		list[i].key, list[i].holder, list[i].inArray = fmt.Sprintf("%s %d", n.key, i+1), &n, true
	}
	return list
}
