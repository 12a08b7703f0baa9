package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A pass keeps its claim for as long as it takes.
func TestTheClaimIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\ntimeout = \"1h\""})
		w.options.Transport = direct{slow(10*time.Minute, w.sandbox)}
		others := make(chan Pass, 1)
		time.AfterFunc(25*time.Minute, func() { others <- w.once() })
		w.succeeds()
		if other := <-others; other.Reason != ReasonOverlap {
			t.Errorf("the other pass: %s (%s)", other.Outcome, other.Reason)
		}
	})
}

// A pass that was declared dead is lost: it ends, and leaves what is kept alone.
func TestAPassTakenForDeadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stolen := &thief{}
		w := newWorld(t, setup{job: `regions = ["US", "GB"]`})
		stolen.JobStore = w.store
		w.options.State = stolen
		w.options.Transport = direct{slow(10*time.Second, w.sandbox)}
		p := w.once()
		check.EqualSlices(t, outcomes(p), []string{"US lost fenced", "GB lost fenced"}, "runs")
		if p.Outcome != Lost || p.Runs[0].Pages != 2 {
			t.Errorf("pass %+v", p)
		}
		if w.state().Last != nil {
			t.Errorf("it recorded %s", w.state().Last)
		}
		w.logged("declared dead", "job=trending")
	})
}

// thief is a state in which every claim is gone when it is looked for.
type thief struct{ driver.JobStore }

func (s *thief) Job(ctx context.Context, job string) (driver.JobDocument, error) {
	found, err := s.JobStore.Job(ctx, job)
	found.Text = nil
	return found, err
}

// away is a state, and a store of ledgers, that does not answer.
type away struct {
	driver.JobStore
	driver.Store
}

var errAway = errors.Join(budget.ErrUnavailable, errors.New("connection refused"))

func (away) SwapJob(_ context.Context, swap driver.JobSwap) (bool, error) {
	return false, fmt.Errorf("swap job %s: %w", swap.Job, errAway)
}

func (away) Decide(context.Context, driver.Batch) (driver.Decisions, error) {
	return driver.Decisions{}, errAway
}

func TestAPassWithoutAStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		w.options.State = away{JobStore: w.store}
		if p := w.once(); p.Outcome != Failed || p.Reason != ReasonStore || len(p.Runs) != 0 {
			t.Errorf("pass %+v", p)
		}
		w.logged("pass not started", "reason=store", "connection refused")
		check.Equal(t, strings.Count(w.log.String(), "swap job"), 1, "times that the log names the failed call")
	})
}

// A page that cannot be charged is not asked for.
func TestARunWithoutAStoreAsksForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{Handler: answering(http.StatusOK, "", "{}")}
		w := newWorld(t, setup{job: oneRegion, upstream: upstream})
		w.spendOn(away{Store: w.store})
		run := w.once().Runs[0]
		if run.Outcome != Failed || run.Reason != ReasonStore || upstream.count() != 0 || !strings.Contains(run.Error, "connection refused") {
			t.Errorf("run %+v, %d requests", run, upstream.count())
		}
	})
}

func TestAManualPassTakesTheNextFreeSecond(t *testing.T) {
	at := func(s string) time.Time {
		tick := must.Get(time.Parse("15:04:05.000", s))(t)
		return tick.AddDate(2026, 0, 0)
	}
	for _, test := range []struct {
		schedule, now, last, want string
	}{
		{"0 * * * *", "10:20:30.900", "09:00:00.000", "10:20:30.000"},
		{"0 * * * *", "10:00:00.100", "09:00:00.000", "10:00:01.000"}, // the schedule's own
		{"0 * * * *", "10:20:30.900", "10:20:30.000", "10:20:31.000"}, // taken
		{"0 * * * *", "10:20:30.900", "10:20:40.000", "10:20:41.000"},
		{"0 * * * *", "09:59:58.000", "09:59:59.000", "10:00:01.000"}, // after the last, past a tick
		{"@every 2s", "10:00:00.000", "09:00:00.000", "10:00:01.000"},
		{"@every 1s", "10:00:00.000", "09:00:00.000", ""},
	} {
		schedule := parsed(t, test.schedule, "UTC")
		j := &Job{Schedule: schedule}
		tick, free := j.freeSecond(at(test.now), at(test.last))
		if free != (test.want != "") || free && !tick.Equal(at(test.want)) {
			t.Errorf("%s at %s after %s: %s %t, want %s", test.schedule, test.now, test.last, tick, free, test.want)
		}
	}
}

func TestManualPassesOfOneSecondGetTheirOwnTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		var ticks []string
		for range 3 {
			ticks = append(ticks, w.once().Tick.Format(TickFormat))
		}
		check.EqualSlices(t, ticks, []string{"20000101T000001Z", "20000101T000002Z", "20000101T000003Z"}, "ticks")
		check.Equal(t, len(w.files()), 3, "files")
	})
}
