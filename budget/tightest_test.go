package budget_test

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// The tightest limit is the one with the smallest part left, of those that cover what was charged;
// what a lock closes has nothing left.
func TestTightest(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	of := func(name string, window limit.Window, used, whole int64) budget.LimitStatus {
		return budget.LimitStatus{Limit: limit.Limit{Name: name, Limit: whole, Counts: limit.CountUnits, Window: window}, Used: used, Remaining: max(0, whole-used)}
	}
	rolling := func(name string, length time.Duration, used, whole int64) budget.LimitStatus {
		return of(name, limit.RollingWindow(length), used, whole)
	}
	with := func(l budget.LimitStatus, change func(*budget.LimitStatus)) budget.LimitStatus {
		change(&l)
		return l
	}
	some := func(l *budget.LimitStatus) { l.Operations = []string{"search.*"} }
	calls := func(l *budget.LimitStatus) { l.Counts = limit.CountCalls }
	observes := func(l *budget.LimitStatus) { l.Observe = true }
	drifted := func(l *budget.LimitStatus) { l.Drift = l.Used; some(l) }
	kept := func(units int64) func(*budget.LimitStatus) {
		return func(l *budget.LimitStatus) {
			l.Shares = []budget.ShareStatus{{Share: limit.Share{Name: "nightly"}, Kept: units}}
		}
	}
	held := func(units int64) func(*budget.LimitStatus) {
		return func(l *budget.LimitStatus) { l.Held = []budget.Held{{Amount: units}}; l.Remaining -= units }
	}
	refill := must.Get(limit.NewRefill(1, time.Second))(t)
	bucket, open := of("bucket", limit.BucketWindow(refill), 10, 10), of("open", limit.ConcurrentWindow(), 10, 10)
	second := rolling("second", time.Second, 10, 10)
	minute, hour, day := rolling("minute", time.Minute, 19, 850), rolling("hour", time.Hour, 19, 100), rolling("day", 24*time.Hour, 784, 950)
	lock := func(name string, since, until time.Duration) budget.Lock {
		return budget.Lock{Limit: name, Since: now.Add(since), Until: now.Add(until)}
	}
	type locks = []budget.Lock
	type limits = []budget.LimitStatus
	for name, test := range map[string]struct {
		limits limits
		locks  locks
		want   string
		left   int64
		locked string // which lock
	}{
		"the smallest part, not the fewest":          {limits: limits{rolling("minute", time.Minute, 53, 100), day}, want: "day", left: 166},
		"whatever it counts and covers":              {limits: limits{minute, with(rolling("core", time.Hour, 19, 19), func(l *budget.LimitStatus) { calls(l); some(l) })}, want: "core"},
		"in a calendar":                              {limits: limits{minute, of("month", limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Month, "UTC", 0))(t)), 90, 100)}, want: "month", left: 10},
		"what is kept is not free":                   {limits: limits{with(rolling("day", 24*time.Hour, 300, 950), kept(400)), rolling("minute", time.Minute, 40, 100)}, want: "day", left: 250},
		"of nothing free, what shares may not take":  {limits: limits{with(rolling("day", 24*time.Hour, 550, 950), kept(400)), rolling("minute", time.Minute, 100, 100)}, want: "minute"},
		"what passes hold counts":                    {limits: limits{minute, with(with(rolling("search", time.Hour, 0, 100), some), held(90))}, want: "search", left: 10},
		"one that observes":                          {limits: limits{with(rolling("seen", time.Hour, 10, 10), observes), hour}, want: "hour", left: 81},
		"only those that observe":                    {limits: limits{with(hour, observes), with(rolling("seen", time.Hour, 9, 10), observes)}, want: "seen", left: 1},
		"nothing charged":                            {limits: limits{rolling("a", time.Hour, 0, 100), rolling("b", time.Hour, 0, 10)}, want: "a", left: 100},
		"nothing charged, but drift":                 {limits: limits{rolling("a", time.Hour, 0, 100), with(rolling("b", time.Hour, 10, 10), drifted)}, want: "b"},
		"drift where nobody charges":                 {limits: limits{hour, with(rolling("b", time.Hour, 10, 10), drifted)}, want: "hour", left: 81},
		"debt":                                       {limits: limits{hour, rolling("b", time.Hour, 12, 10)}, want: "b"},
		"brief ones":                                 {limits: limits{second, bucket, open, hour}, want: "hour", left: 81},
		"brief ones, nothing charged":                {limits: limits{second, bucket, open, rolling("hour", time.Hour, 0, 100)}, want: "hour", left: 100},
		"only brief ones":                            {limits: limits{of("bucket", limit.BucketWindow(refill), 1, 10), of("open", limit.ConcurrentWindow(), 2, 10)}, want: "open", left: 8},
		"a brief one, locked":                        {limits: limits{bucket, hour}, locks: locks{lock("bucket", -time.Second, time.Hour)}, want: "bucket", locked: "bucket"},
		"open calls, locked":                         {limits: limits{hour, open}, locks: locks{lock("open", -time.Second, time.Hour)}, want: "open", locked: "open"},
		"locked":                                     {limits: limits{day, hour}, locks: locks{lock("hour", -time.Second, time.Hour)}, want: "hour", locked: "hour"},
		"locked where nobody charges":                {limits: limits{hour, with(rolling("search", time.Hour, 0, 100), some)}, locks: locks{lock("search", -time.Minute, time.Hour)}, want: "hour", left: 81},
		"locked for longer than the window":          {limits: limits{hour, with(rolling("search", time.Minute, 0, 100), some)}, locks: locks{lock("search", -time.Minute, time.Hour)}, want: "search", locked: "search"},
		"locked, and free of charge":                 {limits: limits{hour, rolling("day", 24*time.Hour, 0, 100)}, locks: locks{lock("day", -time.Minute, time.Hour)}, want: "day", locked: "day"},
		"locked, but it observes":                    {limits: limits{hour, with(day, observes)}, locks: locks{lock("day", -time.Second, time.Hour)}, want: "hour", left: 81},
		"the whole budget":                           {limits: limits{hour, day}, locks: locks{lock("", -time.Second, time.Hour)}, want: "day"},
		"the whole budget, and longer":               {limits: limits{hour, day}, locks: locks{lock("", -time.Second, 2*time.Hour), lock("hour", -time.Second, time.Hour)}, want: "hour"},
		"the whole budget, and a limit for longer":   {limits: limits{hour, day}, locks: locks{lock("", -time.Second, time.Hour), lock("hour", -time.Second, 2*time.Hour)}, want: "hour", locked: "hour"},
		"two that are locked: the one for longer":    {limits: limits{hour, day}, locks: locks{lock("day", -time.Second, time.Hour), lock("hour", -time.Second, 2*time.Hour)}, want: "hour", locked: "hour"},
		"one is locked, one is empty for longer":     {limits: limits{hour, with(rolling("b", time.Hour, 9, 9), func(l *budget.LimitStatus) { l.NextReturn = now.Add(2 * time.Hour) })}, locks: locks{lock("hour", -time.Second, time.Hour)}, want: "b"},
		"the whole budget, which has observing ones": {limits: limits{with(hour, observes)}, locks: locks{lock("", -time.Second, time.Hour)}, want: "hour"},
	} {
		s := budget.Status{At: now, Limits: test.limits, Locks: test.locks}
		got := s.Tightest()
		check.Equal(t, got.Name, test.want, name)
		check.Equal(t, got.Left, test.left, name)
		whole := len(test.locks) > 0 && test.locks[0].Limit == ""
		if want := test.locked != "" || whole; (got.Lock != nil) != want || want && got.Lock.Limit != test.locked {
			t.Errorf("%s: locked by %+v, want %q", name, got.Lock, test.locked)
		}
		check.Equal(t, got.Refuses(), name != "only those that observe", name)
		check.Equal(t, got.Part(), float64(test.left)/float64(got.Limit.Limit), name)
		if s.Observe = true; whole {
			check.Equal(t, s.Tightest().Lock == nil || s.Tightest().Lock.Limit != "", true, name, "in observe mode")
		}
	}
	check.Equal(t, budget.Status{}.Tightest() == nil, true, "no limits")
	check.Equal(t, budget.Status{}.Tightest().Refuses(), false, "no limits")
}

