package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A pass that is declared dead while it fetches asks for no further page: its
// charges carry its number. What it has stays; another pass may go on.
func TestAFencedPassAsksForNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{job: `regions = ["US", "GB"]`, upstream: upstream})
		fenced := false
		upstream.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if n := upstream.count(); n == 2 && !fenced {
				fenced = true
				check.NoError(t, w.options.Budgets["youtube/key1"].Fence(t.Context(), "trending", w.state().Active[0].Fence))
			}
			w.sandbox.ServeHTTP(rw, r)
		})
		p := w.once()
		check.EqualSlices(t, outcomes(p), []string{"US lost fenced", "GB lost fenced"}, "runs")
		if first := p.Runs[0]; first.Pages != 2 || first.Units != 2 || !strings.HasSuffix(first.Output, partialSuffix) || !strings.Contains(first.Error, "was declared dead") {
			t.Errorf("run %+v, want two pages kept", first)
		}
		if second := p.Runs[1]; second.Calls != 0 || second.Output != "" {
			t.Errorf("run %+v, want nothing asked for", second)
		}
		check.Equal(t, upstream.count(), 2)
		check.Equal(t, w.used(), 2)
		if p = w.once(); p.Outcome != Succeeded {
			t.Errorf("the next pass: %+v", p)
		}
	})
}

const (
	spentBudget = "youtube/key1" // of the pass
	otherBudget = "youtube/key2" // of its job, where the pass is found dead
)

// unlocking is a store that puts up no fence while it says so.
type unlocking struct {
	driver.Store
	err func() error
}

func (u unlocking) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	r, ok := change.(driver.Lock)
	if err := u.err(); ok && err != nil && r.Budget == spentBudget {
		return nil, fmt.Errorf("lock %s: %w", r.Budget, err)
	}
	return u.Store.Change(ctx, change)
}

// elsewhere is a pass that goes on while nobody hears of it, and a daemon with another
// configuration: the job spends another budget there, and the pass's is unknown.
type elsewhere struct {
	*world
	upstream *recorded
	deaf     atomic.Bool           // the pass's daemon, to what daemons agree on
	refusal  atomic.Pointer[error] // of fences in the budget that the pass spends
}

func (w *elsewhere) refuse(err error) { w.refusal.Store(&err) }

func newElsewhere(t *testing.T) *elsewhere {
	w := &elsewhere{upstream: &recorded{}}
	w.refuse(nil)
	w.world = newWorld(t, setup{
		upstream: w.upstream, job: "regions = [\"US\"]\nschedule = \"0 */3 * * *\"\ntimeout = \"12h\"",
		more: "[upstream.youtube.credential.key2]\nsecret_env = \"YOUTUBE_API_KEY\"",
	})
	w.upstream.Handler = slow(20*time.Minute, w.sandbox) // 4 pages
	return w
}

// begin begins the pass at 03:00, and has nobody hear of it from 03:01 on; the other
// daemon is there from then until stop.
func (w *elsewhere) begin() (stop func()) {
	sound := w.options
	w.options.State = failing{w.store, w.deaf.Load}
	w.options.Budgets = map[string]*budget.Budget{spentBudget: sound.Budgets[spentBudget]}
	stopZombie := w.daemon(false)
	after(3*time.Hour + time.Minute)
	w.deaf.Store(true)
	moved := *w.list[0]
	moved.Budget = otherBudget
	w.list, w.options = []*Job{&moved}, sound
	b, err := budget.New(unlocking{w.store, func() error { return *w.refusal.Load() }}, sound.Budgets[otherBudget].Spec())
	must.Do(w.t, err)
	w.options.Budgets = map[string]*budget.Budget{otherBudget: b}
	stopOther := w.daemon(false)
	w.options.Budgets = sound.Budgets
	return func() {
		stopZombie()
		stopOther()
	}
}

// A dead pass is fenced off from the ledger that it spends also by a daemon in whose
// configuration that budget is not.
func TestAPassIsFencedOffFromABudgetThatIsNotHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newElsewhere(t)
		stop := w.begin()
		after(time.Hour)
		w.logged("level=INFO", "fenced off from its budget, which is not configured here", "budget="+spentBudget, "job=trending")
		w.logged("run ended", "outcome=lost", "reason=fenced")
		check.EqualSlices(t, w.history(), []string{"3h0m0s lost crashed"}, "history")
		if n := w.upstream.count(); n != 1 || w.used() != 1 {
			t.Errorf("%d pages were asked for, %d units used: want the one that was under way", n, w.used())
		}
		after(3*time.Hour + 30*time.Minute) // the other's tick of 06:00, whose pages count there
		stop()
		check.EqualSlices(t, w.history(), []string{"3h0m0s lost crashed", "6h0m0s succeeded"}, "history")
		check.Equal(t, w.used(), 1, "units used of the budget that the job has not any more")
	})
}

// Where that can never be done, the job goes on, and it is recorded that the pass was
// not shut out.
func TestAPassThatCannotBeFencedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newElsewhere(t)
		w.refuse(fmt.Errorf("%w: no permission", budget.ErrStoreConfig))
		stop := w.begin()
		after(10 * time.Minute)
		w.logged("level=ERROR", "could not be fenced off from its budget", "budget="+spentBudget, "no permission")
		check.EqualSlices(t, w.history(), []string{"3h0m0s lost crashed"}, "history")
		records, err := History(t.Context(), w.store, "trending", time.Time{}, time.Time{}, 1)
		if err != nil || !strings.Contains(records[0].Error, "it was not fenced off from "+spentBudget) || !strings.Contains(records[0].Error, "no permission") {
			t.Errorf("%+v, %v", records, err)
		}
		stop()
	})
}

