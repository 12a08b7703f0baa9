package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/jsonpath"
	"github.com/quotactl/quotactl/internal/suggest"
)

// Node is a value in a configuration file, with its place there. If a value is wrong, the
// methods that read it add an error to the file's list, with the line and what to write
// instead, and return false. So one pass finds all errors.
type Node struct {
	doc   *document
	key   string
	path  string // the keys from the top of the file, joined by dots
	place string // the same, joined so that no two keys share it
	prim  toml.Primitive
	value any
	// holder is the node whose line counts for this one, if any. The parser does not
	// distinguish the elements of an array, so they have the array's line.
	holder  *Node
	inArray bool
}

// document is one parsed file, with its errors and warnings.
type document struct {
	file     string
	text     string
	meta     toml.MetaData
	lines    int            // how many it has
	lineless bool           // it is no file as somebody wrote it
	order    map[string]int // of the keys, by place
	errors   Errors
	warnings []warning
}

// warning is an [Error] whose line is found only when needed.
type warning struct {
	at      Node
	message string
}

// parseDocument reads and parses a file. Only faults of syntax are errors here.
func parseDocument(path string) (Node, error) {
	text, err := ReadFile(path)
	if err != nil {
		return Node{}, err
	}
	return parseText(path, string(text))
}

func parseText(path, text string) (Node, error) {
	if err := checkDepth(path, text); err != nil {
		return Node{}, err
	}
	doc := &document{file: path, text: text}
	var root map[string]toml.Primitive
	meta, err := toml.Decode(text, &root)
	doc.meta = meta
	var syntax toml.ParseError
	if errors.As(err, &syntax) {
		line := syntaxLine(text, syntax.Position)
		return Node{}, Errors{{File: path, Line: line, Message: "not TOML: " + syntaxText(syntax.Message) + syntaxAdvice(lineOf(text, line))}}
	}
	if err != nil {
		return Node{}, Errors{{File: path, Line: 1, Message: "not TOML: " + err.Error()}}
	}
	doc.lines = 1 + strings.Count(strings.TrimSuffix(text, "\n"), "\n")
	doc.order = orderOf(meta.Keys())
	return Node{doc: doc, value: rootTable(root)}, nil
}

// orderOf is the position of each key among the file's keys. A table that is only implied
// by a longer key has the position of its first child.
func orderOf(keys []toml.Key) map[string]int {
	order := make(map[string]int, len(keys))
	for i, key := range keys {
		place := placeOf(key...)
		for _, part := range slices.Backward(key) {
			place = place[:len(place)-len(placeOf(part))]
			if _, known := order[place]; known {
				break
			}
			order[place] = i
		}
	}
	for i, key := range keys {
		order[placeOf(key...)] = i
	}
	return order
}

// placeOf identifies a key in a file by all the keys of its path.
func placeOf(keys ...string) string { return "\x00" + strings.Join(keys, "\x00") }

// rootTable carries the children of the document itself, which has no key.
type rootTable map[string]toml.Primitive

// probe captures a raw TOML value. It fails if fails is set, because the parser reveals a
// key's line only in an error. To make that error, the parser reads the whole file.
type probe struct {
	value any
	fails bool
}

var errProbe = errors.New("probe")

func (p *probe) UnmarshalTOML(value any) error {
	p.value = value
	if p.fails {
		return errProbe
	}
	return nil
}

// node makes the node of a value under its key.
func (d *document) node(parent Node, key string, prim toml.Primitive) Node {
	n := Node{doc: d, key: key, path: strings.TrimPrefix(parent.path+"."+key, "."), place: parent.place + placeOf(key), prim: prim}
	var p probe
	if err := d.meta.PrimitiveDecode(prim, &p); err == nil {
		n.value = p.value
	}
	return n
}

