package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// top parses text and finds its keys.
func top(t *testing.T, text string) (map[string]Node, *document) {
	t.Helper()
	root := must.Get(parseText("f.toml", text))(t)
	table := map[string]Node{}
	for _, n := range root.List() {
		table[n.Key()] = n
	}
	return table, root.doc
}

func TestNodeLines(t *testing.T) {
	nodes, _ := top(t, `# a comment
plain = 1
"quoted.key" = 2

[table]
inner = 3
inline = { a = 1, b = { c = 2 } }
spread = [
  "x",
]

[implied.by.child]
deep = 4
[implied]
late = 5
dotted.key = 6
[[list]]
x = 1
`)
	line := func(path ...string) int {
		n, ok := nodes[path[0]]
		for _, key := range path[1:] {
			var next Node
			for _, child := range n.List() {
				if child.Key() == key {
					next = child
				}
			}
			n, ok = next, next.Exists()
		}
		if !ok {
			t.Fatalf("no node %v", path)
		}
		return n.Line()
	}
	for _, c := range []struct {
		path string
		want int
	}{
		{"plain", 2}, {"quoted.key", 3}, {"table", 5}, {"table/inner", 6},
		{"table/inline", 7}, {"table/inline/a", 7}, {"table/inline/b/c", 7}, {"table/spread", 8},
		{"implied", 14}, {"implied/by", 12}, {"implied/by/child", 12}, {"implied/by/child/deep", 13},
		{"implied/late", 15}, {"implied/dotted", 16}, {"implied/dotted/key", 16}, {"list", 17},
	} {
		check.Equal(t, line(strings.Split(c.path, "/")...), c.want, c.path, "stands in line")
	}
}

// Each reader answers for a good value, refuses a bad one with its line and
// what to write, and says nothing of a key that is not there.
func TestNodeReaders(t *testing.T) {
	readers := map[string]func(n Node) (any, bool){
		"text":     func(n Node) (any, bool) { v, ok := n.Text(); return v, ok },
		"oneof":    func(n Node) (any, bool) { v, ok := n.OneOf("a", "b", "c"); return v, ok },
		"number":   func(n Node) (any, bool) { v, ok := n.Number(1, 9); return v, ok },
		"units":    func(n Node) (any, bool) { v, ok := n.Units(0); return v, ok },
		"bool":     func(n Node) (any, bool) { v, ok := n.Bool(); return v, ok },
		"duration": func(n Node) (any, bool) { v, ok := n.Duration(time.Second, 36*time.Hour); return v, ok },
		"policy":   func(n Node) (any, bool) { v := n.Policy(); return v, v != "" },
	}
	for _, c := range []struct{ reader, value, fault string }{
		{"text", `"x"`, ""},
		{"text", `1979-05-27`, `k is a date or time: write a string in quotes`},
		{"text", `1.5`, `k is a number with a fraction: write a string in quotes`},
		{"oneof", `"b"`, ""},
		{"oneof", `"d"`, `k = "d": use "a", "b" or "c"`},
		{"number", `9`, ""},
		{"number", `10`, `k = 10: use 1 to 9`},
		{"number", `"9"`, `k = "9" is a string: write 9, a number from 1 to 9, without quotes`},
		{"units", `1_000_000_000_000_000`, ""},
		{"units", `1_000_000_000_000_001`, `k = 1000000000000001: use 0 to 1000000000000000`},
		{"bool", `true`, ""},
		{"bool", `1`, `k is a whole number: write true or false`},
		{"duration", `"1m30s"`, ""},
		{"duration", `"36h"`, ""},
		{"duration", `"36h1s"`, `k = "36h1s": use 1s to 36h`},
		{"duration", `30`, `k = 30 is not a span of time: write a number and a unit in quotes, such as "7d", "24h", "8m" or "30s"`},
		{"duration", `"1w"`, `k = "1w" is not a span of time: write a number and a unit in quotes, such as "7d", "24h", "8m" or "30s"`},
		{"policy", `"open"`, ""},
		{"policy", `"ajar"`, `k = "ajar": use "closed" or "open"`},
	} {
		nodes, doc := top(t, "\nk = "+c.value+"\n")
		value, ok := readers[c.reader](nodes["k"])
		var want Errors
		if c.fault != "" {
			want = Errors{{File: "f.toml", Line: 2, Message: c.fault}}
		}
		if ok != (c.fault == "") || !slices.Equal(doc.errors, want) {
			t.Errorf("%s of %s: %v, %v, faults %v; want %v", c.reader, c.value, value, ok, doc.errors, want)
		}
	}
	for name, read := range readers {
		if value, ok := read(Node{}); ok {
			t.Errorf("%s of a missing key answers %v", name, value)
		}
	}
}