// Where it may be done later, the pass holds its job up, for an hour at most.
func TestAPassIsFencedOffLater(t *testing.T) {
	for _, back := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newElsewhere(t)
			w.upstream.Handler = slow(10*time.Hour, w.sandbox)
			w.refuse(errors.Join(budget.ErrUnavailable, errors.New("connection refused")))
			stop := w.begin()
			after(50 * time.Minute)
			check.EqualSlices(t, w.history(), nil, "history")
			w.logged("level=WARN", "cannot be fenced off from its budget yet", "budget="+spentBudget, "connection refused")
			want := "it was not fenced off from " + spentBudget
			if back {
				w.refuse(nil)
				want = "stopped renewing its claim\""
			}
			after(20 * time.Minute)
			check.EqualSlices(t, w.history(), []string{"3h0m0s lost crashed"}, "history")
			w.logged("pass lost", want)
			stop()
		})
	}
}

// The record of a pass whose daemon crashed has the units and the regions that the
// ledger knows of, also where there was no heartbeat before, or more was spent after
// the last; and the next pass begins with the first region that had not begun.
func TestALostPassTellsWhatItSpent(t *testing.T) {
	for name, test := range map[string]struct {
		crash time.Duration // after the tick
		runs  []string
		units []int64
		next  string
	}{
		"before the first heartbeat": {12 * time.Second, []string{"US lost crashed", "GB skipped crashed", "DE skipped crashed"}, []int64{3, 0, 0}, "GB"},
		"after the last heartbeat":   {38 * time.Second, []string{"US succeeded", "GB lost crashed", "DE skipped crashed"}, []int64{4, 4, 0}, "DE"},
		"before it had begun":        {0, []string{"US skipped crashed", "GB skipped crashed", "DE skipped crashed"}, []int64{0, 0, 0}, "US"},
	} {
		inBubble(t, name, func(t *testing.T) {
			upstream := &recorded{}
			w := newWorld(t, setup{job: "regions = [\"US\", \"GB\", \"DE\"]\nparallel = 1\nschedule = \"0 */6 * * *\"", upstream: upstream})
			upstream.Handler = slow(5*time.Second, w.sandbox)
			var deaf atomic.Bool
			sound := w.options.State
			w.options.State = failing{sound, deaf.Load}
			ctx, crash := context.WithCancel(t.Context())
			crashed := make(chan error, 1)
			r := w.runner()
			free := func() {}
			if test.crash == 0 {
				w.list[0].BudgetParallel = 1 // held by another
				if taken, err := r.docs.takeSlot(ctx, runSlots("youtube/key1"), "busy", 1); err != nil || !taken {
					t.Fatal(taken, err)
				}
				free = r.docs.keepSlot(ctx, w.options.Log, runSlots("youtube/key1"), "busy")
			}
			go func() { crashed <- r.Run(ctx, nil, false) }()
			after(6*time.Hour + max(test.crash, time.Second))
			deaf.Store(true)
			crash()
			if err := <-crashed; err == nil {
				t.Error("a daemon that was cut returned nil")
			}
			free()
			w.options.State, w.list[0].BudgetParallel = sound, 0
			stop := w.daemon(false)
			after(5 * time.Minute)
			records := must.Get(History(t.Context(), sound, "trending", time.Time{}, time.Time{}, 9))(t)
			must.Equal(t, len(records), 1)
			p := Pass{"trending", records[0]}
			check.EqualSlices(t, outcomes(p), test.runs, "runs")
			var units []int64
			sum := int64(0)
			for _, run := range p.Runs {
				units, sum = append(units, run.Units), sum+run.Units
			}
			check.EqualSlices(t, units, test.units, "units")
			if p.Outcome != Lost || p.Reason != ReasonCrashed || p.Units != sum || p.Units != w.used() || w.state().NextRegion != test.next {
				t.Errorf("%+v, %d units used; the next pass begins with %q, want %q", p, w.used(), w.state().NextRegion, test.next)
			}
			stop()
		})
	}
}

// silenced is a store whose ledger does not answer.
type silenced struct{ driver.Store }

func (silenced) Spent(context.Context, driver.SpentQuery) (driver.Spent, error) {
	return driver.Spent{}, errFails
}

// Where the ledger does not say what a pass spent, its record has what the heartbeats
// told, and that it is not known is logged.
func TestALostPassOfASilentLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: "regions = [\"US\", \"GB\"]"})
		w.spendOn(silenced{w.store})
		r := w.runner()
		w.claimed(r, midnight, "host/1/x")
		w.follow(false, 5*time.Minute)
		records, err := History(t.Context(), w.store, "trending", time.Time{}, time.Time{}, 9)
		if err != nil || len(records) != 1 || records[0].Outcome != Lost || len(records[0].Runs) != 0 || strings.Contains(records[0].Error, "not fenced off") {
			t.Fatalf("%+v, %v", records, err)
		}
		w.logged("level=WARN", "the units that a lost pass spent", "job=trending")
	})
}
