package jobs

import (
	"context"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
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
