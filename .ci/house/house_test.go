package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// module parses a module m of a few files, by path.
func module(t *testing.T, files map[string]string) *tree {
	t.Helper()
	from := fstest.MapFS{}
	for name, text := range files {
		from[name] = &fstest.MapFile{Data: []byte(text)}
	}
	parsed, err := parse("m", from, slices.Sorted(maps.Keys(files)))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// equal compares lists.
func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTree(t *testing.T) {
	tree := module(t, map[string]string{
		"a/a.go":          "package a\n",
		"a/a_test.go":     "package a\n\nimport \"testing\"\n",
		"a/b.lua":         "return 1\n",
		"a/other.go":      "//go:build darwin\n\npackage a\n",
		"a/testdata/t.go": "package t\n",
		".ci/tool.go":     "package tool\n",
		"only.lua":        "return 1\n",
	})
	if len(tree.packages) != 1 || tree.packages[0].path != "a" {
		t.Fatalf("%d packages, the first %+v", len(tree.packages), tree.packages[0])
	}
	if a := tree.packages[0]; a.lines() != 5 || len(a.imports(false)) != 0 || len(a.imports(true)) != 1 {
		t.Errorf("%d lines; imports %q, and with tests %q", a.lines(), a.imports(false), a.imports(true))
	}
}

func TestReadRooms(t *testing.T) {
	for text, want := range map[string]string{
		"a | | what":                                  "3 columns, not 4",
		"a | kitt | what |":                           "there is no mark kitt",
		"a/x | | what |\nb/x | | what |":              "x is the short name of a/x, too",
		"a | | what | b":                              "a may import b, which is no room",
		"# a comment\n\na | kit tests | what | x.y/z": "",
	} {
		switch _, err := readRooms(text); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, not %s", text, err, want)
		}
	}
}

func TestFaults(t *testing.T) {
	tree := module(t, map[string]string{
		"top/a.go":      "package top\n\nimport (\n\t_ \"m/low\"\n\t_ \"x.y/z/inner\"\n)\n",
		"top/a_test.go": "package top\n\nimport _ \"m/kit\"\n",
		"low/a.go":      "package low\n",
		"kit/a.go":      "package kit\n\nimport _ \"testing\"\n",
	})
	for _, c := range []struct {
		table string
		want  []string
	}{
		{"top | tests | what | low kit x.y/z\nlow | | what |\nkit | kit | what |", nil},
		{"top | | what | low x.y/z/inner$\nlow | | what |\nkit | kit | what |", nil},
		{"low | | what |\ntop | | what | low x.y/z\nkit | kit | what |", []string{"top may import low, which does not stand below it"}},
		{"top | | what | low kit x.y/z\nlow | | what |\nkit | kit | what |", []string{"top may import kit, and does not"}},
		{"top | | what | low x.y/z$\nlow | | what |\nkit | kit | what |", []string{"top imports x.y/z/inner, which its line does not name: name it there if it stands below, or move the code", "top may import x.y/z$, and does not"}},
		{"top | | what | low x.y/z\nlow | kit | what |\nkit | | what |", []string{"top imports low, a test kit", "kit imports testing, but is not marked kit"}},
		{"top | | what | x.y/z\nkit | kit | what |\ngone | | what |", []string{"low has no line: add one, above all that it imports and below all that import it, such as: low | | what it is for |", "top imports m/low, which its line does not name: name it there if it stands below, or move the code", "there is no package gone"}},
	} {
		rooms, err := readRooms(c.table)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, line := range c.want {
			want = append(want, table+": "+line)
		}
		equal(t, c.table, faults(rooms, tree), want...)
	}
}

// The files of other systems and tags are held to the table too, and so is cgo.
func TestImportsOfEachBuild(t *testing.T) {
	tree := module(t, map[string]string{
		"top/a_windows.go": "package top\n\nimport _ \"x.y/z\"\n",
		"top/b.go":         "//go:build race\n\npackage top\n\nimport _ \"C\"\n",
	})
	rooms, err := readRooms("top | | what |")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"C", "x.y/z"} {
		want = append(want, table+": top imports "+name+", which its line does not name: name it there if it stands below, or move the code")
	}
	equal(t, "faults", faults(rooms, tree), want...)
}

func TestLayers(t *testing.T) {
	rooms, err := readRooms("a/top | | what | low x.y/z$\nlow | tests | what |")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := layers(&out, "m", rooms); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"a/top":{"files":["**/a/top/*.go","!$test"],"list-mode":"strict","allow":["$gostd","m/low$","x.y/z$"]}`,
		`"low":{"files":["**/low/*.go"],"list-mode":"strict","allow":["$gostd","m/low$"]}`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s\nhas no %s", &out, want)
		}
	}
}

func TestMap(t *testing.T) {
	rooms := []*room{{name: "a", purpose: "this"}, {name: "b/c", purpose: "that"}}
	const before, after = "# The house\n\n| room | is for |\n|---|---|\n", "\nAnd more.\n"
	got, err := drawMap(before+"| `old/` | what |\n"+after, rooms)
	if want := before + "| `a/` | this |\n| `b/c/` | that |\n" + after; err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := drawMap("no table", rooms); err == nil {
		t.Error("a page without the table")
	}
}

func TestCompare(t *testing.T) {
	list := []measure{{"lines", 7, "a"}, named("names", []string{"b"})}
	report, beyond, err := compare(list, "# the most\n\n6 lines\n1 names\n")
	if err != nil || len(beyond) != 1 || !strings.HasPrefix(beyond[0], "lines: 7, more than 6") {
		t.Errorf("%q, %v", beyond, err)
	}
	equal(t, "report", report, "lines: 7 (at most 6): a", "names: 1 (at most 1): b")
	for _, text := range []string{"7 lines\n", "7 lines\n1 names\n2 others\n", "many lines\n1 names\n"} {
		if _, _, err := compare(list, text); err == nil {
			t.Errorf("bounds %q", text)
		}
	}
}
