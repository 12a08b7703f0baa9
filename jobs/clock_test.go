package jobs

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
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
			w.succeeds()
			machine.by.Store(int64(test.machineThen))
			store.by.Store(int64(test.before))
			p := w.once()
			check.Equal(t, p.Outcome, Succeeded, test.name)
			check.Equal(t, p.Tick.Format(TickFormat), test.want, test.name)
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
		w.spendOn(jumped{w.store})
		if run := w.once().Runs[0]; run.Outcome != Failed || run.Reason != ReasonClock || upstream.count() != 0 {
			t.Errorf("run %+v, %d requests", run, upstream.count())
		}
	})
}

// The state names the holder of a claim.
func TestAHolderNamesItsProcess(t *testing.T) {
	host := must.Get(os.Hostname())(t)
	first, second := newHolder(), newHolder()
	if want := fmt.Sprintf("in process %d on %s", os.Getpid(), host); placeOf(first) != want || first == second {
		t.Errorf("%q and %q; the first is %q, want %q", first, second, placeOf(first), want)
	}
}

// ofTwo is a store that two hosts share.
type ofTwo struct{ driver.Store }

func (s ofTwo) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	b.Hosts = 2
	return s.Store.Decide(ctx, b)
}

func (s ofTwo) Look(ctx context.Context, l driver.Look) (driver.View, error) {
	l.Hosts = 2
	return s.Store.Look(ctx, l)
}

// A pass waits until a recovery ends, whatever max_wait says, and logs that once.
func TestARecoveryIsWaitedFor(t *testing.T) {
	for name, needs := range map[string]string{"one call": "", "several calls": `needs = { "videos.list" = 2 }`} {
		inBubble(t, name, func(t *testing.T) {
			w := newWorld(t, setup{job: "regions = [\"US\", \"GB\"]\nmax_wait = \"1s\"\n" + needs})
			shared := must.Get(budget.New(ofTwo{w.store}, w.options.Budgets["youtube/key1"].Spec()))(t)
			w.options.Budgets["youtube/key1"] = shared
			began := time.Now()
			loss := driver.Recovery{Budget: "youtube/key1", Now: began.UnixMicro(), Mark: driver.Mark{Ledger: "lost", Seen: began.UnixMicro()}, Host: "other", Hosts: 2}
			must.Get(driver.Apply(t.Context(), w.store, loss))(t)
			w.succeeds()
			check.Equal(t, time.Since(began).Truncate(time.Second), time.Minute, "took, want the recovery's minute")
			w.logged("refused; waiting", "region=US", "reason=recovering", "retry_at=2000-01-01T00:01:00.000000Z")
			check.Equal(t, strings.Count(w.log.String(), "refused; waiting"), 1, "lines say that it waits")
			if strings.Contains(w.log.String(), `limit=""`) || strings.Contains(w.log.String(), "operation=needs") {
				t.Errorf("the log names what is nothing:\n%s", w.log)
			}
		})
	}
}

// Which daemons live is known of those that follow jobs, until they stop, and for a
// minute of those that died.
func TestWhichDaemonsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		live := func(want ...time.Duration) {
			t.Helper()
			list, err := Daemons(t.Context(), w.store)
			if err != nil || list == nil {
				t.Fatal(list, err)
			}
			var got []time.Duration
			for _, d := range list {
				got = append(got, d.Since.Sub(midnight))
				if !strings.HasPrefix(d.Host, "in process ") {
					t.Errorf("%+v", d)
				}
			}
			check.EqualSlices(t, got, want, "daemons since")
		}
		live()
		stopFirst := w.daemon(false)
		after(time.Hour)
		stopSecond := w.daemon(false)
		after(time.Second)
		live(0, time.Hour)
		stopFirst()
		live(time.Hour)
		var away atomic.Bool
		away.Store(true)
		w.options.State = failing{w.store, away.Load}
		stopThird := w.daemon(false)
		after(time.Millisecond)
		away.Store(false)
		after(time.Minute)
		live(time.Hour, time.Hour+31*time.Second) // the first word was not heard
		stopSecond()
		away.Store(true) // it dies: nothing is heard of it any more
		after(time.Minute + time.Second)
		live()
		stopThird()

		list := w.list
		w.list = nil // it decides charges, and follows no jobs
		w.options.State = w.store
		stop := w.daemon(false)
		after(time.Minute)
		live()
		stop()
		w.list = list
	})
}
