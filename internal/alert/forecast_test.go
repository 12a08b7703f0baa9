package alert

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A plan that hangs or fails delays no other alert, and is made again five minutes later.
func TestAPlanSilencesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		made := 0
		w.forecast = func(ctx context.Context) ([]Forecast, error) {
			if made++; made == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, errors.New("no ledger")
		}
		defer w.daemon()()
		time.Sleep(2 * LookEvery)
		must.Get(w.budgets["shop/main"].Lock(t.Context(), budget.LockOrder{Until: budget.Until{After: time.Hour}}))(t)
		time.Sleep(2 * LookEvery)
		w.tells("locked begin")
		time.Sleep(planEvery)
		check.Contains(t, w.log.String(), "no plan could be made", "log")
		check.Equal(t, made, 2, "plans")
		time.Sleep(planEvery)
		check.Equal(t, made, 3, "plans")
	})
}

// A plan that was made late is gone by, though no look waited for it.
func TestALatePlanIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nightly)
		w.forecast = func(ctx context.Context) ([]Forecast, error) {
			time.Sleep(planTakes - time.Second)
			return []Forecast{{Job: "nightly", Budget: "shop/main", Limit: "daily", Short: 1}}, ctx.Err()
		}
		defer w.daemon()()
		time.Sleep(planTakes + LookEvery)
		w.tells("forecast begin")
	})
}