func TestNodeTexts(t *testing.T) {
	nodes, doc := top(t, "good = [\"a\", \"b\"]\nmixed = [\"a\", 1]\nnone = \"a\"\n")
	if list, ok := nodes["good"].Texts(); !ok || !slices.Equal(list, []string{"a", "b"}) {
		t.Errorf("texts %v, %v; want a and b", list, ok)
	}
	for _, key := range []string{"mixed", "none"} {
		if list, ok := nodes[key].Texts(); ok {
			t.Errorf("texts of %s: %v, want a fault", key, list)
		}
	}
	if len(doc.errors) != 2 || doc.errors[0].Line != 2 || doc.errors[1].Line != 3 {
		t.Errorf("faults %v, want one in line 2 and one in line 3", doc.errors)
	}
}

func TestNodeTable(t *testing.T) {
	nodes, doc := top(t, "[a.b]\nknown = 1\nunknown = 2\n[c]\nd = 5\n")
	b := nodes["a"].Table("b")["b"]
	if got := b.Table("known", "also"); len(got) != 1 || !got["known"].Exists() {
		t.Errorf("table %v, want the known key alone", got)
	}
	if got := nodes["c"].Table("d")["d"].Table("e"); len(got) != 0 {
		t.Errorf("a number read as a table answers %v", got)
	}
	want := Errors{
		{File: "f.toml", Line: 3, Message: `unknown key "unknown": use one of also, known`},
		{File: "f.toml", Line: 5, Message: "d is a whole number: write a table, [c.d]"},
	}
	check.EqualSlices(t, doc.errors, want, "faults")
}

func TestSyntaxLines(t *testing.T) {
	for text, want := range map[string]int{
		"[a\nb = 1\n":                  1,
		"a = 1\n[b\n":                  2,
		"a = 1\r\nb = \"x\r\nc = 2":    2,
		"a = 1\n\na = 2\n":             3,
		"a = 1\nb = {c = 1, c = 2}\n":  2,
		"a = 1\nb = \"\"\"\nx\ny\n":    4, // where the text could still have ended
		"a = [1,\n2,\n":                2,
		"a = 1\nb\n":                   2,
		"a = 1\nb = 2020-13-01\nc = 1": 2,
		"a = 1\n\xff = 2\n":            2,
		"a = 1\nb = \x00\n":            2,
	} {
		_, err := parseText("f.toml", text)
		faults, ok := err.(Errors) //nolint:errorlint // the type itself is promised
		if !ok || len(faults) != 1 || faults[0].Line != want {
			t.Errorf("%q: %v, want one fault in line %d", text, err, want)
		}
	}
}

// A value that the parser cannot read may be a secret without its quotes.
func TestASyntaxErrorShowsNoValue(t *testing.T) {
	for value, want := range map[string]string{
		"hunterhunter":          `expected value but found "…" instead`,
		"hunter2":               `expected value but found "…" instead`,
		"0xdeadbeefhunter":      `but got 'h' instead`,
		"00112233445566":        `cannot have leading zeroes`,
		"99999999999999999999":  `a number is out of range`,
		"1_2_hunter":            `Invalid integer "…"`,
		"-0xdeadbeef":           `cannot use sign`,
		"1111-22-33T44:55:66Z":  `invalid datetime: "…"`,
		"x":                     `expected value but found "x" instead`,
		"\"a\" = 2":             `but got '=' instead`,
		"{ a = 1, }, 2":         `but got ',' instead`,
		"12.34.hunterhunter":    ``,
		"1e5hunter":             ``,
		"0b01hunter":            ``,
		"inf_hunterhunter":      ``,
		"1.e7hunter":            ``,
		"0.1234567890123456_":   ``,
		"[1, 2 hunterhunter]":   ``,
		"{ a = hunterhunter }":  `found "…" instead`,
		"{ \"hunter\" hunter }": ``,
	} {
		_, err := parseText("f.toml", "key = "+value+"\n")
		if err == nil {
			t.Errorf("%s is read", value)
			continue
		}
		text := err.Error()
		if !strings.Contains(text, want) || strings.Contains(text, "hunter") || len(value) > 3 && strings.Contains(text, value) {
			t.Errorf("key = %s: %s, want %s", value, text, want)
		}
	}
}

// A table that is only implied by a key without a name has a line all the same.
func TestTheLineOfATableThatIsImpliedByNoName(t *testing.T) {
	cfg := parse(t, "[upstream.youtube.costs]\n\"a\" = 1\n[job.\"\".x]\ny = 1\n[job.b.\"\"]\ny = 1\n")
	if len(cfg.Jobs) == 0 {
		t.Fatal("no jobs are read")
	}
	for _, node := range cfg.Jobs {
		if line := node.Line(); line < 1 || line > 6 {
			t.Errorf("job %q is at line %d", node.Key(), line)
		}
	}
}
