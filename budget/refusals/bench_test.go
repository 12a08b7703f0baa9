package refusals_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/refusals"
	"github.com/quotactl/quotactl/internal/must"
)

// instant answers at once: granted, or refused for a minute.
type instant struct {
	driver.Store
	result driver.Result
	items  []driver.Decision
}

func (s *instant) Decide(_ context.Context, batch driver.Batch) (driver.Decisions, error) {
	s.items = s.items[:0]
	for range batch.Items {
		s.items = append(s.items, driver.Decision{Result: s.result, RetryAt: batch.Now + time.Minute.Microseconds()})
	}
	return driver.Decisions{Now: batch.Now, Items: s.items}, nil
}

// BenchmarkDecide is what the memory adds to a charge that is granted, and what a refusal from
// memory costs in all. alone is without the memory; learnt is a refusal by the store, of a call
// whose id was given.
func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct {
		name   string
		span   time.Duration
		result driver.Result
		id     string
	}{
		{"granted/alone", 0, driver.Granted, ""}, {"granted/behind", span, driver.Granted, ""},
		{"refused/alone", 0, driver.Refused, ""}, {"refused/learnt", span, driver.Refused, "given"}, {"refused/remembered", span, driver.Refused, ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			opened := must.Get(budget.New(refusals.New(&instant{result: c.result}, c.span), pool()))(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := opened.Charge(b.Context(), budget.Call{Operation: "get", ID: c.id}); err != nil && !errors.Is(err, budget.ErrExhausted) {
					b.Fatal(err)
				}
			}
		})
	}
}
