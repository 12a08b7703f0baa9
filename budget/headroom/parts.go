package headroom

import (
	"math/bits"
	"slices"

	"github.com/quotactl/quotactl/budget/limit"
)

// Spans in µs.
const (
	hour = int64(3_600_000_000)
	day  = 24 * hour
	// Span is how far back evidence reaches.
	Span = 14 * day
)

// Full is how many full periods of evidence it takes to lower a headroom.
const Full = 3

// MaxClock is the largest difference between clocks that counts, in µs: with a larger one
// nothing is charged.
const MaxClock = int64(60_000_000)

// Parts is what an automatic headroom is made of, in what the limit counts.
type Parts struct {
	Drift, InFlight, Clock, Outage int64
	// Least and Most bound the headroom.
	Least, Most int64
	// Periods is how many of the Full periods of evidence there are.
	Periods int
	// Known: the evidence suffices. Otherwise the headroom is Most, and only Outage is set.
	Known bool
}

// Sum is the sum of the parts.
func (p Parts) Sum() int64 { return p.Drift + p.InFlight + p.Clock + p.Outage }

// Units is the headroom.
func (p Parts) Units() int64 {
	if !p.Known {
		return p.Most
	}
	return min(p.Most, max(p.Least, p.Sum()))
}

// Capped reports whether the parts are more than may be kept back.
func (p Parts) Capped() bool { return p.Sum() > p.Most }

// Unknown is the headroom of a limit without any samples: the most.
func Unknown(l limit.Limit) Parts {
	return Parts{Outage: l.OutagePart, Least: min(Least(l.Quota), l.Auto), Most: l.Auto}
}

// Least is the least automatic headroom of a quota: 0.2 %, rounded up.
func Least(quota int64) int64 { return quota/500 + min(1, quota%500) }

// Sample is an amount of one hour, which began at Hour (µs).
type Sample struct{ Hour, Amount int64 }

// Evidence is what is known of one limit, in what it counts.
type Evidence struct {
	Noted Noted
	// Since is from when on the samples are known, µs; they are in order.
	Since int64
	Drift []Sample // that was recorded in the hour
	Spent []Sample // all that the limit counted
}

// Of is the headroom of a limit at an instant (µs). The limit has Auto, a quota, and a
// rolling or calendar window.
func Of(l limit.Limit, e Evidence, now int64) Parts {
	p := Unknown(l)
	begin, periods := e.Noted.Begin(l.Window, now)
	p.Periods = periods
	if periods < Full || e.Since > begin {
		return p
	}
	p.Known = true
	p.Drift = highest(e.Drift, l.Window, begin, now)
	p.InFlight = e.Noted.most(l.Window, begin-Span, limit.Never, Seen.inFlight)
	if l.Window.Kind == limit.CalendarKind {
		present, _ := Period(l.Window, now) // of which not all hosts may have measured
		off := min(MaxClock, e.Noted.most(l.Window, begin-Span, present, Seen.clock)) - l.Window.Guard
		p.Clock = within(peak(e.Spent, begin-Span), max(0, off))
	}
	return p
}

// few is how many hours with drift it takes to tell their 0.99 quantile from their maximum.
const few = 100

// highest is the highest that was to be kept back for drift, over all instants from begin to
// now: the 0.99 quantile of the Span before the instant or, of few hours, the most of a day,
// since the largest of few says little of the next. It changes with the hours only.
func highest(samples []Sample, w limit.Window, begin, now int64) (most int64) {
	var sorted []int64 // the amounts of the Span before an instant
	next, first, days := 0, 0, daysOf(samples, w)
	for at := begin; ; at = min(now, at-at%hour+hour) {
		for ; next < len(samples) && samples[next].Hour <= at; next++ {
			place, _ := slices.BinarySearch(sorted, samples[next].Amount)
			sorted = slices.Insert(sorted, place, samples[next].Amount)
		}
		for ; first < next && samples[first].Hour <= at-Span; first++ {
			place, _ := slices.BinarySearch(sorted, samples[first].Amount)
			sorted = slices.Delete(sorted, place, place+1)
		}
		switch n := len(sorted); {
		case n >= few:
			most = max(most, sorted[(99*n+99)/100-1])
		case n > 0:
			most = max(most, mostOfDay(samples[first:next], days[first:next]))
		}
		if at >= now {
			return most
		}
	}
}

// daysOf is from when on (µs) a sample's day counts that ends with the sample: a calendar's day,
// or hour; for other windows a day, or the window, if that is shorter.
func daysOf(samples []Sample, w limit.Window) []int64 {
	days := make([]int64, len(samples))
	var start, next int64 // of the calendar's period
	for i, s := range samples {
		if w.Kind != limit.CalendarKind || w.Shortest() > day {
			days[i] = s.Hour - min(day, w.Shortest()) + 1
			continue
		}
		if s.Hour >= next {
			start, next = w.Calendar.Period(s.Hour)
		}
		days[i] = start
	}
	return days
}

// mostOfDay is the most that came in a sample's day, up to the sample.
func mostOfDay(samples []Sample, days []int64) (most int64) {
	first, sum := 0, int64(0)
	for i, s := range samples {
		for sum += s.Amount; samples[first].Hour < min(days[i], s.Hour); first++ {
			sum -= samples[first].Amount
		}
		most = max(most, sum)
	}
	return most
}

// peak is the highest amount of an hour since an instant.
func peak(samples []Sample, since int64) (most int64) {
	for _, s := range samples {
		if s.Hour > since {
			most = max(most, s.Amount)
		}
	}
	return most
}

// within is what an hour's amount is within a span of at most an hour, rounded up.
func within(amount, span int64) int64 {
	high, low := bits.Mul64(uint64(amount), uint64(span)) //nolint:gosec // none is negative
	low, carry := bits.Add64(low, uint64(hour-1), 0)
	quotient, _ := bits.Div64(high+carry, low, uint64(hour))
	return int64(quotient) //nolint:gosec // at most the amount
}
