// Package screen knows what text is written for: a terminal with its size, colours and time
// zone, or a pipe, which gets 80 columns, no colours, and instants in UTC. A [Screen] lays out
// lines, tables and bars; [Where.Of] finds out what a writer is. [Watch] redraws a terminal in
// place, a [Live] line shows what takes long, and [Events] writes a log in words.
package screen

import (
	"strconv"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/quotactl/quotactl/internal/table"
)

// Screen is what text is written for.
type Screen struct {
	Terminal bool
	// Width and Height are in columns and lines; Height is 0 where nothing bounds it.
	Width, Height int
	Colour        bool
	Zone          *time.Location // of the times shown on a terminal
	Now           time.Time      // what the times shown on a terminal are relative to
}

// Pipe is what is no terminal.
func Pipe() Screen { return Screen{Width: table.Width} }

// mostWidth is the widest that prose is on a terminal, in columns.
const mostWidth = 120

// Wrap puts a label and a value on lines of at most the screen's width; see [table.Wrap].
func (s Screen) Wrap(label, value string) string {
	return table.Wrap(min(s.Width, mostWidth), label, value)
}

// Number is a number for people; on a terminal with a comma before each three digits.
func (s Screen) Number(n int64) string {
	if s.Terminal {
		return humanize.Comma(n)
	}
	return strconv.FormatInt(n, 10)
}

// Table makes a table as wide as the screen; see [table.New].
func (s Screen) Table(heads ...string) *table.Table {
	t := table.New(heads...)
	t.Width = s.Width
	if s.Colour {
		t.Head = s.Faint
	}
	return t
}

// The colours, of the 16 that every terminal has. They are for what is said in words too.

// Strong is what is read first.
func (s Screen) Strong(text string) string { return s.sgr("1", text) }

// Faint is what is read last.
func (s Screen) Faint(text string) string { return s.sgr("2", text) }

// Good is as it should be.
func (s Screen) Good(text string) string { return s.sgr("32", text) }

// Warn needs attention soon.
func (s Screen) Warn(text string) string { return s.sgr("33", text) }

// Bad needs attention now.
func (s Screen) Bad(text string) string { return s.sgr("31", text) }

func (s Screen) sgr(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
