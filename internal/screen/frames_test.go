package screen

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// glass is a terminal that knows what frames write, and no more.
type glass struct {
	t             *testing.T
	mu            sync.Mutex // guards all below
	width, height int
	rows          []string
	row           int
	wrote         bool // into the row
	unwrapped     bool
	open, hidden  bool
}

func newGlass(t *testing.T, width, height int) *glass {
	return &glass{t: t, width: width, height: height, rows: make([]string, height)}
}

// shows is what the first rows show.
func (g *glass) shows(n int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.rows[:n], "|")
}

// size is how large it is.
func (g *glass) size() (width, height int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.width, g.height
}

func (g *glass) Write(text []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for rest := string(text); rest != ""; {
		took := 0
		for sequence, do := range map[string]func(){
			"\x1b[?1049h": func() { g.open = true }, "\x1b[?1049l": func() { g.open = false },
			"\x1b[?25l": func() { g.hidden = true }, "\x1b[?25h": func() { g.hidden = false },
			"\x1b[?7l": func() { g.unwrapped = true }, "\x1b[?7h": func() { g.unwrapped = false },
			"\x1b[?2026h": func() {}, "\x1b[?2026l": func() {},
			"\x1b[H": func() { g.row = 0 },
			"\x1b[K": func() { // what is written replaces a whole row here
				if !g.wrote {
					g.rows[g.row] = ""
				} else if len([]rune(g.rows[g.row])) == g.width { // the cursor stays in the last column
					g.rows[g.row] = string([]rune(g.rows[g.row])[:g.width-1])
				}
				g.wrote = false
			},
			"\x1b[J": func() { clear(g.rows[g.row:]) },
			"\r\n": func() {
				g.wrote = false
				if g.row++; g.row >= g.height {
					g.t.Fatal("the terminal scrolled")
				}
			},
		} {
			if strings.HasPrefix(rest, sequence) {
				do()
				took = len(sequence)
			}
		}
		if took == 0 { // a row's text is followed by the clearing of the rest of the row
			end := strings.IndexAny(rest, "\x1b\r")
			if full := len([]rune(rest[:end])) >= g.width; !full && !strings.HasPrefix(rest[end:], "\x1b[K") {
				g.t.Fatalf("a row is not cleared to its end: %q", rest)
			}
			g.rows[g.row], g.wrote, took = rest[:end], true, end
			if n := len([]rune(rest[:end])); n > g.width {
				g.t.Errorf("a row of %d columns", n)
			}
		}
		rest = rest[took:]
	}
	return len(text), nil
}

// Whatever is drawn after another, the terminal shows it, and what is written is no more than what
// changed.
func TestFrames(t *testing.T) {
	on := Screen{Terminal: true, Width: 20, Height: 5}
	g := newGlass(t, on.Width, on.Height)
	frames := NewFrames(g)
	must.Do(t, frames.Close())
	check.Equal(t, g.open, false, "nothing is drawn: the terminal does not change")
	for _, text := range []string{
		"a\nb\nc\n", "a\nB\nc\n", "a\n", "", "a\nb\nc\nd\ne\n", "1\n2\n3\n4\n5\n6\n7\n", "x\n" + strings.Repeat("long ", 9) + "\n",
		"\n\nc\n", "a\nb", "12345678901234567890\n1234567890123456789\n",
	} {
		must.Do(t, frames.Draw(on, text))
		want := strings.Split(strings.TrimRight(text, "\n"), "\n")
		if len(want) > on.Height {
			want = append(want[:on.Height-1:on.Height-1], "… 3 more lines; enl…")
		}
		for i := range on.Height {
			line := ""
			if i < len(want) {
				line = want[i]
			}
			if len([]rune(line)) > on.Width {
				line = string([]rune(line)[:on.Width-1]) + "…"
			}
			check.Equal(t, g.rows[i], line, "row", i, "of", text)
		}
		check.Equal(t, g.open && g.hidden, true, "on the alternate screen, without a cursor")
	}
	g.height, on.Height, g.rows = 3, 3, []string{"what", "a resize", "left"}
	must.Do(t, frames.Draw(on, "a\nb"))
	check.Equal(t, strings.Join(g.rows, "|"), "a|b|", "after a resize")
	must.Do(t, frames.Close())
	check.Equal(t, g.open || g.hidden || g.unwrapped, false, "as it was")
}

// A refresh writes what has changed: nothing if nothing has, a line and a few bytes for each other
// if one has, and never more than the screen. It never clears the screen.
func TestFramesWriteLittle(t *testing.T) {
	on := Screen{Terminal: true, Width: 80, Height: 24}
	var out bytes.Buffer
	frames := NewFrames(&out)
	text := func(changing int) string {
		lines := make([]string, 30)
		for i := range lines {
			lines[i] = strings.Repeat(fmt.Sprint(i%10), 70)
		}
		lines[7] = fmt.Sprint(changing)
		return strings.Join(lines, "\n")
	}
	size := func(changing int) int {
		out.Reset()
		must.Do(t, frames.Draw(on, text(changing)))
		if s := out.String(); strings.Contains(s, "\x1b[2J") || strings.Contains(s, "\x1b[3J") {
			t.Errorf("the screen is cleared: %q", s)
		}
		return out.Len()
	}
	const perLine = len("\r\n")
	if first := size(0); first > on.Height*(on.Width+len(clearToRight)+perLine)+64 {
		t.Errorf("the first frame has %d bytes", first)
	}
	check.Equal(t, size(0), 0, "bytes for the same text")
	if n := size(123); n > len("123")+len(clearToRight)+on.Height*perLine+32 {
		t.Errorf("%d bytes for one changed line", n)
	}
}