// children are the nodes of a table in the order of the file; none if n is not a table.
func (n Node) children() []Node {
	var prims map[string]toml.Primitive
	switch value := n.value.(type) {
	case rootTable:
		prims = value
	case map[string]any:
		if n.doc.meta.PrimitiveDecode(n.prim, &prims) != nil {
			return nil
		}
	}
	list := make([]Node, 0, len(prims))
	order := make(map[string]int, len(prims))
	for key, prim := range prims {
		child := n.doc.node(n, key, prim)
		if n.inArray || key == "" { // the parser reports no line for these
			child.holder, child.inArray = &n, n.inArray
		} else {
			order[key] = n.doc.order[child.place]
		}
		list = append(list, child)
	}
	slices.SortFunc(list, func(a, b Node) int {
		return cmp.Or(cmp.Compare(order[a.key], order[b.key]), cmp.Compare(a.key, b.key))
	})
	return list
}

// Key is the last part of the node's key.
func (n Node) Key() string { return n.key }

// Line is the line of the key, 1 or more; for a table that is only implied by a longer
// key, that of its first child. It is 0 in a file that was changed by settings.
func (n Node) Line() int {
	switch {
	case n.doc.lineless:
		return 0
	case n.place == "":
		return 1
	case n.holder != nil:
		return n.holder.Line()
	}
	// For a string of several lines, the parser reports the last line.
	var at toml.ParseError
	if errors.As(n.doc.meta.PrimitiveDecode(n.prim, &probe{fails: true}), &at) && at.Position.Line > 0 {
		return syntaxLine(n.doc.text, at.Position)
	}
	for _, child := range n.children() {
		if child.holder == nil { // otherwise its line is this one's
			return child.Line()
		}
	}
	return 1
}

// Exists reports whether the key is in the file.
func (n Node) Exists() bool { return n.doc != nil }

// maxFaults is how many errors and how many warnings are listed for a file. The bound
// exists because the parser reads the whole file to find the line of each.
const maxFaults = 100

// Fail adds an error at the node's line.
func (n Node) Fail(format string, args ...any) {
	fault := Error{n.doc.file, n.doc.lines, "there are more errors than the first " + strconv.Itoa(maxFaults) + ": fix those, and check again"}
	if len(n.doc.errors) < maxFaults {
		fault.Line, fault.Message = n.Line(), fmt.Sprintf(format, args...)
	}
	n.doc.errors = append(n.doc.errors, fault)
}

// Warn adds a warning at the node's line: about something legal that is probably a
// mistake.
func (n Node) Warn(format string, args ...any) {
	n.doc.warnings = append(n.doc.warnings, warning{n, fmt.Sprintf(format, args...)})
}

// List returns the children of a table in the order of the file. It adds an error if the
// node is not a table.
func (n Node) List() []Node {
	if !n.Exists() {
		return nil
	}
	if !n.isTable() {
		n.Fail("%s is %s: write a table, [%s]", n.key, n.typeName(), n.path)
		return nil
	}
	return n.children()
}

func (n Node) isTable() bool {
	switch n.value.(type) {
	case rootTable, map[string]any:
		return true
	}
	return false
}

// Table returns the children of a table by key. It adds an error for each key that is not
// known.
func (n Node) Table(known ...string) map[string]Node {
	table := map[string]Node{}
	for _, child := range n.List() {
		if !slices.Contains(known, child.key) {
			sorted := slices.Sorted(slices.Values(known))
			child.Fail("unknown key %q: use one of %s%s", child.key, strings.Join(sorted, ", "), suggest.DidYouMean(child.key, known))
			continue
		}
		table[child.key] = child
	}
	return table
}

// Text reads a string.
func (n Node) Text() (string, bool) {
	if !n.Exists() {
		return "", false
	}
	s, ok := n.value.(string)
	if !ok {
		n.Fail("%s is %s: write a string in quotes", n.key, n.typeName())
	}
	return s, ok
}

