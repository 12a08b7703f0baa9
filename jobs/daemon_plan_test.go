package jobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// plannedDay is the limit of a herd whose share feeds lapses by plan.
func plannedDay(most, guarantee int64, jobs string) string {
	return fmt.Sprintf(`
[upstream.youtube.limit.day]
limit = %d
calendar = "day"
timezone = "UTC"
[upstream.youtube.share.feeds]
jobs = [%s]
units = %d
lapse = "plan"
limits = ["day"]
`, most, jobs, guarantee)
}

// take has somebody else charge one unit after another, until one is refused; it returns how
// many were granted.
func (h *herd) take(job string) (n int) {
	h.t.Helper()
	for {
		_, err := h.options.Budgets["youtube/key1"].Charge(h.t.Context(), budget.Call{Operation: "videos.list", Labels: budget.Labels{Job: job}})
		if errors.Is(err, budget.ErrExhausted) {
			return n
		}
		must.Do(h.t, err)
		n++
	}
}

// Others may take what a share's jobs cannot need until the reset any more, and a request
// counts before its pass begins.
func TestPlannedGuarantee(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{job: "schedule = \"@yearly\"", more: plannedDay(100, 60, `"job0"`)},
			"schedule = \"0 */6 * * *\"\nregions = [\"US\", \"GB\"]\nneeds = { \"videos.list\" = 1 }", "job0")
		must.Equal(t, h.take("backfill"), 40, "granted without a daemon")
		h.begin()
		after(90 * time.Second)
		// The passes of 06:00, 12:00 and 18:00 take 2 units each.
		must.Equal(t, h.take("backfill"), 100-40-6, "granted beside a daemon")
		after(6 * time.Hour)
		must.Equal(t, h.take("backfill"), 0, "granted when the next pass has taken its units")
		h.crash(h.daemons[0])
		after(6*time.Minute + time.Second)
		check.Equal(t, h.used(), 100-4, "used")
		d := h.begin()
		after(time.Until(midnight.Add(24*time.Hour - 30*time.Second)))
		must.Equal(t, h.inForce(), 6, "in force before the reset")
		h.crash(d)
		after(time.Minute)
		must.Equal(t, h.take("backfill"), 40, "granted after the reset, without a daemon")
	})
}

// A tick is counted for as long as a daemon that begins takes it: as long as it is not overdue.
func TestPlannedTickOfAMinuteAgo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{job: "schedule = \"@yearly\"", more: plannedDay(100, 60, `"job0"`)},
			"schedule = \"0 */6 * * *\"\nregions = [\"US\"]\nneeds = { \"videos.list\" = 1 }", "job0")
		for late, want := range map[time.Duration]int64{onTime: 3, onTime + time.Microsecond: 2} {
			now := midnight.Add(6*time.Hour + late)
			ahead := h.list[1].Ahead(Needs{}, midnight.UnixMicro(), now, midnight.Add(24*time.Hour))
			check.Equal(t, ahead.Passes, want, fmt.Sprint("passes ahead, of which one has been due for ", late))
		}
	})
}

// A request counts before its pass begins, also if it comes between two records.
func TestPlannedRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{job: "schedule = \"@yearly\"", more: plannedDay(100, 60, `"job0"`)},
			"schedule = \"@yearly\"\nregions = [\"US\", \"GB\", \"DE\"]\nparallel = 1\nneeds = { \"videos.list\" = 1 }", "job0")
		h.takes = func() time.Duration { return 10 * time.Second }
		h.options.Poll = DefaultPoll
		h.begin()
		after(91 * time.Second)
		must.Equal(t, h.inForce(), 0, "in force while nothing is needed")
		must.Get(Trigger(t.Context(), h.store, h.list[1], nil, "now"))(t)
		after(5 * time.Second)
		must.Equal(t, len(h.begun()), 1, "runs that began")
		must.Equal(t, h.inForce(), 3, "in force in the pass")
		h.take("backfill")
		after(40 * time.Second)
		must.Equal(t, h.used(), 100, "used")
		check.EqualSlices(t, h.recordsOf("job0"), []string{"1m32s succeeded"}, "records")
		h.crash(h.daemons[0])
	})
}

