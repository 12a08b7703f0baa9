// Package table lays out rows for people: as columns where a terminal has room for them, else
// as a block of lines for each row. Begin with [New], then [Table.Add] and [Table.Write];
// [Wrap] lays out one line.
package table

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Width is the widest a table is unless another width is set, in columns of a terminal.
const Width = 80

// Table is rows under a head. It is written as columns where they fit into its
// width, else as one block of lines for each row.
type Table struct {
	Width int // at most, in columns
	// Head paints the heads; nil: it does not. Paint takes no columns.
	Head func(string) string
	// Wraps lets the last column go on below itself where that makes the columns fit.
	Wraps bool
	head  []string
	right []bool // columns set to the right: numbers
	rows  [][]string
	under map[int][]string // what is said below rows
}

// New takes the heads of the columns; one that opens with '>' is set to
// the right.
func New(heads ...string) *Table {
	t := &Table{Width: Width}
	for _, head := range heads {
		name, right := strings.CutPrefix(head, ">")
		t.head = append(t.head, name)
		t.right = append(t.right, right)
	}
	return t
}

// Add takes a row, as long as the head.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Below takes a line that is said below the last row, over as many lines as it
// needs; the first of them begins with the mark.
func (t *Table) Below(mark, text string) {
	if t.under == nil {
		t.under = map[int][]string{}
	}
	at := len(t.rows) - 1
	t.under[at] = append(t.under[at], Wrap(t.Width, "  "+mark, text))
}

// DropSame drops a column whose cells are all the same as those of another, or with no name of
// another are all "-".
func (t *Table) DropSame(head, other string) {
	at, beside := slices.Index(t.head, head), slices.Index(t.head, other)
	for _, row := range t.rows {
		if beside < 0 && row[at] != "-" || beside >= 0 && row[at] != row[beside] {
			return
		}
	}
	t.head, t.right = slices.Delete(t.head, at, at+1), slices.Delete(t.right, at, at+1)
	for i := range t.rows {
		t.rows[i] = slices.Delete(t.rows[i], at, at+1)
	}
}

// Empty says that the table has no rows.
func (t *Table) Empty() bool { return len(t.rows) == 0 }

// Write writes the table; one without rows is not written at all.
func (t *Table) Write(w io.Writer) error {
	if t.Empty() {
		return nil
	}
	if _, err := io.WriteString(w, t.String()); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// String is the table as it is written.
func (t *Table) String() string {
	widths := make([]int, len(t.head))
	total := -2
	for i := range t.head {
		for _, row := range append([][]string{t.head}, t.rows...) {
			widths[i] = max(widths[i], Columns(row[i]))
		}
		total += widths[i] + 2
	}
	last := len(widths) - 1
	if room := t.Width - (total - widths[last]); total > t.Width && (!t.Wraps || room < leastRoom) {
		return t.stacked()
	}
	var b strings.Builder
	for at, row := range append([][]string{t.head}, t.rows...) {
		line := ""
		paint := t.paint(at == 0)
		for i, cell := range row[:last] {
			line += padded(paint(cell), widths[i], t.right[i]) + "  "
		}
		end := paint(row[last])
		if t.right[last] {
			end = padded(end, widths[last], true)
		}
		b.WriteString(Wrap(t.Width, line, end) + strings.Join(t.under[at-1], ""))
	}
	return b.String()
}

// paint is how the cells of a row are painted, which is the head or another.
func (t *Table) paint(head bool) func(string) string {
	if head && t.Head != nil {
		return t.Head
	}
	return func(cell string) string { return cell }
}

// leastRoom is the least width, in columns, of a last column that wraps.
const leastRoom = 20

// padded is a cell as wide as its column.
func padded(cell string, width int, right bool) string {
	pad := strings.Repeat(" ", width-Columns(cell))
	if right {
		return pad + cell
	}
	return cell + pad
}

// stacked is a block for each row, one line for each of its cells.
func (t *Table) stacked() string {
	width := 0
	for _, head := range t.head {
		width = max(width, Columns(head))
	}
	var b strings.Builder
	for at, row := range t.rows {
		for i, cell := range row {
			indent := "  "
			if i == 0 {
				indent = ""
			}
			pad := strings.Repeat(" ", width+2-len(indent)-Columns(t.head[i]))
			b.WriteString(Wrap(t.Width, indent+t.paint(true)(t.head[i])+pad+"  ", cell))
		}
		b.WriteString(strings.Join(t.under[at], ""))
	}
	return b.String()
}

// Wrap puts a label and a value on lines of at most that many columns. A longer value
// continues below itself, at a word's start if it has words.
func Wrap(width int, label, value string) string {
	room := max(leastRoom, width-Columns(label))
	blank := strings.Repeat(" ", Columns(label))
	var b strings.Builder
	for {
		line, rest := split(value, room)
		b.WriteString(strings.TrimRight(label+line, " ") + "\n")
		if rest == "" {
			return b.String()
		}
		label, value = blank, rest
	}
}

// split is what of a text goes on a line of that many columns, and the rest.
func split(text string, room int) (line, rest string) {
	taken, space := 0, -1
	for at := 0; at < len(text); {
		length, takes := next(text[at:])
		switch {
		case text[at] == ' ' && taken > room/2:
			space = at
		case taken+takes <= room:
		case space >= 0:
			return text[:space], text[space+1:]
		default:
			return text[:at], text[at:]
		}
		if taken+takes > room {
			return text[:space], text[space+1:]
		}
		at, taken = at+length, taken+takes
	}
	return text, ""
}

// Columns is how many columns of a terminal a text takes: its characters without the
// sequences that colour it.
func Columns(text string) (n int) {
	for at := 0; at < len(text); {
		length, width := next(text[at:])
		at, n = at+length, n+width
	}
	return n
}

// next is the length in bytes of a text's first character, and the columns that it takes: none
// for a sequence that colours.
func next(text string) (length, width int) {
	if strings.HasPrefix(text, "\x1b[") {
		if rest := strings.TrimLeft(text[2:], "0123456789;"); strings.HasPrefix(rest, "m") {
			return len(text) - len(rest) + 1, 0
		}
	}
	_, length = utf8.DecodeRuneInString(text)
	return length, 1
}

// Cut is a line of at most so many columns. The sequences that colour it stay.
func Cut(width int, line string) string {
	if Columns(line) <= width {
		return line
	}
	var b strings.Builder
	left := width - 1
	for at := 0; at < len(line); {
		length, takes := next(line[at:])
		switch {
		case takes == 0, left > 0:
			b.WriteString(line[at : at+length])
			left -= takes
		case left == 0:
			b.WriteString("…")
			left--
		}
		at += length
	}
	return b.String()
}
