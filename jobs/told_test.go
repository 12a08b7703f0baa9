package jobs

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// telling counts what daemons say of ticks and passes: "missed", and the other outcomes.
type telling struct {
	nobody
	mu     sync.Mutex // guards all below
	counts map[Outcome]int
	runs   map[string]int // by region and outcome
	pings  map[Outcome]int
}

func (c *telling) TicksMissed(_ *Job, ticks int)         { c.add(Missed, ticks) }
func (c *telling) PassEnded(_ *Job, outcome Outcome)     { c.add(outcome, 1) }
func (c *telling) RunEnded(_ *Job, r string, as Outcome) { count(c, &c.runs, r+" "+string(as), 1) }
func (c *telling) ping(_ *Job, pass Record)              { count(c, &c.pings, pass.Outcome, 1) }
func (c *telling) add(outcome Outcome, n int)            { count(c, &c.counts, outcome, n) }

func count[K comparable](c *telling, in *map[K]int, what K, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *in == nil {
		*in = map[K]int{}
	}
	(*in)[what] += n
}

// tallied counts the ticks of records by outcome.
func tallied(records []Record) map[Outcome]int {
	counts := map[Outcome]int{}
	for _, r := range records {
		counts[r.Outcome] += max(r.Ticks, 1)
	}
	return counts
}

// tellsEach holds what was counted, pinged and logged to the records: each once.
func (w *world) tellsEach(told *telling) (records []Record) {
	w.t.Helper()
	records = must.Get(History(w.t.Context(), w.store, w.list[0].Name, time.Time{}, time.Time{}, maxHistory))(w.t)
	if !maps.Equal(told.counts, tallied(records)) {
		w.t.Errorf("counted %v, recorded %v", told.counts, tallied(records))
	}
	lines, ended := map[string]int{}, 0
	for line := range strings.Lines(w.log.String()) {
		for _, text := range []string{"ticks missed", "pass not started", "pass lost", "pass ended"} {
			if strings.Contains(line, `msg="`+text+`"`) {
				lines[text]++
			}
		}
	}
	want := map[string]int{}
	for _, r := range records {
		switch {
		case r.Outcome == Missed:
			want["ticks missed"]++
		case r.Outcome == Lost:
			want["pass lost"]++
		case r.Started.IsZero():
			want["pass not started"]++
		default:
			want["pass ended"]++
		}
		if !r.Started.IsZero() {
			ended++
		}
	}
	if !maps.Equal(lines, want) {
		w.t.Errorf("logged %v, recorded %v", lines, want)
	}
	pinged := 0
	for outcome, n := range told.pings {
		if outcome != "" {
			pinged += n
		}
	}
	check.Equal(w.t, pinged, ended, "pings of passes that ended")
	return records
}

// While the store takes no writes, as on a full disk, a daemon decides about the same ticks
// again and again. It tells of them once, when they are recorded.
func TestDecisionsThatCannotBeStoredAreNotTold(t *testing.T) {
	for name, overlap := range map[string]string{"missed": "", "skipped": "\noverlap = \"skip\"\ncatch_up = \"last\"", "caught up": "\ncatch_up = \"all\"\ncatch_up_limit = 5"} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t, setup{limit: 1_000_000, job: "regions = [\"US\"]\nschedule = \"@every 7s\"" + overlap})
			var told telling
			var full atomic.Bool
			w.options.State = unchanging{w.store, full.Load}
			w.options.Observe, w.options.Ping = &told, told.ping
			stop := w.daemon(false)
			after(time.Minute)
			full.Store(true)
			after(200 * time.Second)
			full.Store(false)
			after(3 * time.Minute)
			stop()
			if records := w.tellsEach(&told); told.counts[Missed] == 0 {
				t.Errorf("nothing was missed: %v", tallied(records))
			}
		})
	}
}

// Records whose answers are lost are reported once, whoever makes them: ticks missed and
// skipped, passes lost, and passes that ended.
func TestRecordsWhoseAnswersAreLostAreToldOnce(t *testing.T) {
	for name, catchUp := range map[string]string{"missed": "none", "caught up": "last"} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t, setup{limit: 1_000_000, job: "regions = [\"US\"]\nschedule = \"*/5 * * * *\"\ncatch_up = \"" + catchUp + "\""})
			var told telling
			deaf := &deaf{State: w.store}
			w.options.State = deaf
			w.options.Observe, w.options.Ping = &told, told.ping
			_, _, _, err := SetPause(t.Context(), w.store, w.list[0], "a rest")
			must.Do(t, err)
			stop := w.daemon(false)
			after(31 * time.Minute)
			_ = must.Get(EndPause(t.Context(), w.store, w.list[0]))(t)
			after(20 * time.Minute)
			stop()
			w.options.State = w.store
			w.claimed(w.runner(), time.Now().Truncate(5*time.Minute).Add(5*time.Minute), "host/1/dead")
			w.options.State = deaf
			after(40 * time.Minute) // nobody is there
			stop = w.daemon(false)
			after(2 * time.Hour)
			stop()
			w.options.State = w.store
			w.tellsEach(&told)
			for _, outcome := range []Outcome{Missed, Skipped, Lost, Succeeded} {
				if told.counts[outcome] == 0 {
					t.Errorf("nothing was %s: %v", outcome, told.counts)
				}
			}
			if deaf.lost.Load() < 10 {
				t.Errorf("%d answers were lost", deaf.lost.Load())
			}
		})
	}
}

// A pass that is declared dead while its daemon still runs it is reported by who declares it
// dead, be that a manual pass.
func TestAPassThatWasDeclaredDeadIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\ntimeout = \"4h\"\nmax_late = \"24h\""})
		var told telling
		w.options.Observe, w.options.Ping = &told, told.ping
		w.options.Transport = direct{slow(30*time.Minute, w.sandbox)}
		var away atomic.Bool
		w.options.State = failing{w.store, away.Load}
		stop := w.daemon(false)
		after(3*time.Hour + time.Minute)
		away.Store(true)
		w.options.State = w.store
		w.options.Transport = direct{w.sandbox}
		after(10 * time.Minute)
		w.succeeds()
		away.Store(false)
		after(time.Hour)
		stop()
		w.tellsEach(&told)
		check.Equal(t, told.counts[Lost], 1, "passes lost")
	})
}
