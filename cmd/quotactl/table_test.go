package main

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTableColumns(t *testing.T) {
	wide := newTable("NAME", ">COUNT", "NOTE")
	wide.add("é", "7", "-")
	wide.add("longer", "1234567", "x")
	want := "" +
		"NAME      COUNT  NOTE\n" +
		"é             7  -\n" +
		"longer  1234567  x\n"
	if got := wide.String(); got != want {
		t.Errorf("table\n%swant\n%s", got, want)
	}
}

// A table is stacked from the first column that does not fit, and not before.
func TestTableFits(t *testing.T) {
	for _, n := range []int{1, 74, 75, 76, 77, 300} {
		cell := strings.Repeat("é", n)
		tb := newTable("A", "LAST")
		tb.add(cell, "end")
		stacked := n+2+len("LAST") > tableWidth
		if got := strings.HasPrefix(tb.String(), "A "+strings.Repeat(" ", n-1)+" LAST\n"); got == stacked {
			t.Errorf("a cell of %d: columns %v, want %v:\n%s", n, got, !stacked, tb)
		}
		for line := range strings.SplitSeq(tb.String(), "\n") {
			if width := utf8.RuneCountInString(line); width > tableWidth {
				t.Errorf("a cell of %d makes a line of %d columns", n, width)
			}
		}
		if shown := strings.Count(tb.String(), "é"); shown != n {
			t.Errorf("%d characters of %d are shown", shown, n)
		}
	}
}

func TestTableStacked(t *testing.T) {
	tb := newTable("NAME", ">COUNT", "NOTE")
	tb.add("a", "7", strings.Repeat("x", 75))
	want := "" +
		"NAME     a\n" +
		"  COUNT  7\n" +
		"  NOTE   " + strings.Repeat("x", 71) + "\n" +
		"         xxxx\n"
	if got := tb.String(); got != want {
		t.Errorf("table\n%swant\n%s", got, want)
	}
}

func TestTableWithoutRows(t *testing.T) {
	var b strings.Builder
	if err := newTable("NAME").write(&b); err != nil || b.Len() > 0 {
		t.Errorf("a table without rows writes %q, error %v", b.String(), err)
	}
}
