package budget_test

import (
	"context"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
)

// unboundedSums fails where a sum of the ledger is given the time of a decision.
type unboundedSums struct {
	driver.Store
	t      *testing.T
	summed int
}

func (s *unboundedSums) Spent(ctx context.Context, q driver.SpentQuery) (driver.Spent, error) {
	s.summed++
	if _, bounded := ctx.Deadline(); bounded {
		s.t.Error("the sum of a ledger is bounded, however large that is")
	}
	return s.Store.Spent(ctx, q)
}

// An audit of a large ledger takes as long as that needs.
func TestAuditTakesItsTime(t *testing.T) {
	store := &unboundedSums{Store: memstore.New(nil), t: t}
	b := must.Get(budget.New(store, videoSpec(150)))(t)
	if f := b.Audit(context.Background()); f.Level != driver.OK || store.summed == 0 {
		t.Errorf("%+v, of %d sums", f, store.summed)
	}
}
