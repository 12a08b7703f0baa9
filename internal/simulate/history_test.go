package simulate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/jobs"
)

// history is what became of ticks, as it came to be recorded.
type history struct {
	mu   sync.Mutex // guards all below
	list []recorded
	lost map[string]bool // passes, or parts of some, that were recorded as lost, by their runs' beginning
}

// recorded is a record, and when it was made.
type recorded struct {
	job     string
	version int64     // of the job's document, by which its records follow each other
	wall    time.Time // by the clock of the daemon that made it
	jobs.Record
}

// noted takes over what a daemon has swapped.
func (h *history) noted(t *testing.T, swap driver.JobSwap, wall time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range swap.Records {
		note := recorded{job: swap.Job, version: swap.Version, wall: wall}
		check.NoError(t, json.Unmarshal(r.Text, &note.Record), "record", r.ID, "of job", swap.Job)
		h.list = append(h.list, note)
		if note.Outcome == jobs.Lost {
			if h.lost == nil {
				h.lost = map[string]bool{}
			}
			pass := swap.Job + "/" + note.Tick.UTC().Format(jobs.TickFormat)
			if note.Parts > 1 { // only its last part was under way
				pass += fmt.Sprint("-", note.Parts)
			}
			h.lost[pass] = true
		}
	}
}

// isLost reports whether the pass of a run was recorded as lost.
func (h *history) isLost(run string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost[run[:max(0, strings.LastIndexByte(run, '/'))]]
}

// of are a job's records in their order.
func (h *history) of(job string) []recorded {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []recorded
	for _, r := range h.list {
		if r.job == job {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b recorded) int { return int(a.version - b.version) })
	return list
}

// inOrder holds a job's passes to their order: each begins with the regions that were cut,
// unless one was put first and cut again, then with the first region that was not started,
// and goes on cyclically. It returns how many began with another than the first.
func inOrder(t *testing.T, j *jobs.Job, list []recorded) (turned int) {
	t.Helper()
	var first []string
	next := j.Regions[0]
	for _, r := range list {
		if len(r.Runs) == 0 { // no pass, or one that was lost before it was heard of
			continue
		}
		order := slices.Clone(first)
		for _, region := range j.Order(next) {
			if !slices.Contains(order, region) {
				order = append(order, region)
			}
		}
		if order[0] != j.Regions[0] {
			turned++
		}
		var cut, left []string
		rest := ""
		for place, run := range r.Runs {
			if run.Region != order[place] {
				t.Errorf("job %s: the pass of %s has %s in place %d, want %s", j.Name, r.Tick, run.Region, place+1, order[place])
				break
			}
			whole := run.Outcome == jobs.Succeeded || run.Outcome == jobs.Failed || run.Outcome == jobs.TimedOut
			wasFirst := slices.Contains(first, run.Region)
			switch begun := !run.Started.IsZero() || run.Outcome == jobs.Failed || run.Outcome == jobs.Lost; { // of a lost one the ledger may know alone
			case begun && !whole && (place > 0 || !wasFirst):
				cut = append(cut, run.Region)
			case !begun && rest == "":
				rest = run.Region
			}
			if run.Started.IsZero() && run.Outcome != jobs.Lost && wasFirst {
				left = append(left, run.Region)
			}
		}
		first, next = append(cut, left...), cmp.Or(rest, j.Regions[0])
	}
	return turned
}

// caughtUp holds a job's ticks that were missed to why: those of a job with catch_up
// are too old, or a newer one has come.
func caughtUp(t *testing.T, j *jobs.Job, list []recorded) {
	t.Helper()
	for _, r := range list {
		if r.Outcome != jobs.Missed || j.CatchUp == jobs.CatchUpNone {
			continue
		}
		last := r.Tick.Time
		if r.Until != nil {
			last = r.Until.Time
		}
		late := r.wall.Sub(last) > j.MaxLate && r.Reason == jobs.ReasonLate
		if newer := j.Next(last); !late && newer.After(r.wall) {
			t.Errorf("job %s: %s was recorded as missed (%s) at %s, though it was the newest: it is to be caught up", j.Name, last, r.Reason, r.wall)
		}
	}
}

// promised holds the history to what the month has in store for certain: a tick that
// comes while the store is away is caught up, and a daemon that goes on after its pass was
// recorded as lost is refused.
func (m *machine) promised(t *testing.T) {
	t.Helper()
	for _, tick := range m.month.missed {
		if !slices.ContainsFunc(m.history.of(m.month.missing), func(r recorded) bool {
			return r.Tick.Equal(tick) && r.Kind == jobs.CaughtUp && len(r.Runs) > 0
		}) {
			t.Errorf("job %s: the tick of %s, which came while the store was out of reach, was not caught up", m.month.missing, tick)
		}
	}
	if stopped, refused := m.stopped.Load(), m.refused.Load(); stopped != int64(len(m.month.stops)) || refused < stopped {
		t.Errorf("%d of %d daemons stood still, and %d charges of lost passes were refused", stopped, len(m.month.stops), refused)
	}
}
