package screen

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Events is a slog.Handler for people at a terminal: one line an event, in words. It opens with
// the local time and whose event it is, the job and region or the budget; then comes the
// message, with the fields that say what of. Fields that tell machines apart are left out.
type Events struct {
	to    io.Writer
	on    func() Screen
	level slog.Leveler
	mu    *sync.Mutex // guards to
	attrs []slog.Attr // resolved, groups joined by dots
	group string      // of what follows, with its dot
}

// NewEvents writes to a terminal.
func NewEvents(to io.Writer, on func() Screen, o *slog.HandlerOptions) *Events {
	return &Events{to: to, on: on, level: o.Level, mu: &sync.Mutex{}}
}

// Enabled implements slog.Handler.
func (e *Events) Enabled(_ context.Context, level slog.Level) bool { return level >= e.level.Level() }

// WithAttrs implements slog.Handler.
func (e *Events) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *e
	with.attrs = slices.Clip(e.attrs)
	for _, a := range attrs {
		with.attrs = flatten(with.attrs, e.group, a)
	}
	return &with
}

// WithGroup implements slog.Handler.
func (e *Events) WithGroup(name string) slog.Handler {
	with := *e
	if name != "" {
		with.group += name + "."
	}
	return &with
}

func flatten(list []slog.Attr, group string, a slog.Attr) []slog.Attr {
	a.Value = a.Value.Resolve()
	if a.Value.Kind() != slog.KindGroup {
		if a.Equal(slog.Attr{}) {
			return list
		}
		return append(list, slog.Attr{Key: group + a.Key, Value: a.Value})
	}
	if a.Key != "" {
		group += a.Key + "."
	}
	for _, one := range a.Value.Group() {
		list = flatten(list, group, one)
	}
	return list
}

// forMachines are fields that a line for people does not need: what it is about is said by its
// beginning, and quotactl runs shows the rest.
var forMachines = []string{"run", "tick", "id", "pid", "kind", "operation", "token"}

// inWords are messages that say too little without the names of their fields.
var inWords = map[string]string{"job": "follows its schedule"}

// Handle implements slog.Handler.
func (e *Events) Handle(_ context.Context, r slog.Record) error {
	attrs := slices.Clip(e.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = flatten(attrs, e.group, a)
		return true
	})
	on := e.on()
	said := map[string]string{}
	var fields []string
	for _, a := range attrs {
		text := Shown(a.Value.String())
		switch {
		case a.Key == "job", a.Key == "region", a.Key == "budget", a.Key == "outcome", a.Key == "reason":
			said[a.Key] = text
		case text == "", text == "0", slices.Contains(forMachines, a.Key):
		case a.Key == "units", a.Key == "pages", a.Key == "calls":
			fields = append(fields, text+" "+a.Key)
		case a.Key == "error", a.Key == "why", a.Key == "line", a.Key == "output":
			fields = append(fields, text)
		default:
			if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
				text = on.Time(at)
			}
			fields = append(fields, strings.ReplaceAll(a.Key, "_", " ")+" "+text)
		}
	}
	whose := strings.TrimSpace(said["job"] + " " + said["region"])
	if whose == "" {
		whose = said["budget"]
	}
	text := Shown(cmp.Or(inWords[r.Message], r.Message))
	if outcome := said["outcome"]; outcome != "" {
		text += ": " + on.Outcome(outcome)
		if said["reason"] != "" {
			text += " (" + said["reason"] + ")"
		}
	}
	if len(fields) > 0 {
		between := ": "
		if said["outcome"] != "" {
			between = ", "
		}
		text += on.Faint(between + strings.Join(fields, ", "))
	}
	if whose != "" {
		text = on.Strong(whose) + "  " + text
	}
	mark := "  "
	switch {
	case r.Level >= slog.LevelError:
		mark = on.Bad("✗ ")
	case r.Level >= slog.LevelWarn:
		mark = on.Warn("! ")
	}
	at := r.Time
	if at.IsZero() {
		at = time.Now()
	}
	zone := on.Zone
	if zone == nil {
		zone = time.UTC
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := io.WriteString(e.to, on.Wrap(on.Faint(at.In(zone).Format("15:04:05"))+" "+mark, text)); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return nil
}

// Outcome paints what became of something by what it means.
func (s Screen) Outcome(word string) string {
	switch first, _, _ := strings.Cut(word, " "); first {
	case "succeeded", "complete", "charged", "ok":
		return s.Good(word)
	case "failed", "timed_out", "lost", "missed", "error", "silent":
		return s.Bad(word)
	case "exhausted", "starved", "drained", "skipped", "deferred", "paused", "warning":
		return s.Warn(word)
	}
	return word
}

// Shown is a string from somebody else as a terminal may show it on one line.
func Shown(text string) string {
	return strings.Map(func(r rune) rune {
		if Obeyed(r) {
			return '?'
		}
		return r
	}, text)
}

// Obeyed reports whether a terminal or a browser obeys a character instead of showing it: a
// control character, or one that turns the direction of the text.
func Obeyed(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