// A status is narrowed to a limit, or to the limits that cover an operation.
func TestOnly(t *testing.T) {
	b := open(t, videoSpec(150))
	must.Get(b.Charge(t.Context(), budget.Call{Operation: "videos.list"}))(t)
	status := must.Get(b.Status(t.Context()))(t)
	names := func(s budget.Status) (list []string) {
		for _, l := range s.Limits {
			list = append(list, l.Name)
		}
		return list
	}
	for _, l := range status.Limits {
		only := status.Only(l.Name, "")
		check.EqualSlices(t, names(only), []string{l.Name}, "only", l.Name)
		check.Equal(t, only.Tightest().Name, l.Name, "only", l.Name)
		check.Equal(t, only.Remaining == status.Remaining, true, "what remains of the budget")
	}
	check.EqualSlices(t, names(status.Only("", "videos.list")), []string{"minute"}, "of an operation")
	check.EqualSlices(t, names(status.Only("", "search.list")), []string{"minute", "search"}, "of an operation")
	check.Equal(t, len(status.Only("search", "videos.list").Limits), 0, "of neither")
	check.Equal(t, len(status.Only("none", "").Limits), 0, "of no such name")
	if _, err := budget.Only([]budget.Status{status}, "serch", ""); err == nil || err.Error() != `there is no limit serch; the limits are minute, search; did you mean "search"?` {
		t.Errorf("of no such name: %v", err)
	}
	if _, err := budget.Only([]budget.Status{status}, "search", "videos.list"); err == nil || err.Error() != "no limit search covers operation videos.list; the limits are minute, search" {
		t.Errorf("of neither: %v", err)
	}
	both := []budget.Status{status, status.Only("minute", "")}
	check.Equal(t, len(must.Get(budget.Only(both, "minute", ""))(t)), 2, "budgets with that limit")
	check.Equal(t, len(must.Get(budget.Only(both, "search", ""))(t)), 1, "budgets with that limit")
	status.Locks = []budget.Lock{{}, {Limit: "minute"}, {Limit: "search"}}
	check.EqualSlices(t, status.Only("search", "").Locks, []budget.Lock{{}, {Limit: "search"}}, "locks")
	status.Limits[1].Name = "search:search.list"
	check.EqualSlices(t, names(status.Only("search", "")), []string{"search:search.list"}, "of a limit for each operation")
}

// While a loss holds charges back nothing is left for sure, unless a lock says so already or nothing
// is refused.
func TestTightestAfterALoss(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	status := budget.Status{At: now, Recovering: now.Add(time.Minute), Limits: []budget.LimitStatus{
		{Limit: limit.Limit{Name: "day", Limit: 100, Window: limit.RollingWindow(24 * time.Hour)}, Used: 50, Remaining: 50},
	}}
	tightest := status.Tightest()
	check.Equal(t, tightest.Left, int64(0), "left")
	check.Equal(t, tightest.Lock.Until, now.Add(time.Minute), "until")
	check.Contains(t, tightest.Lock.Why, "the store has lost data")
	status.Locks = []budget.Lock{{Until: now.Add(time.Second), Why: "by hand"}}
	check.Equal(t, status.Tightest().Lock.Why, "by hand", "the lock's reason")
	status.Locks, status.Observe = nil, true
	check.Equal(t, status.Tightest().Left, int64(50), "left in observe mode")
}
