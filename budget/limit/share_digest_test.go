package limit_test

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
)

// A digest tells apart whatever changes what is guaranteed to whom, and nothing else.
func TestDigestShares(t *testing.T) {
	day := limit.Limit{Name: "day", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)}
	divide := func(l limit.Limit, name string, guarantee int64, jobs ...string) limit.Limit {
		l.Shares = append(append([]limit.Share{}, l.Shares...), limit.Share{Name: name, Guarantee: guarantee, Jobs: jobs})
		return l
	}
	hour := day
	hour.Name = "hour"
	a, b := divide(day, "feeds", 10, "a", "b"), divide(hour, "feeds", 10, "a", "b")
	check.Equal(t, limit.DigestShares([]limit.Limit{day, hour}), limit.NoShares, "undivided")
	one := limit.DigestShares([]limit.Limit{a, hour})
	more := divide(a, "more", 0, "c")
	check.Equal(t, limit.DigestShares([]limit.Limit{divide(divide(day, "more", 0, "c"), "feeds", 10, "b", "a")}), limit.DigestShares([]limit.Limit{more}), "in another order")
	larger := a
	larger.Limit = 200
	check.Equal(t, limit.DigestShares([]limit.Limit{hour, larger}), one, "of limits in another order, one of them larger")
	for _, other := range [][]limit.Limit{
		{a, b},
		{divide(day, "feeds", 11, "a", "b"), hour},
		{divide(day, "feeds", 10, "a"), hour},
		{divide(day, "others", 10, "a", "b"), hour},
		{more, hour},
		{day, b},
	} {
		if got := limit.DigestShares(other); got == one || len(got) != len(one) {
			t.Errorf("digest %s of %+v, and %s of others", got, other, one)
		}
	}
}
