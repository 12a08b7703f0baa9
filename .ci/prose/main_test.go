package main

import (
	"regexp"
	"slices"
	"testing"
)

// Each phrase is found in its example; ordinary English has none.
func TestPhrases(t *testing.T) {
	phrases, err := readPhrases("../phrases")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range phrases {
		if len(find([]phrase{p}, "x.md", []byte(p.example))) == 0 {
			t.Errorf("%q does not match its example: %s", p, p.example)
		}
	}
	for _, good := range []string{
		"two limits, one of which counts calls; the other, of which 80 units are left, counts units",
		"The rows are told apart by their operations.",
		"Who may act? What is not counted?",
		"The log says who asked and what was charged.",
		"A job that is no longer configured, or that is no more than a name.",
		"If there are none, nothing is kept.",
		"It runs from the ledger as it is now.",
		"What happens: the call waits.",
		"a list of text files",
	} {
		if hits := find(phrases, "x.md", []byte(good)); len(hits) > 0 {
			t.Errorf("good English is refused: %q", hits)
		}
	}
}

// A phrase is found over the lines of a comment, a string or a paragraph, and nowhere else.
func TestFind(t *testing.T) {
	phrases := []phrase{{regexp.MustCompile("red fox"), "blue fox", "a red fox"}}
	for _, c := range []struct{ name, src, want string }{
		{"a.go", "package a\n\n// One red\n// fox.\n", "3"},
		{"a.go", "package a\n\n// One red\n//\n// fox.\n", ""},
		{"a.go", "package a\n\nvar red, fox = 1, 2 // red\n\n// fox\n", ""},
		{"a.go", "package a\n\nvar (\n\tred = 1 // red\n\tfox = 1 // fox\n)\n", ""},
		{"a.go", "package a\n\nvar a = 1 // a red\n// fox\n", "3"},
		{"a.go", "package a\n\nvar a = \"a red \" +\n\t\"fox\"\n", "3"},
		{"a.go", "package a\n\nvar a, b = \"a red \",\n\t\"fox\"\n", ""},
		{"a.go", "package a\n\nvar a = `\n\na red\nfox`\n", "5"},
		{"a.md", "One red\nfox.\n", "1"},
		{"a.md", "One red\n\nfox.\n", ""},
		{"a.md", "- One red\n- fox.\n", ""},
		{"a.md", "- One\n  red fox.\n", "2"},
		{"a.md", "```\nred fox\n```\nA red fox.\n", "4"},
		{"a.html", "<p>A red\nfox</p>\n", ""},
		{"a.html", "<p>A\nred fox</p>\n", "2"},
		{"a.lua", "-- One red\n-- fox.\nlocal a = 1\n", "1"},
		{"a.lua", "local red -- red\nlocal fox\n", ""},
		{"a.txtar", "stderr 'a red fox'\n# A red\n# fox.\n", "1 2"},
		{"Makefile", "# A red\n\n# fox\n", ""},
	} {
		var want []string
		for _, line := range []byte(c.want) {
			if line != ' ' {
				want = append(want, c.name+":"+string(line)+`: "red fox": write blue fox`)
			}
		}
		if got := find(phrases, c.name, []byte(c.src)); !slices.Equal(got, want) {
			t.Errorf("%s %q: %q, want %q", c.name, c.src, got, want)
		}
	}
}
