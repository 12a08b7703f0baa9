package jobs

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/quotactl/quotactl/internal/proc"
)

// A record keeps the last lines of each run's log. In a pass of many regions each run
// keeps less, so that the record stays small.
const (
	tailLines     = 20
	tailBytes     = 4 << 10 // of a run
	leastTail     = 256
	tailsTogether = 64 << 10 // of a pass
	maxTailLine   = 1 << 10
)

// The output of a run's command is logged up to maxLogged bytes; a short line counts
// as leastLogged.
const (
	maxLogged   = 4 << 20
	leastLogged = 64
)

// runLog is where a run logs to: the log, and its own last lines.
type runLog struct {
	log     *slog.Logger // to both
	plain   *slog.Logger // to the log alone
	metered *slog.Logger // to both, for code that names the budget itself
	tail    *tail

	most   int64      // how many bytes of a command's output are logged
	mu     sync.Mutex // guards all below
	logged int64      // bytes counted so far
	beyond int64      // bytes above that, which were not logged
}

// newRunLog makes the log of a run. Its last lines contain no secrets.
func (p *pass) newRunLog(run *Run) *runLog {
	names := []any{"region", run.Region, "run", p.job.partLabel(p.tick, p.held.claim.Part, run.Region)}
	plain, unbudgeted := p.log.With(names...), p.runner.log.With("job", p.job.Name).With(names...)
	most := tailBytes
	if n := len(p.runs); n > 0 {
		most = min(tailBytes, max(leastTail, tailsTogether/n))
	}
	t := &tail{most: most, hide: sync.OnceValue(func() func(string) string { return p.runner.secrets.hider(p.job, nil) })}
	text := slog.NewTextHandler(t, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: inUTC})
	return &runLog{
		log: slog.New(both{plain.Handler(), text}), metered: slog.New(both{unbudgeted.Handler(), text}),
		plain: plain, tail: t, most: p.runner.maxLogged,
	}
}

// hide has other secrets removed from the lines that follow.
func (l *runLog) hide(made func() func(string) string) { l.tail.hide = sync.OnceValue(made) }

// inUTC writes times in UTC.
func inUTC(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindTime {
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	}
	return a
}

// output logs a line that a command printed; kept is its first part.
func (l *runLog) output(stream, kept string, length int) {
	l.mu.Lock()
	logs := l.logged < l.most
	if logs {
		l.logged += int64(max(min(length, proc.MaxLine), leastLogged))
	} else {
		l.beyond += int64(length)
	}
	l.mu.Unlock()
	text := sync.OnceValue(func() string { return proc.LineText(kept, length, l.tail.hide()) })
	if logs {
		l.plain.Info("output", "stream", stream, "line", text())
	}
	l.tail.add(length, func() string { return stream + ": " + text() }) // lazy: of output that is not logged, only the last lines are used
}

// end logs how much was not logged.
func (l *runLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.beyond > 0 {
		l.plain.Warn("the command printed more than is logged for one run", "logged", l.most, "not_logged", l.beyond)
	}
}

// tail is the last lines of a run.
type tail struct {
	most int
	hide func() func(string) string

	mu   sync.Mutex      // guards kept
	kept []func() string // the oldest first
}

// Write adds a line of the log, as a handler writes it.
func (t *tail) Write(line []byte) (int, error) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	text := string(line)
	t.add(len(text), func() string { return t.hide()(text) })
	return len(line), nil
}

// add adds a line without secrets; length is its length in bytes before it was shortened.
func (t *tail) add(length int, line func() string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, sync.OnceValue(func() string { return cutLine(line(), min(maxTailLine, t.most), length) }))
	t.kept = t.kept[max(0, len(t.kept)-tailLines):]
}

// lines returns the last lines that fit.
func (t *tail) lines() []string {
	t.mu.Lock()
	kept := slices.Clone(t.kept)
	t.mu.Unlock()
	var list []string
	size := 0
	for _, line := range slices.Backward(kept) {
		text := line()
		if size += len(text); size > t.most {
			break
		}
		list = append(list, text)
	}
	slices.Reverse(list)
	return list
}

// cutLine shortens a line to at most so many bytes and marks a shortened one with its
// whole length.
func cutLine(text string, most, length int) string {
	if len(text) <= most {
		return text
	}
	mark := proc.CutMark(length)
	end := max(0, most-len(mark))
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// both is a handler that passes each record to two handlers.
type both struct{ log, tail slog.Handler }

// Enabled implements slog.Handler.
func (b both) Enabled(ctx context.Context, level slog.Level) bool {
	return b.log.Enabled(ctx, level) || b.tail.Enabled(ctx, level)
}

// Handle implements slog.Handler. It returns the log's error; the tail never fails.
func (b both) Handle(ctx context.Context, record slog.Record) error {
	if b.tail.Enabled(ctx, record.Level) {
		_ = b.tail.Handle(ctx, record.Clone()) // writes to memory
	}
	if b.log.Enabled(ctx, record.Level) {
		return b.log.Handle(ctx, record)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (b both) WithAttrs(attrs []slog.Attr) slog.Handler {
	return both{b.log.WithAttrs(attrs), b.tail.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (b both) WithGroup(name string) slog.Handler {
	return both{b.log.WithGroup(name), b.tail.WithGroup(name)}
}
