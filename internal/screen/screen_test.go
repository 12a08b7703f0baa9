package screen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
)

func envOf(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestOf(t *testing.T) {
	sized := func(width, height int, is bool) Sized {
		return func(io.Writer) (int, int, bool) { return width, height, is }
	}
	for name, test := range map[string]struct {
		at   Where
		want Screen
	}{
		"a pipe":                   {Where{Size: sized(0, 0, false), Env: envOf(), Colour: Auto}, Screen{Width: 80}},
		"nothing is known":         {Where{Env: envOf(), Colour: Auto}, Screen{Width: 80}},
		"a pipe, always coloured":  {Where{Size: sized(0, 0, false), Env: envOf("NO_COLOR", "1"), Colour: Always}, Screen{Width: 80, Colour: true}},
		"a terminal":               {Where{Size: sized(100, 30, true), Env: envOf(), Colour: Auto}, Screen{Terminal: true, Width: 100, Height: 30, Colour: true}},
		"NO_COLOR":                 {Where{Size: sized(100, 30, true), Env: envOf("NO_COLOR", "1"), Colour: Auto}, Screen{Terminal: true, Width: 100, Height: 30}},
		"NO_COLOR that is empty":   {Where{Size: sized(100, 30, true), Env: envOf("NO_COLOR", ""), Colour: Auto}, Screen{Terminal: true, Width: 100, Height: 30, Colour: true}},
		"never":                    {Where{Size: sized(100, 30, true), Env: envOf(), Colour: Never}, Screen{Terminal: true, Width: 100, Height: 30}},
		"a dumb terminal":          {Where{Size: sized(100, 30, true), Env: envOf("TERM", "dumb"), Colour: Auto}, Screen{Width: 80}},
		"a size that is not known": {Where{Size: sized(0, 0, true), Env: envOf(), Colour: Never}, Screen{Terminal: true, Width: 80, Height: 24}},
		"a size of the environment": {
			Where{Size: sized(0, 0, true), Env: envOf("COLUMNS", "132", "LINES", "43"), Colour: Never}, Screen{Terminal: true, Width: 132, Height: 43},
		},
		"nonsense in the environment": {
			Where{Size: sized(0, 0, true), Env: envOf("COLUMNS", "-1", "LINES", "many"), Colour: Never}, Screen{Terminal: true, Width: 80, Height: 24},
		},
		"a tiny terminal": {Where{Size: sized(3, 2, true), Env: envOf(), Colour: Never}, Screen{Terminal: true, Width: 20, Height: 2}},
	} {
		check.Equal(t, test.at.Of(nil, time.Time{}), test.want, name)
	}
}

func TestBar(t *testing.T) {
	plain := Screen{}
	for _, test := range []struct {
		used, kept, whole int64
		want              string
	}{
		{0, 0, 100, "░░░░░░░░░░"}, {1, 0, 100, "█░░░░░░░░░"}, {50, 0, 100, "█████░░░░░"}, {50, 20, 100, "█████▒▒░░░"},
		{99, 0, 100, "█████████░"}, {100, 0, 100, "██████████"}, {150, 50, 100, "██████████"}, {0, 100, 100, "▒▒▒▒▒▒▒▒▒▒"},
		{0, 1, 1_000_000, "▒░░░░░░░░░"}, {999_999, 1, 1_000_000, "█████████▒"}, {0, 0, 0, "██████████"}, {-5, -5, 100, "░░░░░░░░░░"},
	} {
		check.Equal(t, plain.Bar(10, test.used, test.kept, test.whole), test.want, test.used, test.kept, test.whole)
	}
	coloured := Screen{Colour: true}
	for used, code := range map[int64]string{10: "32", 79: "32", 81: "33", 100: "31"} {
		check.Contains(t, coloured.Bar(10, used, 0, 100), "\x1b["+code+"m█", used)
	}
}

// What is done is shown after a second, with how long it takes, below what is written meanwhile.
func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		live := NewLive(&out, func() Screen { return Screen{Terminal: true, Width: 30, Height: 10} })
		to := live.Above(&out)
		end := live.While(func() string { return "waiting for units that return much later" })
		wrote := func(after time.Duration, want, what string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			check.Equal(t, out.take(), want, what)
		}
		wrote(900*time.Millisecond, "", "at first")
		wrote(200*time.Millisecond, "1s  waiting for units that r…", "after a second")
		_, _ = io.WriteString(to, "a line\n")
		wrote(0, "\r\x1b[Ka line\n1s  waiting for units that r…", "a line is written above")
		wrote(time.Second, "\r\x1b[K2s  waiting for units that r…", "a second later")
		end()
		wrote(0, "\r\x1b[K", "at the end")
		end()
		_, _ = io.WriteString(to, "done\n")
		wrote(5*time.Second, "done\n", "afterwards")
	})
	none := NewLive(io.Discard, Pipe)
	none.While(func() string { panic("it is not shown") })()
	check.Equal(t, none.Above(io.Discard), io.Discard, "a writer that is not a terminal is used directly")
}

