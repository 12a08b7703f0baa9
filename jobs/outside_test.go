package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// newOutside is a world of one job that cron starts each hour, with more lines in its table.
func newOutside(t *testing.T, more string) *world {
	t.Helper()
	w := newWorld(t, setup{more: "[job.hourly]\nstarted_by = \"cron\"\nbudget = \"youtube/key1\"\nschedule = \"0 * * * *\"\ntimezone = \"UTC\"\n" + more})
	w.list = w.list[1:]
	return w
}

// outside runs the job for a region; spend is called in the run.
func (w *world) outside(region string, spend func(OutsideRun) OutsideEnd) Pass {
	w.t.Helper()
	pass, unrecorded := w.runner().Outside(w.t.Context(), w.list[0], region, func(_ context.Context, run OutsideRun) OutsideEnd { return spend(run) })
	check.NoError(w.t, unrecorded)
	return pass
}

func nothing(OutsideRun) OutsideEnd { return OutsideEnd{Seen: true} }

// pinged notes which passes are reported.
func (w *world) pinged() *[]string {
	var list []string
	w.options.Ping = func(_ *Job, record Record) { list = append(list, string(record.Outcome)) }
	return &list
}

// A run whose process is dead is lost once, and told once: to the next run on the same machine; on
// another, after an hour without a sign of life, or by what a daemon has seen.
func TestOutsideLost(t *testing.T) {
	host := must.Get(os.Hostname())(t)
	for name, c := range map[string]struct {
		holder string
		daemon bool
		wait   time.Duration
		lost   int
	}{
		"renewed just now": {host + "/999999999/A", false, 0, 0},
		"no such process":  {host + "/999999999/A", false, 3 * time.Minute, 1},
		"another machine":  {"elsewhere/1/A", false, 3 * time.Minute, 0},
		"long ago":         {"elsewhere/1/A", false, 2 * time.Hour, 1},
		"a daemon watches": {"elsewhere/1/A", true, 10 * time.Minute, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newOutside(t, "")
			r := w.runner()
			must.Do(t, r.docs.change(t.Context(), w.list[0], func(s *state, at clocks) (edit, error) {
				s.claim(claim{Tick: midnight.UnixMicro(), Kind: Scheduled, Budget: "youtube/key1", Outside: true, Regions: []string{""}}, at, claimant{holder: c.holder, hold: r.docs.hold()})
				return edit{}, nil
			}))
			pings := w.pinged()
			if c.daemon {
				w.follow(false, c.wait)
			} else {
				after(c.wait)
			}
			for range 3 {
				w.outside("", nothing)
			}
			lost := 0
			for _, line := range w.history() {
				lost += strings.Count(line, string(Lost))
			}
			check.Equal(t, lost, c.lost, "lost runs")
			pinged := len(slices.DeleteFunc(slices.Clone(*pings), func(o string) bool { return o != string(Lost) }))
			check.Equal(t, pinged, c.lost, "lost runs told")
			check.Equal(t, len(w.state().Active), 1-c.lost, "claims left")
			for _, record := range must.Get(History(t.Context(), w.store, "hourly", time.Time{}, time.Time{}, 10))(t) {
				if record.Outcome == Lost { // although it has spent nothing
					check.Equal(t, fmt.Sprint(outcomes(Pass{Record: record})), "[lost crashed]")
				}
			}
		})
	}
}

// A process with the number of another that has ended does not stand for it.
func TestIsGone(t *testing.T) {
	host := must.Get(os.Hostname())(t)
	now := time.Now()
	claimed := func(pid int, ago time.Duration) claim {
		return claim{Holder: fmt.Sprintf("%s/%d/A", host, pid), Since: now.Add(-ago).UnixMicro()}
	}
	check.Equal(t, isGone(claimed(os.Getpid(), 0), now), false, "this process, of just now")
	check.Equal(t, isGone(claimed(os.Getpid(), 1000*time.Hour), now), runtime.GOOS == "linux", "this process, before it began")
	check.Equal(t, isGone(claimed(999999999, 0), now), true, "no process")
	check.Equal(t, isGone(claimed(0, 0), now), false, "no number")
}

// A ping says that a pass is complete once all its regions have succeeded, and at once that it failed.
func TestOutsidePings(t *testing.T) {
	inBubble(t, "pings", func(t *testing.T) {
		w := newOutside(t, "regions = [\"US\", \"GB\"]\n")
		pings := w.pinged()
		tells := func(want ...string) {
			t.Helper()
			check.EqualSlices(t, slices.DeleteFunc(slices.Clone(*pings), func(o string) bool { return o == "" }), want, "pings of ends")
			*pings = nil
		}
		hour := func() { after(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + time.Minute))) }
		fails := func(OutsideRun) OutsideEnd { return OutsideEnd{Code: 3, Seen: true} }
		hour()
		w.outside("US", nothing)
		tells()
		w.outside("GB", nothing)
		tells("succeeded")
		hour()
		w.outside("GB", fails)
		tells("failed")
		w.outside("US", nothing)
		tells()
		hour()
		w.outside("", nothing)
		tells("succeeded")
	})
}

