package look

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
)

// Top looks at mostLooked budgets of an upstream at most, lookedAtOnce of them at a time.
const (
	mostLooked   = 10_000
	lookedAtOnce = 16
)

// Top reads the n fullest budgets that credentials "*" admit: those whose tightest limit has the
// smallest part left, the fullest first; and says how many there are. It looks at each of them.
func (r *Reader) Top(ctx context.Context, n int) (top []budget.Status, all int, err error) {
	known := r.Config.Budgets()
	for _, upstream := range r.Config.Upstreams {
		if !slices.ContainsFunc(upstream.Credentials, func(c config.Credential) bool { return c.Label == config.AnyCredential }) {
			continue
		}
		names, err := r.Store.Budgets(ctx, upstream.Name, mostLooked)
		if err != nil {
			return nil, 0, err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(known, name) })
		all += len(names)
		found, err := r.statuses(ctx, names)
		if err != nil {
			return nil, 0, err
		}
		top = append(top, found...)
		slices.SortFunc(top, func(a, b budget.Status) int {
			return cmp.Or(cmp.Compare(partLeft(a), partLeft(b)), cmp.Compare(a.Budget, b.Budget))
		})
		top = top[:min(n, len(top))]
	}
	return top, all, nil
}

// partLeft is the part that a budget has left, 1 if no limit refuses anything.
func partLeft(s budget.Status) float64 {
	if t := s.Tightest(); t.Refuses() {
		return t.Part()
	}
	return 1
}

// statuses are those of the budgets named.
func (r *Reader) statuses(ctx context.Context, names []string) ([]budget.Status, error) {
	list, errs := make([]budget.Status, len(names)), make([]error, len(names))
	turns := make(chan struct{}, lookedAtOnce)
	var all sync.WaitGroup
	for i, name := range names {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			b, err := r.Open(name)
			if err == nil {
				list[i], err = b.Status(ctx)
			}
			errs[i] = err
		})
	}
	all.Wait()
	return list, cmp.Or(errs...)
}
