package table

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quotactl/quotactl/internal/check"
)

func TestTableColumns(t *testing.T) {
	wide := New("NAME", ">COUNT", "NOTE")
	wide.Add("é", "7", "-")
	wide.Add("longer", "1234567", "x")
	want := "" +
		"NAME      COUNT  NOTE\n" +
		"é             7  -\n" +
		"longer  1234567  x\n"
	check.Equal(t, wide.String(), want, "table")
}

// A table is stacked from the first column that does not fit, and not before.
func TestTableFits(t *testing.T) {
	for _, n := range []int{1, 74, 75, 76, 77, 300} {
		cell := strings.Repeat("é", n)
		tb := New("A", "LAST")
		tb.Add(cell, "end")
		stacked := n+2+len("LAST") > Width
		if got := strings.HasPrefix(tb.String(), "A "+strings.Repeat(" ", n-1)+" LAST\n"); got == stacked {
			t.Errorf("a cell of %d: columns %v, want %v:\n%s", n, got, !stacked, tb)
		}
		for line := range strings.SplitSeq(tb.String(), "\n") {
			if width := utf8.RuneCountInString(line); width > Width {
				t.Errorf("a cell of %d makes a line of %d columns", n, width)
			}
		}
		if shown := strings.Count(tb.String(), "é"); shown != n {
			t.Errorf("%d characters of %d are shown", shown, n)
		}
	}
}

func TestTableStacked(t *testing.T) {
	tb := New("NAME", ">COUNT", "NOTE")
	tb.Add("a", "7", strings.Repeat("x", 75))
	want := "" +
		"NAME     a\n" +
		"  COUNT  7\n" +
		"  NOTE   " + strings.Repeat("x", 71) + "\n" +
		"         xxxx\n"
	check.Equal(t, tb.String(), want, "table")
}

// A last column may go on below itself, as long as there is room for it.
func TestTableWraps(t *testing.T) {
	tb := New("NAME", "NOTE")
	tb.Wraps = true
	tb.Add(strings.Repeat("x", 50), "30 2 * * * America/Argentina/Buenos_Aires")
	tb.Below("| ", "below "+strings.Repeat("y", 80))
	want := "" +
		"NAME" + strings.Repeat(" ", 48) + "NOTE\n" +
		strings.Repeat("x", 50) + "  30 2 * * * America/Argentina\n" +
		strings.Repeat(" ", 52) + "/Buenos_Aires\n" +
		"  | below " + strings.Repeat("y", 70) + "\n" +
		"    " + strings.Repeat("y", 10) + "\n"
	check.Equal(t, tb.String(), want, "table")
	tb.rows[0][0] += strings.Repeat("x", 9)
	if got := tb.String(); !strings.HasPrefix(got, "NAME    x") || !strings.HasSuffix(got, "  NOTE  30 2 * * * America/Argentina/Buenos_Aires\n"+want[strings.Index(want, "  | below"):]) {
		t.Errorf("without room\n%s", got)
	}
}

// A value breaks between words, but a long word anywhere.
func TestWrap(t *testing.T) {
	for value, want := range map[string]string{
		"":                                    "-\n",
		strings.Repeat("word ", 15) + "end":   "- " + strings.Repeat("word ", 15) + "end\n",
		strings.Repeat("word ", 15) + "end x": "- " + strings.Repeat("word ", 14) + "word end\n  x\n",
		strings.Repeat("word ", 15) + "endx":  "- " + strings.Repeat("word ", 14) + "word\n  endx\n",
		strings.Repeat("x", 79):               "- " + strings.Repeat("x", 78) + "\n  x\n",
		"a " + strings.Repeat("x", 79):        "- a " + strings.Repeat("x", 76) + "\n  xxx\n",
	} {
		check.Equal(t, Wrap(Width, "- ", value), want, value)
	}
}

func TestTableWithoutRows(t *testing.T) {
	var b strings.Builder
	if err := New("NAME").Write(&b); err != nil || b.Len() > 0 {
		t.Errorf("a table without rows writes %q, error %v", b.String(), err)
	}
}
