package screen

import (
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/term"
)

// Sized reports whether a writer is a terminal, and its size in columns and lines; 0 for a
// terminal that does not know it.
type Sized func(w io.Writer) (width, height int, is bool)

// Size is a [Sized] that asks the system.
func Size(w io.Writer) (width, height int, is bool) {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0, 0, false
	}
	if width, height, err := term.GetSize(int(file.Fd())); err == nil {
		return width, height, true
	}
	return 0, 0, true
}

// Use is when colours are used.
type Use string

// The values of Use. Auto: on a terminal, unless NO_COLOR is set or TERM is dumb.
const (
	Auto   Use = "auto"
	Always Use = "always"
	Never  Use = "never"
)

// Where is what a [Screen] is made of.
type Where struct {
	Size   Sized                       // nil: nothing is a terminal
	Env    func(string) (string, bool) // os.LookupEnv
	Zone   *time.Location
	Colour Use
}

// The size of a terminal that does not know its own, and the least that is laid out for.
const (
	usualWidth, usualHeight = 80, 24
	leastWidth, leastHeight = 20, 2
)

// Of is the screen that a writer is. A terminal's size is its own, else that of COLUMNS and
// LINES, else 80 × 24.
func (at Where) Of(w io.Writer, now time.Time) Screen {
	s := Pipe()
	size := at.Size
	if size == nil {
		size = func(io.Writer) (int, int, bool) { return 0, 0, false }
	}
	if width, height, is := size(w); is && !at.dumb() {
		s = Screen{Terminal: true, Width: at.or(width, "COLUMNS", usualWidth), Height: at.or(height, "LINES", usualHeight), Zone: at.Zone, Now: now}
		s.Width, s.Height = max(s.Width, leastWidth), max(s.Height, leastHeight)
	}
	switch at.Colour {
	case Always:
		s.Colour = true
	case Auto:
		without, _ := at.Env("NO_COLOR")
		s.Colour = s.Terminal && without == ""
	case Never:
	}
	return s
}

// dumb reports whether the terminal moves no cursor.
func (at Where) dumb() bool {
	name, set := at.Env("TERM")
	return set && name == "dumb"
}

// or is a size if it is known, else that of the environment, else another.
func (at Where) or(size int, name string, other int) int {
	if size > 0 {
		return size
	}
	text, _ := at.Env(name)
	if n, err := strconv.Atoi(text); err == nil && n > 0 && n < 10_000 {
		return n
	}
	return other
}
