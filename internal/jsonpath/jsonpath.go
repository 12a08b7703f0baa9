// Package jsonpath finds values in JSON documents by the paths of costs.toml, which are
// gjson's. Rules on responses and fetch jobs use the same paths.
package jsonpath

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
)

var (
	escaped = lazily(`(?s)\\.`)
	made    = lazily(`(^|[.|])[!{[]`)
)

// Check returns an error if a path cannot find anything: it is empty, begins or ends with
// white space, has an empty part, or has a part for which gjson would make a value
// instead of finding one. It does not check queries, #(…), which may contain dots.
func Check(path string) error {
	plain := escaped().ReplaceAllString(path, "x")
	if plain == "" || plain != strings.TrimSpace(plain) || strings.HasPrefix(plain, ".") || strings.HasSuffix(plain, ".") ||
		strings.Contains(plain, "..") && !strings.Contains(plain, "(") {
		return fmt.Errorf(`%q is not a path: write names and numbers joined by dots, such as "error.errors.#.reason"`, path)
	}
	if made().MatchString(plain) && !strings.Contains(plain, "(") {
		return fmt.Errorf(`%q is not a path: write \ before the character that begins a name, as in '\{name'`, path)
	}
	return nil
}

// Kind is the kind of a JSON value.
type Kind int

// The kinds of values.
const (
	Null Kind = iota
	Number
	String
	Other // an object, an array, true or false
)

// Value is one JSON value. Raw is its text as the document has it.
type Value struct {
	Kind Kind
	Raw  string
}

// Text is the content of a string, and the JSON text of any other value.
func (v Value) Text() string {
	if v.Kind != String {
		return v.Raw
	}
	var text string
	if json.Unmarshal([]byte(v.Raw), &text) != nil {
		return v.Raw
	}
	return text
}

// Get finds the value at a path of an object or an array; false if there is none. The
// caller has checked that the document is JSON: gjson does not. If members have the same
// name, the first counts from which the rest of the path can be followed.
func Get(document, path string) (Value, bool) {
	found := get(document, path)
	return value(found), found.Exists()
}

// All finds the values at a path that may match several. It replaces arrays by their
// elements, one level deep and one more for each "#" of the path. The document is as for
// Get.
func All(document, path string) []Value {
	return elements(nil, get(document, path), 1+strings.Count(path, "#"))
}

// get excludes documents that are neither an object nor an array: gjson would search the
// text of a string.
func get(document, path string) gjson.Result {
	if text := strings.TrimLeft(document, " \t\r\n"); !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
		return gjson.Result{}
	}
	return gjson.Get(document, path)
}

func elements(list []Value, found gjson.Result, depth int) []Value {
	switch {
	case !found.Exists():
	case found.IsArray() && depth > 0:
		for _, element := range found.Array() {
			list = elements(list, element, depth-1)
		}
	default:
		list = append(list, value(found))
	}
	return list
}

func value(found gjson.Result) Value {
	switch found.Type {
	case gjson.Null:
		return Value{Null, found.Raw}
	case gjson.Number:
		return Value{Number, found.Raw}
	case gjson.String:
		return Value{String, found.Raw}
	}
	return Value{Other, found.Raw}
}

// lazily compiles a pattern when it is first used, so that no program pays for what it
// does not need.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