// A run of one job alone writes nothing of what the share's jobs need: without a daemon its
// guarantee stays whole, and beside one that daemon's records count.
func TestPlannedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{job: "schedule = \"@yearly\"", more: plannedDay(100, 60, `"feeds.*"`)},
			"schedule = \"0 */6 * * *\"\nregions = [\"US\"]\nneeds = { \"videos.list\" = 1 }", `"feeds.us"`, `"feeds.eu"`)
		once := func() {
			t.Helper()
			passes := must.Get(New(h.list[1:2], h.options))(t).Once(t.Context(), nil)
			must.Equal(t, passes[0].Outcome, Succeeded, "the outcome")
		}
		once()
		must.Equal(t, h.inForce(), 60, "in force after a run of one job, without a daemon")
		must.Equal(t, h.take("backfill"), 40, "granted")
		d := h.begin()
		after(90 * time.Second) // between two records
		must.Equal(t, h.inForce(), 7, "in force beside a daemon")
		once()
		must.Equal(t, h.inForce(), 7, "in force after a run of one job beside a daemon")
		after(2 * time.Minute)
		must.Equal(t, h.inForce(), 8, "in force when the daemon has counted it")
		h.crash(d)
	})
}

// askedState counts what is read of it, and takes a second for the documents.
type askedState struct {
	State
	documents, histories atomic.Int64
}

func (s *askedState) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	s.documents.Add(1)
	time.Sleep(time.Second)
	return s.State.Jobs(ctx, names)
}

func (s *askedState) JobHistory(ctx context.Context, q driver.JobHistoryQuery) ([]driver.JobRecord, error) {
	s.histories.Add(1)
	return s.State.JobHistory(ctx, q)
}

// Passes that end together have two records written, the one under way and one that counts them
// all; none reads again what its jobs have learned.
func TestPlannedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHerd(t, setup{job: "schedule = \"@yearly\"", more: plannedDay(100, 60, `"job0", "job1"`)},
			"schedule = \"0 */6 * * *\"\nregions = [\"US\"]", "job0", "job1")
		asked := &askedState{State: h.store}
		options := h.options
		options.State = asked
		r := must.Get(New(h.list, options))(t)
		var asking sync.WaitGroup
		planned := func() {
			asking.Go(func() { r.planBudget(t.Context(), "youtube/key1") })
		}
		gone, leave := context.WithCancel(t.Context())
		asking.Go(func() { r.planBudget(gone, "youtube/key1") })
		after(500 * time.Millisecond)
		for range 200 {
			planned()
		}
		asking.Wait()
		check.Equal(t, time.Since(midnight), 2*time.Second, "written after")
		check.Equal(t, asked.documents.Load(), 2, "times that documents were read")
		check.Equal(t, asked.histories.Load(), 2, "histories read, of two jobs")
		must.Equal(t, r.planner.counts("youtube/key1", r.list()), true, "counted")

		passes := must.Get(New(h.list[1:2], h.options))(t).Once(t.Context(), nil)
		must.Equal(t, passes[0].Outcome, Succeeded, "the outcome")
		planned()
		asking.Wait()
		check.Equal(t, asked.histories.Load(), 3, "histories read when one of the jobs has a new record")

		// The daemon that writes is cut off: another of those it served writes instead.
		asked.documents.Store(0)
		asking.Go(func() { r.planBudget(gone, "youtube/key1") })
		synctest.Wait()
		leave()
		planned()
		asking.Wait()
		check.Equal(t, asked.documents.Load() >= 2, true, "documents were read again")
		must.Equal(t, r.planner.counts("youtube/key1", r.list()), true, "counted")
	})
}

// inForce is what is in force of the guarantee of the day.
func (h *herd) inForce() int64 {
	h.t.Helper()
	status := must.Get(h.options.Budgets["youtube/key1"].Status(h.t.Context()))(h.t)
	for _, l := range status.Limits {
		if l.Name == "day" {
			return l.Shares[0].InForce
		}
	}
	h.t.Fatal("there is no limit day")
	return 0
}