// A run keeps its claim for as long as it lives.
func TestOutsideLives(t *testing.T) {
	inBubble(t, "a long run", func(t *testing.T) {
		w := newOutside(t, "")
		other := func() { w.outside("", nothing) }
		pass := w.outside("", func(run OutsideRun) OutsideEnd {
			after(5 * time.Hour)
			other()
			call := budget.Call{Operation: "videos.list", Labels: budget.Labels{Job: "hourly", Run: run.Label}, Fence: run.Fence}
			must.Get(w.options.Budgets["youtube/key1"].Charge(t.Context(), call))(t)
			return OutsideEnd{Seen: true}
		})
		check.Equal(t, pass.Outcome, Succeeded, pass.Error)
		check.Equal(t, pass.Units, 1, "units")
	})
}

// A run that is asked to stop ends, and is recorded so.
func TestOutsideCancelled(t *testing.T) {
	inBubble(t, "cancelled", func(t *testing.T) {
		w := newOutside(t, "")
		pass, unrecorded := w.runner().Outside(t.Context(), w.list[0], "", func(ctx context.Context, _ OutsideRun) OutsideEnd {
			must.Get(CancelPasses(t.Context(), w.store, w.list[0], "enough"))(t)
			<-ctx.Done()
			return OutsideEnd{Code: 143, Stopped: true, Seen: true}
		})
		check.NoError(t, unrecorded)
		check.Equal(t, pass.Outcome == Succeeded || pass.Outcome == "", false, string(pass.Outcome))
		check.Contains(t, pass.Error+pass.Reason+fmt.Sprint(outcomes(pass)), "cancel")
	})
}

// A tick's runs by region are one pass where the last pass is shown, and complete together.
func TestOutsideRegions(t *testing.T) {
	inBubble(t, "regions", func(t *testing.T) {
		w := newOutside(t, "regions = [\"US\", \"GB\"]\n")
		look := func() (Overview, Record) {
			view := must.Get(Look(t.Context(), w.store, w.list))(t)[0]
			return view, must.Get(readRecord(view.Last))(t)
		}
		after(time.Until(time.Now().Truncate(time.Hour).Add(2*time.Hour + time.Minute)))
		w.outside("US", func(OutsideRun) OutsideEnd { return OutsideEnd{Code: 3, Seen: true} })
		w.outside("GB", nothing)
		view, last := look()
		check.Equal(t, fmt.Sprint(outcomes(Pass{Record: last})), "[US failed exit 3 GB succeeded]", "last pass")
		check.Equal(t, last.Outcome, Failed, "outcome")
		check.Equal(t, view.LastSuccess.IsZero(), true, "no complete pass")
		after(time.Hour)
		w.outside("GB", nothing)
		if view, _ = look(); !view.LastSuccess.IsZero() {
			t.Error("US has not succeeded yet")
		}
		w.outside("US", nothing)
		view, last = look()
		check.Equal(t, last.Outcome, Succeeded, "outcome")
		check.Equal(t, view.LastSuccess.IsZero(), false, "a complete pass")
		check.Equal(t, len(last.Runs), 2, "runs of the last pass")
	})
}

// How the command ended says what became of the run.
func TestOutsideEnds(t *testing.T) {
	refused := &budget.RefusedError{} // stands for one of the ledger's
	for name, c := range map[string]struct {
		end  OutsideEnd
		want string
	}{
		"well":            {OutsideEnd{Seen: true}, "succeeded"},
		"badly":           {OutsideEnd{Code: 2}, "failed exit 2"},
		"not started":     {OutsideEnd{Err: errors.New("no such file")}, "failed command"},
		"refused":         {OutsideEnd{Refused: refused, Seen: true}, "exhausted"},
		"refused, failed": {OutsideEnd{Code: 1, Refused: refused, Seen: true}, "exhausted"},
		"said so":         {OutsideEnd{Code: 75}, "exhausted exit 75"},
		"store away":      {OutsideEnd{Code: 1, StoreAway: true}, "failed store"},
		"store was away":  {OutsideEnd{StoreAway: true, Seen: true}, "succeeded"},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newOutside(t, "")
			pass := w.outside("", func(OutsideRun) OutsideEnd {
				end := c.end
				if end.Refused == refused {
					units := int64(10_000)
					must.Get(w.options.Budgets["youtube/key1"].Charge(t.Context(), budget.Call{Operation: "videos.list", Units: &units}))(t)
					_, err := w.options.Budgets["youtube/key1"].Charge(t.Context(), budget.Call{Operation: "videos.list", Units: &units})
					must.Equal(t, errors.As(err, &end.Refused), true, "it is refused")
				}
				return end
			})
			got := strings.TrimSpace(string(pass.Runs[0].Outcome) + " " + pass.Runs[0].Reason)
			if c.end.Refused != nil {
				got = string(pass.Runs[0].Outcome)
			}
			check.Equal(t, got, c.want, pass.Runs[0].Error)
		})
	}
}
