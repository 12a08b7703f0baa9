package jobs

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// Passes that are deferred at random, while daemons come, crash and are drained, jobs are
// paused, and somebody else spends: each tick has one record, no region of a tick is
// fetched twice, and what is due does not wait while a daemon and a slot are there.
func TestDeferralsAtRandom(t *testing.T) {
	t.Parallel()
	seed := effort.Seed(t)
	for i := range effort.Of[uint64](2, 5, 20) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { walkDeferrals(t, rand.New(rand.NewPCG(seed+i, 0))) })
		})
	}
}

// deferrals is a herd whose budget runs out now and then.
type deferrals struct {
	*herd
	rng  *rand.Rand
	most int            // runs at once
	once map[string]int // how often a region of a tick was asked for

	failures atomic.Int64
}

func walkDeferrals(t *testing.T, rng *rand.Rand) {
	w := &deferrals{rng: rng, once: map[string]int{}, most: 1 + rng.IntN(3)}
	h := &herd{}
	var names []string
	for i := range 5 {
		names = append(names, fmt.Sprintf("job%d", i))
	}
	upstream := http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		w.once[r.URL.Query().Get("regionCode")+" "+r.URL.Query().Get("tick")]++
		h.mu.Unlock()
		h.answer(out, r)
	})
	made := newHerd(t, setup{limit: 40, upstream: upstream, job: "schedule = \"@yearly\"", more: `
[upstream.youtube.share.some]
jobs = ["job3"]
units = 5`}, "schedule = \"*/30 * * * *\"\nregions = [\"US\", \"GB\", \"DE\"]\ngrace = \"1s\"", names...)
	h.world, w.herd = made.world, h
	answers := rand.New(rand.NewPCG(rng.Uint64(), 0))
	h.takes = func() time.Duration { return time.Duration(answers.Int64N(int64(time.Minute))) }
	for i, j := range h.list {
		j.BudgetParallel = w.most
		j.Parallel = rng.IntN(3)
		j.Overlap = []Overlap{Skip, Queue, Allow}[rng.IntN(3)]
		j.Stagger = time.Duration(rng.IntN(3)) * time.Minute
		if i > 0 {
			j.Schedule = parsed(t, []string{"*/30 * * * *", "15 * * * *", "0 */4 * * *"}[rng.IntN(3)], "UTC")
		}
	}
	h.begin()
	const steps = 100
	for range steps {
		after(time.Duration(rng.Int64N(int64(30 * time.Minute))))
		w.act()
	}
	if len(h.daemons) == 0 {
		h.begin()
	}
	for _, j := range h.list {
		must.Get(EndPause(t.Context(), h.store, j))(t)
	}
	after(26 * time.Hour)
	w.settled()
	h.stopAll()
	w.check(names)
}

// act does one of the things that happen.
func (w *deferrals) act() {
	j := w.list[1+w.rng.IntN(len(w.list)-1)]
	switch w.rng.IntN(9) {
	case 0, 1:
		if len(w.daemons) < 3 {
			w.begin()
		}
	case 2:
		if len(w.daemons) > 0 {
			w.crash(w.daemons[w.rng.IntN(len(w.daemons))])
		}
	case 3:
		if len(w.daemons) > 0 {
			i := w.rng.IntN(len(w.daemons))
			d := w.daemons[i]
			w.daemons = append(w.daemons[:i:i], w.daemons[i+1:]...)
			close(d.drain)
			check.NoError(w.t, <-d.done)
		}
	case 4:
		_, _, _, err := SetPause(w.t.Context(), w.store, j, "")
		check.NoError(w.t, err)
	case 5:
		for _, j := range w.list {
			must.Get(EndPause(w.t.Context(), w.store, j))(w.t)
		}
	case 6:
		_, _, err := TakeBack(w.t.Context(), w.store, j)
		check.NoError(w.t, err)
	case 7:
		must.Get(Trigger(w.t.Context(), w.store, j, []string{"GB"}, ""))(w.t)
	case 8:
		units := int64(1 + w.rng.IntN(20))
		_, _ = w.options.Budgets["youtube/key1"].Charge(w.t.Context(), budget.Call{Operation: "videos.list", Units: &units}) // or it does not fit
	}
	w.prompt()
}

// prompt fails if a deferred pass is due and waits although a daemon lives, and nothing is
// in its way, for longer than a second.
func (w *deferrals) prompt() {
	w.t.Helper()
	if len(w.daemons) == 0 {
		return
	}
	after(2 * sweepEvery) // a daemon that has just begun reads all documents, and a crashed one's slots are not counted
	before := w.waits()
	after(time.Second)
	for key, due := range w.waits() {
		if due && before[key] {
			w.failures.Add(1)
			w.t.Errorf("at %s: %s is due, and waits\n%s", time.Since(midnight), key, w.log.String()[max(0, len(w.log.String())-3000):])
		}
	}
}

// waits are the deferred passes: true for those that could go on now.
func (w *deferrals) waits() map[string]bool {
	w.t.Helper()
	list := map[string]bool{}
	views := must.Get(Look(w.t.Context(), w.store, w.list))(w.t)
	found := must.Get(w.store.Job(w.t.Context(), runSlots("youtube/key1")))(w.t)
	slots := must.Get(readDocument[slots](runSlots("youtube/key1"), found))(w.t)
	for i, view := range views {
		for _, d := range view.Deferred {
			key := fmt.Sprintf("%s %s/%d", w.list[i].Name, d.Tick.Sub(midnight), d.Part)
			free := len(view.Active) == 0 || w.list[i].Overlap == Allow
			list[key] = free && len(slots.Held) < w.most && !d.At.After(time.Now())
		}
	}
	return list
}

// settled fails if something waits although the units of a whole window have returned.
func (w *deferrals) settled() {
	w.t.Helper()
	for key, due := range w.waits() {
		if due {
			w.t.Errorf("at the end %s is due", key)
		}
	}
}

func (w *deferrals) check(names []string) {
	w.t.Helper()
	counts := map[string]int{}
	for i, name := range names {
		records := must.Get(History(w.t.Context(), w.store, name, time.Time{}, time.Time{}, maxHistory))(w.t)
		seen := map[time.Time]int{}
		for _, r := range records {
			counts[strings.TrimSpace(string(r.Outcome)+" "+r.Reason)]++
			if r.Parts > 1 {
				counts["in parts"]++
			}
			units := int64(0)
			for _, run := range r.Runs {
				units += run.Units
			}
			check.Equal(w.t, r.Units, units, "units of", name, r.Tick)
			if r.Kind == Triggered {
				continue
			}
			last := r.Tick.Time
			if r.Until != nil {
				last = r.Until.Time
			}
			for tick := r.Tick.Time; !tick.After(last); tick = w.list[i+1].Next(tick) {
				seen[tick]++
			}
		}
		for tick, n := range seen {
			check.Equal(w.t, n, 1, name, "the tick of", tick, "has … records")
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, n := range w.once {
		check.Equal(w.t, n, 1, key, "was fetched … times")
	}
	if w.together > w.most {
		w.t.Errorf("%d runs at once, want %d", w.together, w.most)
	}
	if counts["in parts"] == 0 {
		w.t.Errorf("no pass went on: %v", counts)
	}
	w.t.Logf("%d fetched, %d at once of %d: %v", len(w.once), w.together, w.most, counts)
}
