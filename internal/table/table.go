// Package table lays out rows for people: as columns where a terminal has room for them, else
// as a block of lines for each row. Begin with [New], then [Table.Add] and [Table.Write];
// [Wrap] lays out one line.
package table

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Width is the widest a table may be, in columns of a terminal.
const Width = 80

// Table is rows under a head. It is written as columns where they fit into
// Width, else as one block of lines for each row.
type Table struct {
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
	t := &Table{}
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
	t.under[at] = append(t.under[at], Wrap("  "+mark, text))
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
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		total += widths[i] + 2
	}
	last := len(widths) - 1
	if room := Width - (total - widths[last]); total > Width && (!t.Wraps || room < leastRoom) {
		return t.stacked()
	}
	var b strings.Builder
	for at, row := range append([][]string{t.head}, t.rows...) {
		line := ""
		for i, cell := range row[:last] {
			line += padded(cell, widths[i], t.right[i]) + "  "
		}
		end := row[last]
		if t.right[last] {
			end = padded(end, widths[last], true)
		}
		b.WriteString(Wrap(line, end) + strings.Join(t.under[at-1], ""))
	}
	return b.String()
}

// leastRoom is the least width, in columns, of a last column that wraps.
const leastRoom = 20

// padded is a cell as wide as its column.
func padded(cell string, width int, right bool) string {
	pad := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
	if right {
		return pad + cell
	}
	return cell + pad
}

// stacked is a block for each row, one line for each of its cells.
func (t *Table) stacked() string {
	width := 0
	for _, head := range t.head {
		width = max(width, utf8.RuneCountInString(head))
	}
	var b strings.Builder
	for at, row := range t.rows {
		for i, cell := range row {
			indent := "  "
			if i == 0 {
				indent = ""
			}
			pad := strings.Repeat(" ", width+2-len(indent)-utf8.RuneCountInString(t.head[i]))
			b.WriteString(Wrap(indent+t.head[i]+pad+"  ", cell))
		}
		b.WriteString(strings.Join(t.under[at], ""))
	}
	return b.String()
}

// Wrap puts a label and a value on lines of at most Width. A longer value
// continues below itself, at a word's start if it has words.
func Wrap(label, value string) string {
	room := Width - utf8.RuneCountInString(label)
	blank := strings.Repeat(" ", utf8.RuneCountInString(label))
	var b strings.Builder
	for runes := []rune(value); ; label = blank {
		n := min(room, len(runes))
		next := n
		if n < len(runes) {
			for at := n; at > room/2; at-- {
				if runes[at] == ' ' {
					n, next = at, at+1
					break
				}
			}
		}
		b.WriteString(strings.TrimRight(label+string(runes[:n]), " ") + "\n")
		if runes = runes[next:]; len(runes) == 0 {
			return b.String()
		}
	}
}