// A daemon that lacks one of a share's jobs writes that the guarantee is whole; so do daemons
// that count different jobs for one pattern.
func TestPlannedByOthers(t *testing.T) {
	t.Parallel()
	for _, jobs := range []string{`"feeds.us", "feeds.eu"`, `"feeds.*"`} {
		inBubble(t, jobs, func(t *testing.T) {
			h := newHerd(t, setup{job: "schedule = \"@yearly\"", more: plannedDay(100, 60, jobs)},
				"schedule = \"0 */6 * * *\"\nregions = [\"US\"]\nneeds = { \"videos.list\" = 1 }", `"feeds.us"`, `"feeds.eu"`)
			all := h.list
			first := h.begin()
			after(2 * time.Minute)
			must.Equal(t, h.inForce(), 6, "in force beside a daemon that knows both")
			h.list = all[:2]
			h.begin()
			after(2 * time.Minute)
			must.Equal(t, h.inForce(), 60, "in force beside one that knows one of them, too")
			h.crash(h.daemons[1])
			after(6 * time.Minute)
			must.Equal(t, h.inForce(), 6, "in force when that has died")
			h.crash(first)
			after(5 * time.Minute)
			must.Equal(t, h.inForce(), 60, "in force when both have died")
			d := h.begin()
			after(2 * time.Minute)
			if jobs != `"feeds.*"` {
				must.Equal(t, h.inForce(), 60, "in force beside one that lacks a job")
			}
			h.crash(d)
		})
	}
}

// Random daemons that die, know other jobs, and return. Share feeds guarantees all that its
// jobs take: none of their runs is ever refused. While daemons that know the jobs live, nothing
// that somebody else wanted is left at a reset.
func TestPlannedGuaranteesAtRandom(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	seed := effort.Seed(t)
	for i := range effort.Of[uint64](1, 1, 20) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { walkPlanned(t, rand.New(rand.NewPCG(seed+i, 0))) })
		})
	}
}

func walkPlanned(t *testing.T, rng *rand.Rand) {
	names := []string{"job0", "job1", "job2"}
	every := []string{"*/30 * * * *", "7 * * * *", "15 */4 * * *"}[rng.IntN(3)]
	regions := []string{`"US"`, `"US", "GB"`, `"US", "GB", "DE"`}[rng.IntN(3)]
	share := []string{`"job0", "job1", "job2"`, `"job0", "job1"`}[rng.IntN(2)]
	lines := fmt.Sprintf("schedule = %q\nregions = [%s]\ngrace = \"1s\"\nneeds = { \"videos.list\" = 1 }", every, regions)
	h := newHerd(t, setup{job: "schedule = \"@yearly\"", more: plannedDay(600, 450, share)}, lines, names...)
	taken := rand.New(rand.NewPCG(rng.Uint64(), 0)) // only answers draw from it, one at a time
	h.takes = func() time.Duration { return time.Duration(taken.IntN(3000)) * time.Millisecond }
	all := h.list
	sound := 0 // for how many minutes a daemon that knows all jobs, and none that does not, has lived
	partial := 0
	lives := false
	left := 0
	for time.Since(midnight) < time.Duration(effort.Of(1, 1, 2))*24*time.Hour+time.Hour {
		next := time.Now().Truncate(time.Minute).Add(time.Minute)
		if next.Equal(next.Truncate(24*time.Hour)) && sound > 6 {
			after(time.Until(next.Add(-10 * time.Second)))
			h.take("backfill")
			must.Equal(t, h.take("backfill"), 0, "granted")
			status := must.Get(h.options.Budgets["youtube/key1"].Status(t.Context()))(t)
			for _, l := range status.Limits {
				if l.Name == "day" && l.Remaining > 0 {
					t.Fatalf("%s: %d left before the reset, of %+v", next, l.Remaining, l.Shares)
				}
			}
			left++
		}
		after(time.Until(next))
		if rng.IntN(2) == 0 {
			h.take("backfill")
		}
		sound++
		if !lives {
			sound = 0
		}
		if partial > 0 {
			partial-- // its records end
			sound = 0
		}
		switch n := rng.IntN(400); {
		case n < 2 && lives:
			h.crash(h.daemons[0])
			lives = false
		case (n < 20 || time.Since(midnight) < 2*time.Minute) && !lives:
			h.begin()
			lives = true
		case n < 7: // one that knows fewer jobs, for a while
			h.list = all[:len(all)-1-rng.IntN(2)]
			d := h.begin()
			h.list = all
			after(time.Minute)
			close(d.drain)
			must.Do(t, <-d.done)
			h.daemons = h.daemons[:len(h.daemons)-1]
			partial = 6
		}
	}
	if lives {
		h.crash(h.daemons[0])
	}
	for line := range strings.Lines(h.log.String()) {
		if strings.Contains(line, "outcome=exhausted") && !strings.Contains(line, "job=trending") && strings.Contains(share, strings.TrimPrefix(strings.Fields(line[strings.Index(line, "job="):])[0], "job=")) {
			t.Fatalf("a run of the share was refused: %s", line)
		}
	}
	t.Logf("%s, regions %s: nothing was left at %d resets", every, regions, left)
}
