package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// The fullest budgets of a credential "*" are read at most once a minute, and left out while they
// cannot be read.
func TestTopOfBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTopCollector()
		registry := prometheus.NewRegistry()
		registry.MustRegister(c)
		shown := func() (names string) {
			for _, family := range must.Get(registry.Gather())(t) {
				for _, metric := range family.GetMetric() {
					for _, label := range metric.GetLabel() {
						names += label.GetValue() + " "
					}
				}
			}
			return strings.TrimSpace(names)
		}
		check.Equal(t, shown(), "", "before it is known how to read")
		reads, away := 0, errors.New("away")
		c.follow(func(ctx context.Context, n int) ([]budget.Status, error) {
			check.Equal(t, n, mostTop, "budgets asked for")
			deadline, bounded := ctx.Deadline()
			check.Equal(t, bounded && time.Until(deadline) <= topTakes, true, "it is bounded")
			if reads++; reads == 2 {
				return nil, away
			}
			full := budget.LimitStatus{Limit: limit.Limit{Name: "day", Limit: 10, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}, Used: 9, Remaining: 1}
			return []budget.Status{{Budget: "shop/acme", Limits: []budget.LimitStatus{full}}, {Budget: "shop/free"}}, nil
		})
		check.Equal(t, shown(), "shop/acme day")
		time.Sleep(topAgain - time.Second)
		check.Equal(t, shown(), "shop/acme day")
		check.Equal(t, reads, 1, "reads within a minute")
		time.Sleep(time.Second)
		check.Equal(t, shown(), "", "while the store is away")
		time.Sleep(topAgain)
		check.Equal(t, shown(), "shop/acme day")
	})
}
