package screen

import (
	"io"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/internal/table"
)

// Live is the last line of a terminal, which says what is being done. What is written to the
// terminal meanwhile goes above it. A Live that is nil shows nothing.
type Live struct {
	to io.Writer
	on func() Screen

	mu    sync.Mutex // guards all below and what is written
	shown bool
	line  string // empty: nothing is being done
	held  bool   // what is written meanwhile is kept instead
	kept  []byte
}

// NewLive shows lines on a terminal; nil if on says that it is none.
func NewLive(to io.Writer, on func() Screen) *Live {
	if !on().Terminal {
		return nil
	}
	return &Live{to: to, on: on}
}

// Above is a writer to the same terminal, above the line.
func (l *Live) Above(to io.Writer) io.Writer {
	if l == nil {
		return to
	}
	return above{l, to}
}

type above struct {
	*Live
	to io.Writer
}

func (a above) Write(text []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held {
		a.kept = append(a.kept, text...)
		a.kept = a.kept[max(0, len(a.kept)-mostKept):]
		return len(text), nil
	}
	a.clear()
	n, err := a.to.Write(text)
	if len(text) > 0 && text[len(text)-1] == '\n' {
		a.draw()
	}
	return n, err
}

// mostKept is how much of what is written is kept, in bytes.
const mostKept = 64 << 10

// Hold keeps what is written above the line until the returned function is called, which writes
// it. last is the newest line that is kept; empty: nothing is.
func (l *Live) Hold() (last func() string, release func()) {
	if l == nil {
		return func() string { return "" }, func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
	return func() string {
			l.mu.Lock()
			defer l.mu.Unlock()
			lines := strings.Split(strings.TrimRight(string(l.kept), "\n"), "\n")
			return lines[len(lines)-1]
		}, sync.OnceFunc(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			_, _ = l.to.Write(l.kept) // as any log
			l.held, l.kept = false, nil
		})
}

// The line is shown from a second on, and then anew each second.
const (
	showAfter = time.Second
	showEvery = time.Second
)

// While shows what says, as it changes, until the returned function is called: from a second
// on, with how long it has taken. One thing is shown at a time.
func (l *Live) While(says func() string) (end func()) {
	if l == nil {
		return func() {}
	}
	began := time.Now()
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(showAfter)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
				l.say(span(time.Since(began)) + "  " + says())
				timer.Reset(showEvery)
			case <-over:
				l.say("")
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(over)
		<-ended
	})
}

func (l *Live) say(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = line
	l.clear()
	l.draw()
}

func (l *Live) clear() {
	if l.shown {
		_, _ = io.WriteString(l.to, "\r"+clearToRight) // a terminal that is gone shows nothing
		l.shown = false
	}
}

func (l *Live) draw() {
	if l.line == "" {
		return
	}
	on := l.on()
	_, _ = io.WriteString(l.to, on.Faint(table.Cut(on.Width-1, l.line)))
	l.shown = true
}
