package limit

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"pgregory.net/rapid"
)

// exactLevel is a level as a fraction.
func exactLevel(r Refill, l Level) *big.Rat {
	return new(big.Rat).Sub(new(big.Rat).SetInt64(l.Used), big.NewRat(l.Part, r.period))
}

func exactDrain(r Refill, level *big.Rat, span int64) *big.Rat {
	out := new(big.Rat).Sub(level, new(big.Rat).Mul(new(big.Rat).SetInt64(span), big.NewRat(r.amount, r.period)))
	if out.Sign() < 0 {
		return new(big.Rat)
	}
	return out
}

// Draining, adding and returning are exact fractions, at the edges of the ranges
// too, and Reaches is the first instant.
func TestRefillIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, MaxUnits)).Draw(t, "amount")
		period := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, MaxWindow.Microseconds())).Draw(t, "period")
		r, err := NewRefill(amount, time.Duration(period)*time.Microsecond)
		if err != nil {
			return
		}
		most := 9 * MaxUnits
		l := Level{Used: rapid.OneOf(rapid.Int64Range(0, 50), rapid.Int64Range(0, most)).Draw(t, "used"), At: 1_700_000_000_000_000}
		if l.Used > 0 {
			l.Part = rapid.Int64Range(0, r.period-1).Draw(t, "part")
		}
		want := exactLevel(r, l)
		for range 5 {
			span := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 1e15)).Draw(t, "span")
			if rapid.Bool().Draw(t, "drains") {
				l = r.Drain(l, l.At+span)
				want = exactDrain(r, want, span)
			} else {
				change := rapid.Int64Range(-MaxUnits, MaxUnits).Draw(t, "change")
				if l.Used+change > most {
					continue
				}
				l = r.Add(l, change, span)
				if change >= 0 {
					want = new(big.Rat).Add(want, new(big.Rat).SetInt64(change))
				} else if want.Sub(want, exactDrain(r, new(big.Rat).SetInt64(-change), span)); want.Sign() < 0 {
					want = new(big.Rat)
				}
			}
			if got := exactLevel(r, l); got.Cmp(want) != 0 || l.Part < 0 || l.Part >= r.period || l.Used < 0 {
				t.Fatalf("%+v at %s is %s, want %s", l, r, got, want)
			}
		}
		used := rapid.Int64Range(0, max(0, l.Used)).Draw(t, "to")
		at := r.Reaches(l, used)
		if at < maxExact && r.Drain(l, at).Used > used {
			t.Fatalf("%+v at %s counts %d at %d, want %d or less", l, r, r.Drain(l, at).Used, at, used)
		}
		if at > l.At && r.Drain(l, at-1).Used <= used {
			t.Fatalf("%+v at %s comes to %d before %d", l, r, used, at)
		}
	})
}

// What a status shows of a bucket tells its level to the microsecond.
func TestLevelFrom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		period := rapid.Int64Range(1, 1e9).Draw(t, "period")
		r, err := NewRefill(rapid.Int64Range(1, 1000).Draw(t, "amount"), time.Duration(period)*time.Microsecond)
		if err != nil {
			return
		}
		l := Level{Used: rapid.Int64Range(1, 1000).Draw(t, "used"), Part: rapid.Int64Range(0, r.period-1).Draw(t, "part"), At: 1_700_000_000_000_000}
		got := r.LevelFrom(l.Used, l.At, r.Reaches(l, l.Used-1))
		if more := new(big.Rat).Sub(exactLevel(r, got), exactLevel(r, l)); more.Sign() < 0 || more.Cmp(big.NewRat(r.amount, r.period)) >= 0 || got.Part < 0 || got.Part >= r.period {
			t.Fatalf("%s: %+v, want %+v", r, got, l)
		}
	})
}

func TestRefillRefuses(t *testing.T) {
	for _, c := range []struct {
		amount int64
		period time.Duration
	}{{0, time.Second}, {-1, time.Second}, {MaxUnits + 1, time.Second}, {1, 0}, {1, MaxWindow + 1}, {MaxUnits - 1, time.Second}} {
		if _, err := NewRefill(c.amount, c.period); err == nil {
			t.Errorf("%d per %s was taken", c.amount, c.period)
		}
	}
	r := must.Get(NewRefill(50, time.Second))(t)
	check.Equal(t, r.String(), "1/20ms")
}

// Returns is the first instant whose Cut is not below the score, for all kinds,
// and a calendar's Span is the time for which its Cut stays.
func TestWindowInstants(t *testing.T) {
	calendars := map[string]*Calendar{}
	for _, length := range []string{Quarter, Hour, Day, Month} {
		for _, zone := range []string{"UTC", "America/Los_Angeles", "Australia/Lord_Howe"} {
			c := must.Get(NewCalendar(length, zone, 0))(t)
			calendars[length+zone] = c
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		w := ConcurrentWindow()
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			w = RollingWindow(time.Duration(rapid.Int64Range(1000, 1e14).Draw(t, "length")))
		case 1:
			length := rapid.Int64Range(MinPrecision, 1e11).Draw(t, "length")
			w = CoarseWindow(time.Duration(length)*time.Microsecond, time.Duration(rapid.Int64Range(MinPrecision, length).Draw(t, "precision"))*time.Microsecond)
		case 2:
			w = CalendarWindow(rapid.SampledFrom(mapValues(calendars)).Draw(t, "calendar"))
			w.Guard = rapid.SampledFrom([]int64{0, 1, 5_000_000, MaxGuard}).Draw(t, "guard")
		}
		must.Do(t, w.validate())
		score := rapid.Int64Range(1_750_000_000_000_000, 1_800_000_000_000_000).Draw(t, "score")
		if w.Kind == CalendarKind && rapid.Bool().Draw(t, "near a reset") {
			_, next := w.Calendar.Period(score)
			score = next + rapid.Int64Range(-2*w.Guard-2, 2*w.Guard+2).Draw(t, "off")
		}
		back := w.Returns(score)
		if w.Cut(back) < score || w.Cut(back-1) >= score {
			t.Fatalf("%s: what finished at %d is back at %d, but its cut is %d then and %d before", w.Key(), score, back, w.Cut(back), w.Cut(back-1))
		}
		if w.Kind == CalendarKind {
			from, until := w.Span(score)
			if score < from || score >= until || w.Cut(from) != w.Cut(until-1) || w.Cut(from-1) == w.Cut(from) || w.Cut(until) == w.Cut(from) {
				t.Fatalf("%s: the cut at %d stays from %d until %d: %d %d %d %d", w.Key(), score, from, until, w.Cut(from-1), w.Cut(from), w.Cut(until-1), w.Cut(until))
			}
		}
		if back-score > w.Longest() {
			t.Fatalf("%s: it counts for %d µs, longer than %d", w.Key(), back-score, w.Longest())
		}
		if strings.ContainsAny(w.Key(), " ,;|") {
			t.Fatalf("key %q", w.Key())
		}
	})
}

func mapValues(m map[string]*Calendar) []*Calendar {
	var list []*Calendar
	for _, length := range []string{Quarter, Hour, Day, Month} {
		for _, zone := range []string{"UTC", "America/Los_Angeles", "Australia/Lord_Howe"} {
			list = append(list, m[length+zone])
		}
	}
	return list
}
