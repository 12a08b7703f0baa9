package jobs

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
)

// A pass whose tick lies in the store's future does not begin, and says so.
func TestAClockAheadOfTheStoresFailsThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		var clock skewed
		clock.by.Store(int64(5 * time.Minute))
		w.options.Now = clock.now
		for _, p := range []Pass{w.once()} {
			if p.Outcome != Failed || p.Reason != ReasonClock || len(p.Runs) != 0 || !strings.Contains(p.Error, "set the one that is wrong") {
				t.Errorf("pass %+v", p)
			}
		}
		w.logged("level=ERROR", "pass not started", "tick=2000-01-01T00:05:00Z", "outcome=failed", "reason=clock")
		if state := w.state(); state.Until != 0 || state.LastManual != 0 || len(state.Active) > 0 {
			t.Errorf("state %+v", state)
		}
	})
}

// A manual pass goes on after the newest manual tick, unless a clock that was
// wrong once put that into the future.
func TestAManualPassAndAClockThatWasWrong(t *testing.T) {
	for _, test := range []struct {
		name                string
		machine, store      time.Duration // the clocks' error, at first
		machineThen, before time.Duration // then; the store's is the same as before
		want                string
	}{
		{"both were wrong", 1000 * time.Hour, 1000 * time.Hour, 0, 0, "20000101T000001Z"},
		{"the machine falls behind the store", 2 * time.Minute, 2 * time.Minute, 0, 2 * time.Minute, "20000101T000201Z"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setup{job: oneRegion})
			var machine, store skewed
			machine.by.Store(int64(test.machine))
			store.by.Store(int64(test.store))
			w.options.Now = machine.now
			w.options.State = memstore.New(func() int64 { return store.now().UnixMicro() })
			if p := w.once(); p.Outcome != Succeeded {
				t.Fatalf("%s: at first %s: %s", test.name, p.Outcome, p.Error)
			}
			machine.by.Store(int64(test.machineThen))
			store.by.Store(int64(test.before))
			p := w.once()
			if p.Outcome != Succeeded || p.Tick.Format(TickFormat) != test.want {
				t.Errorf("%s: %s of %s: %s; want %s", test.name, p.Outcome, p.Tick.Format(TickFormat), p.Error, test.want)
			}
		})
	}
}

// jumped is a store whose clock is not to be trusted.
type jumped struct{ driver.Store }

func (jumped) Decide(context.Context, driver.Batch) (driver.Decisions, error) {
	return driver.Decisions{}, fmt.Errorf("decide: %w", budget.ErrClock)
}

func TestAChargeAgainstAWrongClockSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{Handler: answering(http.StatusOK, "", "{}")}
		w := newWorld(t, setup{job: oneRegion, upstream: upstream})
		b, err := budget.New(jumped{w.store}, w.options.Budgets["youtube/key1"].Spec())
		if err != nil {
			t.Fatal(err)
		}
		w.options.Budgets["youtube/key1"] = b
		if run := w.once().Runs[0]; run.Outcome != Failed || run.Reason != ReasonClock || upstream.count() != 0 {
			t.Errorf("run %+v, %d requests", run, upstream.count())
		}
	})
}

// Whoever holds a claim can be found.
func TestAHolderNamesItsProcess(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	first, second := newHolder(), newHolder()
	if want := fmt.Sprintf("in process %d on %s", os.Getpid(), host); placeOf(first) != want || first == second {
		t.Errorf("%q and %q; the first is %q, want %q", first, second, placeOf(first), want)
	}
}
