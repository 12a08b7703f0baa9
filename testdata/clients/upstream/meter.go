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

// Meter makes an HTTP client that is metered by a preset, over o.Base, and its budget.
func Meter(t testing.TB, preset, name string, base http.RoundTripper, o budgethttp.Options, seen *Observer) (*budget.Budget, *http.Client) {
	t.Helper()
	b := Budget(t, preset, name)
	o.Base, o.Observer = base, seen
	transport := must.Get(budgethttp.New(b, o))(t)
	return b, &http.Client{Transport: transport}
}

// Walk has four goroutines take so many random steps each, and returns how often the
// budget refused. After each refusal it removes the locks, so that the walk continues.
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
