package simulate

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/must"
)

// ledger looks at the daemons' ledger from outside.
func (m *machine) ledger(t *testing.T, in store) *budget.Budget {
	t.Helper()
	cfg, _ := load(t, m.config)
	spec := must.Get(cfg.Spec("youtube/key1"))(t)
	return must.Get(budget.New(in, spec, budget.WithNow(m.clock.now), budget.WithJobStore(in)))(t)
}

// hourly is how often a host asks the store at least, and tells it first what it
// spent without it.
const hourly = time.Hour

// agrees holds the ledger to what the upstream has counted on the day so far: it
// must know of every unit, but for those of the allowance that a host that was without the
// store has yet to report, and those of a stranger that the upstream has yet to report. It
// returns the present headroom.
func (m *machine) agrees(t *testing.T, ledger *budget.Budget) (headroom int64) {
	t.Helper()
	status := must.Get(ledger.Status(context.Background()))(t)
	i := slices.IndexFunc(status.Limits, func(l budget.LimitStatus) bool { return l.Name == "pacific-day" })
	known, now := status.Limits[i].Used, m.clock.now()
	known += m.network.stranger(m.month.day(now)) - status.Limits[i].Drift
	if m.month.away(now.Add(-hourly), now) {
		known += allowance
	}
	if counted := m.network.sandbox.Usage().Units; counted > known {
		t.Errorf("%s: the upstream has counted %d units of the day, the ledger knows of %d", now.In(pacific).Format(time.DateTime), counted, known)
	}
	return status.Limits[i].Headroom
}
