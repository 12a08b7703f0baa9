package jsonpath_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quotactl/quotactl/internal/jsonpath"
	"github.com/quotactl/quotactl/internal/must"
)

func TestCheck(t *testing.T) {
	for path, right := range map[string]bool{
		"items": true, "a.0.#.b": true, "#": true, `a\.b`: true, `a\.`: true, `\ a\ `: true, `a.#(b=="x..y.").c`: true, "@odata.next": true,
		"": false, ".": false, ".a": false, "a.": false, "a..b": false, " a": false, "a ": false, `a\..`: false, "..#.a": false,
		"{a": false, "a.[b": false, "!1": false, "a|{b}": false, `\{a.\[b.\!`: true, "a[0": true,
	} {
		if err := jsonpath.Check(path); (err == nil) != right {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// Values are as the document has them, whatever stands around them and in their names.
func TestGet(t *testing.T) {
	const document = ` {"a":{"b":[{"c":1.50},"two",null]},"@odata.next":"\u0041\ud800B","@graph":{"x":true},"1":{"2":12345678901234567890},
		"*":"star","d":"{\"e\":1}","a b":"blank","#":"number","f":1,"f":{"g":1},"f":{"g":2}}`
	for path, want := range map[string]jsonpath.Value{
		"a.b.0.c":       {Kind: jsonpath.Number, Raw: "1.50"},
		"a.b.1":         {Kind: jsonpath.String, Raw: `"two"`},
		"a.b.2":         {Kind: jsonpath.Null, Raw: "null"},
		"a.b.#":         {Kind: jsonpath.Number, Raw: "3"},
		"a.b.#.c":       {Kind: jsonpath.Other, Raw: "[1.50]"},
		"a.b.#(c>1).c":  {Kind: jsonpath.Number, Raw: "1.50"},
		`@odata\.next`:  {Kind: jsonpath.String, Raw: `"\u0041\ud800B"`},
		"@graph.x":      {Kind: jsonpath.Other, Raw: "true"},
		"1.2":           {Kind: jsonpath.Number, Raw: "12345678901234567890"},
		`\*`:            {Kind: jsonpath.String, Raw: `"star"`},
		"a b":           {Kind: jsonpath.String, Raw: `"blank"`},
		"#":             {Kind: jsonpath.String, Raw: `"number"`},
		"f":             {Kind: jsonpath.Number, Raw: "1"},
		"f.g":           {Kind: jsonpath.Number, Raw: "1"},
		"d.e":           {},
		"a.c":           {},
		"a.b.3":         {},
		"a.b.0.c.d":     {},
		"a.b.name":      {},
		"a.b.#(c==2).c": {},
	} {
		if got, ok := jsonpath.Get(document, path); got != want || ok != (want.Raw != "") {
			t.Errorf("%s: %+v, %t, want %+v", path, got, ok, want)
		}
	}
	for _, scalar := range []string{`"[1,2]"`, `"{\"a\":1}"`, `12`, `null`, ``} {
		if got, ok := jsonpath.Get(scalar, "0"); ok {
			t.Errorf("%s: %+v", scalar, got)
		}
	}
	if got, _ := jsonpath.Get(document, `@odata\.next`); got.Text() != "A\ufffdB" {
		t.Errorf("a text is %q", got.Text())
	}
}

// paths are such as costs.toml may have.
var paths = []string{
	"error.errors.#.reason", "error.code", "errors.#.type", "errors.#.extensions.code", "extensions.cost.actualQueryCost",
	"usage.total_tokens", "data.rateLimit.cost", "a.#.b.#.c", "a.0.b", "#.a", "#", "a", "a.#", "1",
}

// member is one of an object's, in the order of the document.
type member struct {
	key   string
	value any
}

// decode reads the next value: objects as []member, arrays as []any, numbers as
// they are written.
func decode(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		object := []member{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := decode(d)
			if err != nil {
				return nil, err
			}
			object = append(object, member{key.(string), value})
		}
		_, err = d.Token()
		return object, err
	case json.Delim('['):
		array := []any{}
		for d.More() {
			value, err := decode(d)
			if err != nil {
				return nil, err
			}
			array = append(array, value)
		}
		_, err = d.Token()
		return array, err
	}
	return token, nil
}

// lookUp is the value at a path, by definition: of members with one name the
// first that leads on, of "#" every element, and what is there of each. Nil is nothing.
func lookUp(value any, path []string) []any {
	if len(path) == 0 {
		return []any{value}
	}
	switch value := value.(type) {
	case []member:
		for _, m := range value {
			if m.key != path[0] {
				continue
			}
			if found := lookUp(m.value, path[1:]); found != nil {
				return found
			}
		}
	case []any:
		if path[0] == "#" && len(path) == 1 {
			return []any{json.Number(strconv.Itoa(len(value)))}
		}
		if path[0] == "#" {
			found := []any{}
			for _, element := range value {
				found = append(found, lookUp(element, path[1:])...)
			}
			return found
		}
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(value) {
			return lookUp(value[i], path[1:])
		}
	}
	return nil
}

// flat is a list without arrays, as deep as depth.
func flat(list []any, depth int) []any {
	var all []any
	for _, value := range list {
		if array, isArray := value.([]any); isArray && depth > 0 {
			all = append(all, flat(array, depth-1)...)
			continue
		}
		all = append(all, value)
	}
	return all
}

// texts are the strings and the numbers among values.
func texts(values []any) []string {
	var texts []string
	for _, one := range values {
		switch one := one.(type) {
		case string:
			texts = append(texts, one)
		case json.Number:
			texts = append(texts, one.String())
		}
	}
	return texts
}

func found(values []jsonpath.Value) []string {
	var texts []string
	for _, one := range values {
		if one.Kind == jsonpath.String || one.Kind == jsonpath.Number {
			texts = append(texts, one.Text())
		}
	}
	return texts
}

// Whatever a document holds, a path finds the value that is there.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{
		`{"error":{"errors":[{"reason":"dailyLimitExceeded"},{"reason":null}],"code":403}}`, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`,
		`{"usage":{"total_tokens":21}}`, `{"data":{"rateLimit":{"cost":1}}}`,
		`{"a":[{"b":[{"c":1},{"c":[2,[3]]}]},{"b":{"c":4}},null,"x"]}`, `[{"a":1},{"a":"2"}]`, `{"a":1,"a":2}`, `{"\u0061":"\u0062\n"}`,
		`{"a":1e400}`, `{"a":-0.0}`, `{"a":{"0":{"b":1}}}`, `"{\"a\":1}"`, `"[1,2]"`, `{"a":"\ud800\u0041"}`, `{"error":{"code":1},"error":{}}`, `{"error":1,"error":{},"error":{"code":1},"error":{"code":2}}`, `null`,
		strings.Repeat(`[`, 300) + strings.Repeat(`]`, 300), strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200),
	} {
		for i := range paths {
			f.Add([]byte(seed), uint8(i), "x")
			f.Add([]byte(seed), uint8(i), `errors.#(type=="RATE_LIMITED")#|0.@this`)
		}
	}
	f.Fuzz(func(t *testing.T, document []byte, which uint8, any string) {
		jsonpath.All(string(document), any) // it does no harm
		jsonpath.Get(string(document), any)
		if !json.Valid(document) || !utf8.Valid(document) {
			return
		}
		path := paths[int(which)%len(paths)]
		d := json.NewDecoder(bytes.NewReader(document))
		d.UseNumber()
		value := must.Get(decode(d))(t)
		// A "#" of its own makes one array of what it finds, beside those that stand there.
		want := texts(flat(lookUp(value, strings.Split(path, ".")), 1))
		if got := found(jsonpath.All(string(document), path)); !slices.Equal(got, want) {
			t.Fatalf("%q at %s holds %q, want %q", document, path, got, want)
		}
		if strings.Contains(path, "#") {
			return
		}
		list := lookUp(value, strings.Split(path, "."))
		one, ok := jsonpath.Get(string(document), path)
		if want, got := texts(list), found([]jsonpath.Value{one}); ok != (len(list) > 0) || !slices.Equal(got, want) {
			t.Fatalf("%q at %s is %q, %t, want %q", document, path, got, ok, want)
		}
	})
}
