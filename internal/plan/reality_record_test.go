package plan_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// passes are what the records say of the day's ticks.
func (l *life) passes() (list []Pass) {
	since := l.day.start.Add(-l.day.down)
	for _, j := range l.list {
		records := must.Get(jobs.History(l.t.Context(), l.store, j.Name, since, time.Time{}, 20_000))(l.t)
		var reached time.Time
		for _, r := range slices.Backward(records) {
			for _, tick := range ticksOf(j, r) {
				list = append(list, l.pass(j, tick, r))
				if tick.After(reached) {
					reached = tick
				}
			}
		}
	}
	for i, view := range must.Get(jobs.Look(l.t.Context(), l.store, l.list))(l.t) {
		for _, w := range view.Waiting { // at the end
			list = append(list, Pass{Job: l.list[i].Name, Tick: w.Tick.UTC(), Outcome: Unfinished})
		}
	}
	sortPasses(list)
	return list
}

// ticksOf are the ticks that a record is of.
func ticksOf(j *jobs.Job, r jobs.Record) []time.Time {
	if r.Until == nil {
		return []time.Time{r.Tick.Time}
	}
	_, _, ticks := j.Schedule.Between(r.Tick.Add(-time.Microsecond), r.Until.Time, r.Ticks)
	return ticks
}

// pass is what a record says of a tick.
func (l *life) pass(j *jobs.Job, at time.Time, r jobs.Record) Pass {
	p := Pass{Job: j.Name, Tick: at.UTC(), Units: r.Units, Reason: r.Reason, Parts: r.Parts, Ended: r.Ended.Time}
	if cut, refused := l.cuts.first[tick{j.Name, at.Unix()}]; refused {
		p.At, p.Limit = cut.at, cut.limit
	}
	began := slices.ContainsFunc(r.Runs, func(run jobs.Run) bool { return !run.Started.IsZero() })
	switch r.Outcome {
	case jobs.Succeeded:
		p.Outcome = Complete
	case jobs.Exhausted:
		switch {
		case r.Reason == jobs.ReasonDeferred:
			p.Outcome = Deferred
		case began:
			p.Outcome = Cut
		default:
			p.Outcome = NotStarted
		}
	case jobs.Skipped:
		p.Outcome = Skipped
	case jobs.Missed:
		p.Outcome = Missed
	case jobs.Drained:
		p.Outcome = Unfinished
	case jobs.TimedOut: // it waited for units again and again
		p.Outcome = Other
	default:
		p.Outcome = Other
		l.t.Errorf("job %s, tick %s: %s, %s: %s %+v", j.Name, at, r.Outcome, r.Reason, r.Error, r.Runs)
	}
	if p.Outcome == Skipped && r.Reason == jobs.ReasonDrained {
		p.Outcome = Unfinished
	}
	return p
}

// calls is what the records say was charged.
func (l *life) calls() (sum int64) {
	for _, j := range l.list {
		for _, r := range must.Get(jobs.History(l.t.Context(), l.store, j.Name, l.day.start.Add(-l.day.down), time.Time{}, 20_000))(l.t) {
			for _, run := range r.Runs {
				sum += int64(run.Calls)
			}
		}
	}
	return sum
}

func jsonOf(r jobs.Record) ([]byte, error) { return json.Marshal(r) }

// refusals notes the first refusal of each pass that was not waited out: the daemon logs them.
type refusals struct {
	mu    sync.Mutex // guards first
	first map[tick]cutBy
}

// cutBy is a refusal.
type cutBy struct {
	at    time.Time
	limit string
}

func (r *refusals) log() *slog.Logger {
	if r.first == nil {
		r.first = map[tick]cutBy{}
	}
	return slog.New(listener{refusals: r})
}

// listener is a handler that reads the daemon's log.
type listener struct {
	*refusals
	with []slog.Attr
}

// Enabled implements slog.Handler.
func (l listener) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// WithAttrs implements slog.Handler.
func (l listener) WithAttrs(attrs []slog.Attr) slog.Handler {
	return listener{l.refusals, append(slices.Clone(l.with), attrs...)}
}

// WithGroup implements slog.Handler.
func (l listener) WithGroup(string) slog.Handler { return l }

// Handle implements slog.Handler.
func (l listener) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "refused" {
		return nil
	}
	var job, at, by string
	note := func(a slog.Attr) bool {
		switch a.Key {
		case "job":
			job = a.Value.String()
		case "tick":
			at = a.Value.String()
		case "run":
			parts := strings.Split(a.Value.String(), "/") // job/tick/region, and the tick with -2 in a second part
			at, _, _ = strings.Cut(parts[1], "-")
		case "limit":
			by = a.Value.String()
		case "locked":
			by = "lock"
		}
		return true
	}
	for _, a := range l.with {
		note(a)
	}
	r.Attrs(note)
	instant, err := time.Parse(jobs.TickFormat, at)
	if err != nil {
		if instant, err = time.Parse(time.RFC3339, at); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.first[tick{job, instant.Unix()}]; !known {
		l.first[tick{job, instant.Unix()}] = cutBy{r.Time, by}
	}
	return nil
}
