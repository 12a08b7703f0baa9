package jobs

import (
	"context"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/needs"
)

// unread is a store that does not say what was spent.
type unread struct{ driver.Store }

func (unread) Spent(context.Context, driver.SpentQuery) (driver.Spent, error) {
	return driver.Spent{}, errFails
}

// Units that could not be read are not known: the run says so, and what to do; nothing is
// learned from it, and it does not count as a run that spent nothing.
func TestUnitsThatAreNotKnown(t *testing.T) {
	w := checkpointed(t, `exit 0`)
	w.spendOn(unread{w.store})
	p := w.once()
	run := p.Runs[0]
	if !p.Unknown || !run.Unknown || run.Spent != nil || p.Outcome != Succeeded {
		t.Errorf("pass %+v", p)
	}
	check.Equal(t, len(run.Warning) > 0, true, "it warns")
	kept := must.Get(readRecord(w.state().Last))(t)
	check.Equal(t, kept.Unknown, true, "recorded")
	if _, learned := w.list[0].sample(run); learned {
		t.Error("something was learned of it")
	}
	exhausted := Run{Outcome: Exhausted, Started: Instant{noon}, Unknown: true}
	check.Equal(t, exhausted.goesOn(&Job{}), false, "it goes on without a checkpoint")
	skipped := &ending{outcome: Skipped, reason: ReasonDrained}
	check.Equal(t, skipped.of(exhausted).outcome, Drained)
	check.Equal(t, Run{Unknown: true}.then(Run{Units: 3}).Unknown, true, "of two parts")
	check.Equal(t, Run{Units: 3, Spent: []needs.Amount{}}.then(Run{Unknown: true}).Unknown, true, "of two parts")
}

// strayed is a store whose ledger has charges of the run that is asked for, and of others.
type strayed struct {
	driver.Store
	own    int64
	others []driver.SpentRow // by run
	pseudo []driver.SpentRow // by operation
}

func (s strayed) Spent(_ context.Context, q driver.SpentQuery) (driver.Spent, error) {
	switch {
	case q.By == driver.ByRun:
		return driver.Spent{Now: q.Now, Rows: s.others}, nil
	case q.Run == "":
		return driver.Spent{Now: q.Now, Rows: s.pseudo}, nil
	case s.own > 0:
		return driver.Spent{Now: q.Now, Rows: []driver.SpentRow{{Name: "videos.list", Units: s.own, Calls: 1}}}, nil
	}
	return driver.Spent{Now: q.Now}, nil
}

// A command may have made the charges that name no run, unless some name its own.
func TestChargesThatNameNoRun(t *testing.T) {
	other, none := driver.SpentRow{Name: "other", Units: 5, Calls: 1}, driver.SpentRow{Units: 3, Calls: 1}
	for name, c := range map[string]struct {
		ledger  strayed
		unknown bool
	}{
		"no charge":      {},
		"another run's":  {ledger: strayed{others: []driver.SpentRow{other}}},
		"one without":    {ledger: strayed{others: []driver.SpentRow{other, none}}, unknown: true},
		"drift":          {ledger: strayed{others: []driver.SpentRow{none}, pseudo: []driver.SpentRow{{Name: limit.DriftOperation("daily"), Units: 3, Calls: 1}}}},
		"one of its own": {ledger: strayed{own: 2, others: []driver.SpentRow{none}}},
	} {
		w := checkpointed(t, `exit 75`)
		c.ledger.Store = w.store
		w.spendOn(c.ledger)
		run := w.onlyRun()
		check.Equal(t, run.Unknown, c.unknown, name, "unknown")
		check.Equal(t, run.Units, c.ledger.own, name, "units")
		check.Equal(t, run.Warning == namesNoRun, c.unknown, name, run.Warning)
	}
}

// So may one that was lost.
func TestALostCommandThatNoChargeNames(t *testing.T) {
	w := checkpointed(t, "")
	for units, unknown := range map[int64]bool{0: true, 2: false} {
		record := Record{Runs: []Run{{Region: "US", Started: Instant{noon}, Unknown: true}}} // as it was while it ran
		spent := map[string]budget.SpentRow{}
		if units > 0 {
			spent["US"] = budget.SpentRow{Units: units, Calls: 1}
		}
		w.list[0].addSpent(&record, &claim{}, nil, spent)
		check.Equal(t, record.Unknown, unknown, units, "units: unknown")
		check.Equal(t, record.Units, units)
		check.Equal(t, record.Outcome, Lost)
	}
}