// JSONPath is a path into a JSON document, as package jsonpath reads it.
func (n Node) JSONPath() (string, bool) {
	path, ok := n.Text()
	if !ok {
		return "", false
	}
	if err := jsonpath.Check(path); err != nil {
		n.Fail("%s = %v", n.key, err)
		return "", false
	}
	return path, true
}

// OneOf reads a string that must be among the choices.
func (n Node) OneOf(choices ...string) (string, bool) {
	s, ok := n.Text()
	if ok && !slices.Contains(choices, s) {
		n.Fail("%s = %q: use %s%s", n.key, s, quoteList(choices), suggest.DidYouMean(s, slices.Clone(choices)))
		return "", false
	}
	return s, ok
}

// Number reads a whole number from least to most.
func (n Node) Number(least, most int64) (int64, bool) {
	if !n.Exists() {
		return 0, false
	}
	i, ok := n.value.(int64)
	if !ok {
		text, _ := n.value.(string)
		number, isNumber := plainNumber(text)
		if tomlNumber().MatchString(text) {
			number, isNumber = text, true
		}
		if isNumber {
			n.Fail("%s = %q is a string: write %s, a number from %d to %d, without quotes", n.key, text, number, least, most)
			return 0, false
		}
		if f, isFloat := n.value.(float64); isFloat && f == math.Trunc(f) && math.Abs(f) <= float64(limit.MaxUnits) { // 1e4, 10000.0
			n.Fail("%s has a fraction or an exponent: write %d, a whole number from %d to %d", n.key, int64(f), least, most)
			return 0, false
		}
		n.Fail("%s is %s: write a whole number from %d to %d", n.key, n.typeName(), least, most)
		return 0, false
	}
	if i < least || i > most {
		n.Fail("%s = %d: use %d to %d", n.key, i, least, most)
		return 0, false
	}
	return i, true
}

// Units reads units, least to MaxUnits.
func (n Node) Units(least int64) (int64, bool) { return n.Number(least, limit.MaxUnits) }

// Bool reads true or false.
func (n Node) Bool() (value, ok bool) {
	if !n.Exists() {
		return false, false
	}
	value, ok = n.value.(bool)
	if !ok {
		n.Fail("%s is %s: write true or false", n.key, n.typeName())
	}
	return value, ok
}

// Duration reads a span such as "24h", "7d" or "1m30s", from least to most.
func (n Node) Duration(least, most time.Duration) (time.Duration, bool) {
	if !n.Exists() {
		return 0, false
	}
	s, isText := n.value.(string)
	d, err := limit.ParseSpan(s)
	if isText && err != nil && !errors.Is(err, limit.ErrSpan) {
		n.Fail("%s = %q is not a span of time: %s", n.key, s, err)
		return 0, false
	}
	if !isText || err != nil {
		n.Fail("%s = %s is not a span of time: write a number and a unit in quotes, such as \"7d\", \"24h\", \"8m\" or \"30s\"", n.key, n.show())
		return 0, false
	}
	if d < least || d > most {
		n.Fail("%s = %q: use %s to %s", n.key, s, limit.SpanText(least), limit.SpanText(most))
		return 0, false
	}
	return d, true
}

// Policy reads an on_store_error.
func (n Node) Policy() budget.Policy {
	s, _ := n.OneOf(string(budget.Closed), string(budget.Open))
	return budget.Policy(s)
}

// IsTable reports whether the value is a table, inline or not.
func (n Node) IsTable() bool { return n.Exists() && n.isTable() }

// IsText reports whether the value is a string.
func (n Node) IsText() bool {
	_, ok := n.value.(string)
	return ok
}

func (n Node) show() string {
	if s, ok := n.value.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprint(n.value)
}

func (n Node) typeName() string {
	switch n.value.(type) {
	case string:
		return "a string"
	case int64:
		return "a whole number"
	case float64:
		return "a number with a fraction"
	case bool:
		return "true or false"
	case []any, []map[string]any:
		return "an array"
	case map[string]any, rootTable:
		return "a table"
	}
	return "a date or time"
}
