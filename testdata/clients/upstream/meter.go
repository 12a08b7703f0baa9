package upstream

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/must"
)

// Meter is an HTTP client that a preset meters, over base, and its budget.
func Meter(t testing.TB, preset, name string, base http.RoundTripper, o budgethttp.Options, seen *Observer) (*budget.Budget, *http.Client) {
	t.Helper()
	b := Budget(t, preset, name)
	o.Base, o.Observer = base, seen
	transport := must.Get(budgethttp.New(b, o))(t)
	return b, &http.Client{Transport: transport}
}

// Walk has four goroutines do so many steps each, at random, and is how often the
// budget refused. What is locked is opened, as by hand, so that it goes on.
func Walk(t *testing.T, b *budget.Budget, faults *Faults, steps int, isRefusal func(*testing.T, error) bool, do func(ctx context.Context, random *rand.Rand, step int) error) (refusals int) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex // guards refusals
	for range 4 {
		random := rand.New(rand.NewPCG(uint64(faults.IntN(1<<30)), 1))
		all.Go(func() {
			for step := range steps {
				if !isRefusal(t, do(t.Context(), random, step)) {
					continue
				}
				Unlock(t, b)
				mu.Lock()
				refusals++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	Flush(t, b)
	return refusals
}
