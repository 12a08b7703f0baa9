package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// tableWidth is the widest a table may be, in columns of a terminal.
const tableWidth = 80

// table is rows under a head. It is written as columns where they fit into
// tableWidth, else as one block of lines for each row.
type table struct {
	head  []string
	right []bool // columns set to the right: numbers
	rows  [][]string
}

// newTable takes the heads of the columns; one that opens with '>' is set to
// the right.
func newTable(heads ...string) *table {
	t := &table{}
	for _, head := range heads {
		name, right := strings.CutPrefix(head, ">")
		t.head = append(t.head, name)
		t.right = append(t.right, right)
	}
	return t
}

// add takes a row, as long as the head.
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write writes the table; one without rows is not written at all.
func (t *table) write(w io.Writer) error {
	if len(t.rows) == 0 {
		return nil
	}
	_, err := io.WriteString(w, t.String())
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// String is the table as it is written.
func (t *table) String() string {
	widths := make([]int, len(t.head))
	total := -2
	for i := range t.head {
		for _, row := range append([][]string{t.head}, t.rows...) {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		total += widths[i] + 2
	}
	if total > tableWidth {
		return t.stacked()
	}
	var b strings.Builder
	for _, row := range append([][]string{t.head}, t.rows...) {
		line := ""
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.right[i] {
				line += pad + cell + "  "
			} else {
				line += cell + pad + "  "
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// stacked is a block for each row, one line for each of its cells.
func (t *table) stacked() string {
	width := 0
	for _, head := range t.head {
		width = max(width, utf8.RuneCountInString(head))
	}
	var b strings.Builder
	for _, row := range t.rows {
		for i, cell := range row {
			indent := "  "
			if i == 0 {
				indent = ""
			}
			pad := strings.Repeat(" ", width+2-len(indent)-utf8.RuneCountInString(t.head[i]))
			b.WriteString(wrap(indent+t.head[i]+pad+"  ", cell))
		}
	}
	return b.String()
}

// wrap is a label and a value on lines of at most tableWidth; a value that is
// too long goes on below itself.
func wrap(label, value string) string {
	room := tableWidth - utf8.RuneCountInString(label)
	blank := strings.Repeat(" ", utf8.RuneCountInString(label))
	var b strings.Builder
	for runes := []rune(value); ; label = blank {
		n := min(room, len(runes))
		b.WriteString(strings.TrimRight(label+string(runes[:n]), " ") + "\n")
		if runes = runes[n:]; len(runes) == 0 {
			return b.String()
		}
	}
}
