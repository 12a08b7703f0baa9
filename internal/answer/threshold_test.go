package answer

import (
	"errors"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

func TestThreshold(t *testing.T) {
	one := func(name string, of, left int64) budget.LimitStatus {
		return budget.LimitStatus{Limit: limit.Limit{Name: name, Limit: of, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}, Used: of - left, Remaining: left}
	}
	some := one("some", 10, 0)
	some.Operations = []string{"search.list"}
	calls, seen := one("calls", 10, 0), one("seen", 10, 0)
	calls.Counts, seen.Observe = limit.CountCalls, true
	lockedOn := func(name string) []budget.Lock {
		return []budget.Lock{{Limit: name, Until: time.Unix(0, 0)}}
	}
	for _, test := range []struct {
		least  string
		limits []budget.LimitStatus
		locks  []budget.Lock
		want   string
	}{
		{"10%", []budget.LimitStatus{one("a", 1000, 100)}, nil, ""},
		{"10%", []budget.LimitStatus{one("a", 1000, 99)}, nil, "b has 99 of 1000 units left in limit a, under 10%"},
		{"9.9%", []budget.LimitStatus{one("a", 1000, 99)}, nil, ""},
		{"0%", []budget.LimitStatus{one("a", 1000, 0)}, nil, ""},
		{"0.1%", []budget.LimitStatus{one("a", limit.MaxUnits, limit.MaxUnits/1000-1)}, nil, "b has 999999999999 of 1000000000000000 units left in limit a, under 0.1%"},
		{"500", []budget.LimitStatus{one("a", 1000, 500)}, nil, ""},
		{"500", []budget.LimitStatus{one("a", 1000, 499)}, nil, "b has 499 of 1000 units left in limit a, under 500 units"},
		// The limit with the smallest part left is judged, whatever it counts and covers.
		{"50%", []budget.LimitStatus{one("a", 1000, 100), one("b", 120, 99)}, nil, "b has 100 of 1000 units left in limit a, under 50%"},
		{"100", []budget.LimitStatus{one("a", 1000, 100), one("b", 120, 99)}, nil, ""},
		{"50%", []budget.LimitStatus{one("a", 120, 100), some}, nil, "b has 0 of 10 units left in limit some, under 50%"},
		{"1", []budget.LimitStatus{one("a", 120, 100), calls}, nil, "b has 0 of 10 calls left in limit calls, under 1 call"},
		// Limits that only observe are not.
		{"50%", []budget.LimitStatus{seen, one("a", 10, 5)}, nil, ""},
		// A lock leaves nothing.
		{"1", []budget.LimitStatus{one("a", 10, 10)}, lockedOn(""), "b has nothing left, under 1 unit: it is locked until 1970-01-01T00:00:00Z"},
		{"1%", []budget.LimitStatus{one("a", 10, 10), calls}, lockedOn("calls"), "b has nothing left, under 1%: limit calls is locked until 1970-01-01T00:00:00Z"},
		{"1%", []budget.LimitStatus{one("a", 10, 10), seen}, lockedOn("seen"), ""},
		{"1%", []budget.LimitStatus{one("a", 10, 10), some, seen}, append(lockedOn("some"), lockedOn("seen")...), "b has nothing left, under 1%: limit some is locked until 1970-01-01T00:00:00Z"},
		{"1", []budget.LimitStatus{some}, lockedOn(""), "b has nothing left, under 1 unit: it is locked until 1970-01-01T00:00:00Z"},
		{"0", []budget.LimitStatus{some}, lockedOn(""), ""},
	} {
		got, err := must.Get(ParseThreshold(test.least))(t).Under(budget.Status{Budget: "b", Limits: test.limits, Locks: test.locks})
		check.NoError(t, err, test.least, test.limits)
		check.Equal(t, got, test.want, test.least, test.limits)
	}
	if _, err := must.Get(ParseThreshold("1"))(t).Under(budget.Status{Limits: []budget.LimitStatus{seen}}); !errors.Is(err, ErrNoTightest) {
		t.Errorf("a budget without such a limit: error %v", err)
	}
	for _, text := range []string{"", "%", "-1", "-1%", "101%", "ten", "1e16", "10 %%"} {
		if got, err := ParseThreshold(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
