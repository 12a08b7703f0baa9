package sqlitestore

import (
	"context"

	"github.com/quotactl/quotactl/budget/driver"
)

func (s *Store) changePlan(ctx context.Context, c driver.PlanChange) (answer driver.Planned, err error) {
	err = s.relock(ctx, c.Budget, c.Now, func(l *ledger, when moment) error {
		plans, err := l.plans.With(c, when.now)
		if err != nil {
			return err
		}
		if l.b == 0 {
			if err := l.create(when.now); err != nil {
				return err
			}
		}
		l.plans, answer = plans, driver.Planned{Now: when.clock}
		return nil
	})
	return answer, err
}
