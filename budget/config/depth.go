package config

import (
	"fmt"
	"strings"
)

// maxDepth is how deep tables and arrays may be nested. A file with thousands of levels
// would take the parser excessive time or overflow its stack.
const maxDepth = 32

// depth counts how deep a text nests, before the parser sees it.
type depth struct {
	text   string
	at     int
	header int   // the parts of the name of the table that its keys belong to
	open   []int // the levels that each open bracket adds
	levels int   // the sum of open
	dots   int   // in the key that is being read
}

// tooDeep is the line in which a text nests deeper than maxDepth; 0: nowhere. For a text
// that is not TOML the result is arbitrary.
func tooDeep(text string) (line int) {
	d := depth{text: text}
	for inHeader := false; d.at < len(d.text); d.at++ {
		switch c := d.text[d.at]; c {
		case '"', '\'':
			d.skipString(c)
		case '#':
			d.skipTo("\n")
		case '\n':
			if inHeader {
				d.header = d.dots + 1
			}
			inHeader, d.dots = false, 0
		case ',':
			d.dots = 0
		case '.':
			d.dots++
		case '[', '{':
			if len(d.open) == 0 && d.beginsLine() {
				inHeader, d.header = true, 0
				d.skipTo("\n.#\"'") // the dots count the parts of the name
				continue
			}
			d.open = append(d.open, d.dots+1)
			d.levels += d.dots + 1
			d.dots = 0
		case ']', '}':
			if last := len(d.open) - 1; last >= 0 {
				d.dots = d.open[last] - 1
				d.levels -= d.open[last]
				d.open = d.open[:last]
			}
		}
		if d.header+d.levels+d.dots > maxDepth {
			return 1 + strings.Count(d.text[:min(d.at, len(d.text))], "\n")
		}
	}
	return 0
}

// beginsLine reports whether only blanks precede the place in its line.
func (d *depth) beginsLine() bool {
	before := strings.TrimRight(d.text[:d.at], " \t")
	return before == "" || before[len(before)-1] == '\n'
}

// skipTo moves to just before the next of some characters, or to the text's end.
func (d *depth) skipTo(any string) {
	if to := strings.IndexAny(d.text[d.at:], any); to > 0 {
		d.at += to - 1
		return
	}
	d.at = len(d.text)
}

// skipString moves to the end of a string, or of its line if the string does not end.
func (d *depth) skipString(quote byte) {
	long := `"""`
	if quote == '\'' {
		long = "'''"
	}
	isLong := strings.HasPrefix(d.text[d.at:], long)
	if isLong {
		d.at += 2
	}
	for d.at++; d.at < len(d.text); d.at++ {
		switch c := d.text[d.at]; {
		case c == '\\' && quote == '"':
			d.at++
		case isLong && strings.HasPrefix(d.text[d.at:], long):
			d.at += 2
			return
		case !isLong && c == quote:
			return
		case !isLong && c == '\n':
			d.at-- // it ends the line too
			return
		}
	}
}

// checkDepth refuses a text that nests too deep for the parser.
func checkDepth(path, text string) error {
	line := tooDeep(text)
	if line == 0 {
		return nil
	}
	return Errors{{File: path, Line: line, Message: fmt.Sprintf("tables and arrays are nested more than %d deep here, and no configuration needs that: is a bracket or a brace not closed?", maxDepth)}}
}
