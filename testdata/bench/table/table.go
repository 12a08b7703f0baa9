package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// table is one table over everything: a row for what is measured, with a cell for each kind
// of figure.
type table struct {
	about  string
	rows   [][]string
	missed int // figures that miss what was asked for
}

// columns are the heads of the table.
var columns = []string{"measured", "callers", "a second", "ratios", "CPU µs a charge", "time and size"}

// The columns of figures.
const (
	aSecond = 2 + iota
	beside
	cpu
	other
)

// add adds a section: a row with its command, then its benchmarks, those of one name
// together.
func (t *table) add(s section, lines []line, err error) {
	head := make([]string, len(columns))
	head[0] = fmt.Sprintf("**%s**: `%s`", s.title, strings.ReplaceAll(s.command(), "|", `\|`))
	if err != nil {
		head[0] += " **failed**"
	}
	t.rows = append(t.rows, head)
	var names []string
	for _, l := range lines {
		if name := s.name(l); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		for _, l := range lines {
			if s.name(l) == name {
				t.rows = append(t.rows, t.row(s, l))
			}
		}
	}
}

// row is the row of one benchmark.
func (t *table) row(s section, l line) []string {
	cells := make([][]string, len(columns))
	cells[0], cells[1] = []string{s.name(l)}, []string{l.atOnce}
	for _, unit := range l.ordered() {
		if unit == "ns/op" && !l.timed() {
			continue
		}
		text, column := figure(unit, l.values[unit])
		if column < 0 {
			continue
		}
		if asked, ok := s.asks(l, unit); ok {
			text += " (asked " + asked.String() + ")"
			if !asked.met(l.values[unit]) {
				text = "**" + text + "**"
				t.missed++
			}
		}
		cells[column] = append(cells[column], text)
	}
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = strings.Join(cell, "; ")
	}
	return row
}

// untold are units that the table leaves out: the size of a ledger is in the row's name, and
// a charge's time is the rate's inverse.
var untold = []string{"charges", "entries", "µs/charge"}

// order is in which order units come in a cell. Others follow in theirs.
var order = []string{"of-empty", "of-redis_rate", "server-µs", "server-of-empty", "client-µs"}

// ordered are the units of a line.
func (l line) ordered() []string {
	place := func(unit string) int {
		if at := slices.Index(order, unit); at >= 0 {
			return at
		}
		return len(order)
	}
	return slices.SortedStableFunc(slices.Values(l.units), func(a, b string) int { return place(a) - place(b) })
}

// timed reports whether a line's time an operation says something: not if it has figures of
// its own, because then an operation is a round.
func (l line) timed() bool {
	return !slices.ContainsFunc(l.units, func(unit string) bool { return !slices.Contains([]string{"ns/op", "B/op", "allocs/op"}, unit) })
}

// figure is a value in words, and the column that it belongs to; below 0: none.
func figure(unit string, value float64) (text string, column int) {
	n := number(value)
	plain := func(text string) string { return strings.ReplaceAll(text, "-", " ") }
	switch {
	case slices.Contains(untold, unit):
		return "", -1
	case unit == "charges/s" || unit == "takes/s":
		return n, aSecond
	case strings.HasSuffix(unit, "/s"):
		return n + " " + plain(strings.TrimSuffix(unit, "/s")), aSecond
	case strings.HasSuffix(unit, "/line"):
		return plain(strings.TrimSuffix(unit, "/line")) + " " + n + " ×", beside
	case unit == "cpu-µs/charge":
		return "process " + n, cpu
	case unit == "cpu-µs/request":
		return "empty handler " + n, cpu
	case unit == "ratio":
		return n, beside
	case strings.HasSuffix(unit, "-ratio"):
		return plain(strings.TrimSuffix(unit, "-ratio")) + " " + n, beside
	case strings.HasPrefix(unit, "of-"):
		return n + " of " + plain(unit[len("of-"):]), beside
	case strings.HasPrefix(unit, "times-"):
		return n + " × " + plain(unit[len("times-"):]), beside
	case strings.HasPrefix(unit, "server-of-"):
		return "(" + n + " × " + plain(unit[len("server-of-"):]) + ")", cpu
	case unit == "server-µs":
		return "server " + n, cpu
	case unit == "client-µs":
		return "process " + n, cpu
	}
	for suffix, written := range map[string]string{"-ms": " ms", "-µs": " µs", "-MB": " MB"} {
		if what, ok := strings.CutSuffix(unit, suffix); ok {
			return plain(what) + " " + n + written, other
		}
	}
	return n + " " + unit, other
}

// number is a figure with three digits that count, and with commas between thousands.
func number(value float64) string {
	size := math.Abs(value)
	switch {
	case size == 0 || math.IsInf(size, 0) || math.IsNaN(size):
		return strconv.FormatFloat(value, 'f', 0, 64)
	case size < 1000:
		decimals := max(0, 2-int(math.Floor(math.Log10(size))))
		return strconv.FormatFloat(value, 'f', min(decimals, 3), 64)
	}
	digits := strconv.FormatFloat(size, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if value < 0 {
		return "-" + digits
	}
	return digits
}

// String is the table in Markdown.
func (t *table) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "Measured on %s.\n\n", t.about)
	write := func(cells []string) { fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | ")) }
	write(columns)
	fmt.Fprintf(&text, "|%s\n", strings.Repeat("---|", len(columns)))
	for _, row := range t.rows {
		write(row)
	}
	if t.missed > 0 {
		fmt.Fprintf(&text, "\nIn bold: %d that miss what was asked for.\n", t.missed)
	}
	return text.String()
}
