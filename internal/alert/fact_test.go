package alert

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A budget is exhausted when its tightest limit is, whatever that counts and covers, and has units
// again once something is left of that limit.
func TestExhaustedIsTheTightest(t *testing.T) {
	now := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	rolling := func(name string, length time.Duration, used, whole int64) budget.LimitStatus {
		return budget.LimitStatus{Limit: limit.Limit{Name: name, Limit: whole, Counts: limit.CountUnits, Window: limit.RollingWindow(length)}, Used: used, Remaining: whole - used}
	}
	core, idle := rolling("core", time.Hour, 19, 19), rolling("graphql", time.Hour, 0, 4750)
	core.Counts, core.Operations, idle.Operations = limit.CountCalls, []string{"rest.*"}, []string{"graphql"}
	core.NextReturn, core.NextAmount = now.Add(time.Minute), 2
	bucket := rolling("bucket", 0, 5, 5)
	bucket.Window = limit.BucketWindow(must.Get(limit.NewRefill(1, time.Second))(t))
	second, seen, some := rolling("second", time.Second, 5, 5), rolling("seen", time.Hour, 5, 5), core
	seen.Observe, some.Used, some.Remaining = true, 18, 1
	points := rolling("points", time.Minute, 19, 850)
	type limits = []budget.LimitStatus
	for name, test := range map[string]struct {
		limits limits
		locks  []budget.Lock
		on     string // the limit of which the alert begins
		text   string
		off    []string // those whose alerts end
		until  time.Time
	}{
		"of some operations": {
			limits: limits{points, core, idle, bucket, second, seen}, on: "core", off: []string{"points", "graphql"}, until: now.Add(time.Hour),
			text: "shop/main is exhausted: 0 of 19 are left of limit core; the next 2 return at 2026-12-01T09:01:00Z",
		},
		"none":                           {limits: limits{points, some, idle, bucket, second, seen}, off: []string{"points", "core", "graphql"}},
		"it observes":                    {limits: limits{seen}},
		"the only one":                   {limits: limits{bucket}, on: "bucket", text: "shop/main is exhausted: 0 of 5 are left of limit bucket", until: now.Add(24 * time.Hour)},
		"the only one below a minute":    {limits: limits{second}, on: "second", text: "shop/main is exhausted: 0 of 5 are left of limit second", until: now.Add(24 * time.Hour)},
		"a bucket that is locked":        {limits: limits{points, bucket}, locks: []budget.Lock{{Limit: "bucket", Until: now.Add(time.Hour), Why: "429"}}, on: "bucket", text: "shop/main is exhausted: limit bucket is locked until 2026-12-01T10:00:00Z: 429", off: []string{"points"}, until: now.Add(time.Minute)},
		"locked where nobody charges":    {limits: limits{points, idle}, locks: []budget.Lock{{Limit: "graphql", Since: now, Until: now.Add(time.Hour)}}, off: []string{"points"}},
		"the whole budget":               {limits: limits{points, some}, locks: []budget.Lock{{Until: now.Add(time.Hour), Why: "ban"}}, on: "core", text: "shop/main is exhausted: it is locked until 2026-12-01T10:00:00Z: ban", until: now.Add(time.Hour)},
		"the whole budget, and observes": {limits: limits{seen}, locks: []budget.Lock{{Until: now.Add(time.Hour)}}, on: "seen", text: "shop/main is exhausted: it is locked until 2026-12-01T10:00:00Z", until: now.Add(time.Hour)},
	} {
		var off []string
		on := ""
		for _, f := range ofBudget(budget.Status{Budget: "shop/main", At: now, Limits: test.limits, Locks: test.locks}, nil) {
			if f.Kind != kindExhausted {
				continue
			}
			if f.off {
				off = append(off, f.Limit)
			}
			if !f.on {
				continue
			}
			on += f.Limit
			check.Equal(t, f.begin, test.text, name)
			check.Equal(t, f.until, test.until.UnixMicro(), name)
			check.Equal(t, f.lock, len(test.locks) > 0 && f.Limit != "seen" && f.Limit != "bucket", name)
		}
		check.Equal(t, on, test.on, name)
		check.EqualSlices(t, off, test.off, name)
	}
}