// A line of the log is in words, and nothing that others wrote moves the cursor.
func TestEvents(t *testing.T) {
	at := time.Date(2026, 11, 27, 20, 40, 1, 0, time.UTC)
	for _, test := range []struct {
		log  func(*slog.Logger)
		want string
	}{
		{func(l *slog.Logger) { l.Info("the store is within reach again") }, "20:40:01   the store is within reach again\n"},
		{func(l *slog.Logger) {
			l.With("job", "pull", "budget", "shop/main").Info("run ended", "region", "US", "run", "pull/1/US", "outcome", "succeeded", "pages", 4, "units", 7, "output", "data/US")
		}, "20:40:01   pull US  run ended: succeeded, 4 pages, 7 units, data/US\n"},
		{func(l *slog.Logger) {
			l.Warn("refused", "job", "pull", "units", 5, "limit", "day", "remaining", 0, "retry_at", "2026-11-28T08:00:00.000000Z")
		}, "20:40:01 ! pull  refused: 5 units, limit day, retry at Sat 08:00 (in 11h19m)\n"},
		{func(l *slog.Logger) {
			l.WithGroup("g").With("a", 1).Error("it \x1b[2Jfailed\nbadly", "error", "no\r\nway", slog.Group("h", "b", 2))
		}, "20:40:01 ✗ it ?[2Jfailed?badly: g.a 1, g.error no??way, g.h.b 2\n"},
		{func(l *slog.Logger) { l.Debug("too little to be said") }, ""},
		{func(l *slog.Logger) { l.Info(strings.Repeat("word ", 20)+"end", "budget", "a/b") },
			"20:40:01   a/b  " + strings.Repeat("word ", 12) + "word\n           " + strings.Repeat("word ", 7) + "end\n"},
	} {
		var out bytes.Buffer
		events := NewEvents(&out, func() Screen { return Screen{Terminal: true, Width: 80, Zone: time.UTC, Now: at} }, &slog.HandlerOptions{Level: slog.LevelInfo})
		test.log(slog.New(stopped{events, at}))
		check.Equal(t, out.String(), test.want, "line")
	}
}

// stopped is a handler whose clock stands.
type stopped struct {
	slog.Handler
	at time.Time
}

func (s stopped) Handle(ctx context.Context, r slog.Record) error {
	r.Time = s.at
	return s.Handler.Handle(ctx, r)
}

func (s stopped) WithAttrs(attrs []slog.Attr) slog.Handler {
	return stopped{s.Handler.WithAttrs(attrs), s.at}
}

func (s stopped) WithGroup(name string) slog.Handler { return stopped{s.Handler.WithGroup(name), s.at} }

// A watch shows each look, keeps what it has when a look fails, and draws anew when the terminal
// is resized.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 2 * time.Second
		g := newGlass(t, 60, 12)
		ctx, cancel := context.WithCancel(t.Context())
		resized := make(chan struct{})
		var failing atomic.Bool
		var said atomic.Value
		said.Store("")
		done := make(chan error)
		on := func() Screen {
			width, height := g.size()
			return Screen{Terminal: true, Width: width, Height: height, Zone: time.UTC, Now: time.Now()}
		}
		go func() {
			looks := 0
			done <- Watch(ctx, g, on, every, resized, func() string { return said.Load().(string) }, func(context.Context) (func(Screen) string, error) {
				if looks++; failing.Load() {
					return nil, errors.New("no store")
				}
				n := looks
				return func(on Screen) string { return fmt.Sprintf("look %d, %d wide\n", n, on.Width) }, nil
			})
		}()
		rows := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			check.Equal(t, g.shows(len(want)), strings.Join(want, "|"), what)
		}
		rows("at once", "every 2s; Ctrl-C ends", "look 1, 60 wide")
		time.Sleep(every)
		rows("the second look", "every 2s; Ctrl-C ends", "look 2, 60 wide")
		g.mu.Lock()
		g.width = 70
		g.mu.Unlock()
		resized <- struct{}{}
		rows("resized", "every 2s; Ctrl-C ends", "look 2, 70 wide")
		failing.Store(true)
		time.Sleep(every)
		rows("a failure", "✗ not read at 00:00:04: no store; what is below is older", "look 2, 70 wide")
		failing.Store(false)
		time.Sleep(every)
		rows("again", "every 2s; Ctrl-C ends", "look 4, 70 wide")
		said.Store("a warning \x1b[2J")
		time.Sleep(every)
		rows("a line of the log", "! a warning ?[2J", "look 5, 70 wide")
		cancel()
		check.NoError(t, <-done, "the end")
		g.mu.Lock()
		defer g.mu.Unlock()
		check.Equal(t, g.open, false, "the terminal is as it was")
	})
	err := Watch(t.Context(), io.Discard, Pipe, time.Hour, nil, func() string { return "" }, func(context.Context) (func(Screen) string, error) { return nil, io.EOF })
	check.Is(t, err, io.EOF, "the first look")
}

// buffer is what is written, by several.
type buffer struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, text...)
	return len(text), nil
}

// take is what was written since the last take.
func (b *buffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := string(b.text)
	b.text = nil
	return text
}
