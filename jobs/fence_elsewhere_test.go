package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

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
	if err != nil {
		w.t.Fatal(err)
	}
	w.options.Budgets = map[string]*budget.Budget{otherBudget: b}
	stopOther := w.daemon(false)
	w.options.Budgets = sound.Budgets
	return func() {
		stopZombie()
		stopOther()
	}
}

// A dead pass is shut out of the ledger that it spends also by a daemon in whose
// configuration that budget is not.
func TestAPassIsFencedOffFromABudgetThatIsNotHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newElsewhere(t)
		stop := w.begin()
		after(time.Hour)
		w.logged("level=INFO", "shut out of its budget, which is not configured here", "budget="+spentBudget, "job=trending")
		w.logged("run ended", "outcome=lost", "reason=fenced")
		equal(t, "history", w.history(), []string{"3h0m0s lost crashed"})
		if n := w.upstream.count(); n != 1 || w.used() != 1 {
			t.Errorf("%d pages were asked for, %d units used: want the one that was under way", n, w.used())
		}
		after(3*time.Hour + 30*time.Minute) // the other's tick of 06:00, whose pages count there
		stop()
		equal(t, "history", w.history(), []string{"3h0m0s lost crashed", "6h0m0s succeeded"})
		if w.used() != 1 {
			t.Errorf("%d units used of the budget that the job has not any more", w.used())
		}
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
		w.logged("level=ERROR", "not shut out of its budget", "budget="+spentBudget, "no permission")
		equal(t, "history", w.history(), []string{"3h0m0s lost crashed"})
		records, err := History(t.Context(), w.store, "trending", time.Time{}, time.Time{}, 1)
		if err != nil || !strings.Contains(records[0].Error, "it was not shut out of "+spentBudget) || !strings.Contains(records[0].Error, "no permission") {
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
			equal(t, "history", w.history(), nil)
			w.logged("level=WARN", "cannot be shut out of its budget yet", "budget="+spentBudget, "connection refused")
			want := "it was not shut out of " + spentBudget
			if back {
				w.refuse(nil)
				want = "was not heard of any more\""
			}
			after(20 * time.Minute)
			equal(t, "history", w.history(), []string{"3h0m0s lost crashed"})
			w.logged("pass lost", want)
			stop()
		})
	}
}
