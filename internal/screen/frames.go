package screen

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/internal/table"
)

// The sequences of ECMA-48 and xterm that frames need. A terminal ignores those that it does not
// know, as may be synchronized output (mode 2026), which shows a frame at once.
const (
	alternate     = "\x1b[?1049h"
	normal        = "\x1b[?1049l"
	hideCursor    = "\x1b[?25l"
	showCursor    = "\x1b[?25h"
	dontWrap      = "\x1b[?7l"
	wrap          = "\x1b[?7h"
	beginFrame    = "\x1b[?2026h"
	endFrame      = "\x1b[?2026l"
	home          = "\x1b[H"
	clearToRight  = "\x1b[K"
	clearToBottom = "\x1b[J"
)

// Frames draws one text after another on a terminal's alternate screen, in place: it goes to
// the upper left corner, rewrites only the lines that differ, and never clears the screen, so
// nothing flickers.
type Frames struct {
	to    io.Writer
	lines []string // those that are drawn
	size  [2]int   // of the screen that they are drawn on; 0: nothing is drawn yet
}

// NewFrames draws on a terminal.
func NewFrames(to io.Writer) *Frames { return &Frames{to: to} }

// Draw draws a text, and writes nothing if it is drawn already. Lines below the screen's height
// are not drawn: the last line then says so. Lines wider than the screen are cut.
func (f *Frames) Draw(on Screen, text string) error {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > on.Height {
		more := len(lines) - on.Height + 1
		lines = append(lines[:on.Height-1:on.Height-1], on.Faint(fmt.Sprintf("… %d more lines; enlarge the window", more)))
	}
	for i := range lines {
		lines[i] = table.Cut(on.Width, lines[i])
	}
	var b strings.Builder
	if size := [2]int{on.Width, on.Height}; size != f.size {
		if f.size == [2]int{} {
			b.WriteString(alternate + hideCursor + dontWrap)
		}
		f.size, f.lines = size, nil // what the terminal made of the lines is not known
	} else if slices.Equal(lines, f.lines) {
		return nil
	}
	b.WriteString(beginFrame + home)
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if i >= len(f.lines) || f.lines[i] != line {
			b.WriteString(line)
			if table.Columns(line) < on.Width { // at the last column, some terminals would clear that
				b.WriteString(clearToRight)
			}
		}
	}
	if len(lines) < on.Height && (f.lines == nil || len(lines) < len(f.lines)) {
		b.WriteString("\r\n" + clearToBottom)
	}
	b.WriteString(endFrame)
	f.lines = lines
	_, err := io.WriteString(f.to, b.String())
	return err
}

// Close gives the terminal back as it was.
func (f *Frames) Close() error {
	if f.size == [2]int{} {
		return nil
	}
	_, err := io.WriteString(f.to, wrap+showCursor+normal)
	return err
}
