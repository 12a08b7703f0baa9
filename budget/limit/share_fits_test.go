package limit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

func TestUnspendable(t *testing.T) {
	for _, c := range []struct {
		guarantee int64
		prices    []int64
		want      int64
	}{
		{250, nil, 0},
		{250, []int64{0}, 0},
		{250, []int64{100}, 50},
		{250, []int64{100, 1}, 0},
		{250, []int64{100, 0, 30}, 0}, // 100 + 5 × 30
		{80, []int64{50, 30}, 0},
		{70, []int64{50, 30}, 10},
		{20, []int64{50, 30}, 20},
		{75, []int64{50, 30}, 15},
		{limit.MaxUnits, []int64{999_999_999_999_999}, 1},
		{limit.MaxUnits, []int64{7, 3}, 0},
	} {
		check.Equal(t, limit.Unspendable(c.guarantee, c.prices), c.want, "guarantee, prices", c.guarantee, c.prices)
	}
}

// The most that a caller may take is what NeverFits still lets fit.
func TestMost(t *testing.T) {
	calendar := must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable on purpose
	for range 2000 {
		window := limit.CalendarWindow(calendar)
		window.Guard = rng.Int64N(3) * time.Minute.Microseconds()
		l := limit.Limit{Name: "day", Limit: 100, Counts: limit.CountUnits, Window: window}
		for i := range rng.IntN(4) {
			l.Shares = append(l.Shares, limit.Share{
				Name: string(rune('a' + i)), Jobs: []string{string(rune('a' + i))}, Guarantee: rng.Int64N(34), Lapse: rng.Int64N(4) * time.Minute.Microseconds(),
			})
		}
		for own := -1; own < len(l.Shares); own++ {
			most := l.Most(own)
			if l.NeverFits(most, 0, false, own, 0) || !l.NeverFits(most+1, 0, false, own, 0) {
				t.Fatalf("%+v: the share %d may take %d at most", l, own, most)
			}
		}
	}
}

// A limit with too many shares is refused before they are compared with each other.
func TestTooManyShares(t *testing.T) {
	l := limit.Limit{Name: "day", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)}
	for range limit.MaxShares + 1 {
		l.Shares = append(l.Shares, limit.Share{Name: "same", Jobs: []string{"same"}})
	}
	err := l.Validate()
	if err == nil {
		t.Fatal("it is valid")
	}
	check.Equal(t, err.Error(), "it has 65 shares: use at most 64", "error")
}
