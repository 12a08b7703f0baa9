package rate

import (
	"math"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
)

// FewestCharges is how many charges it takes to speak of a rate.
const FewestCharges = 3

// Spans in µs.
const (
	hour = int64(time.Hour / time.Microsecond)
	day  = 24 * hour
	// profile is how far back Hours are needed to know when units of a rolling window
	// return; what is older is taken to return evenly.
	profile = 2 * day
)

// Rate is how fast a limit is spent, and what follows if that goes on. Amounts are in what the
// limit counts.
type Rate struct {
	PerHour float64 // to a thousandth
	Charges int64   // of how many charges that is known, FewestCharges or more
	Since   time.Time
	// EmptyAt is when nothing is left, to a second; zero: the limit resets before, or never
	// runs out at this rate. It is now if nothing is left.
	EmptyAt time.Time
	// ResetsAt is when a calendar's limit resets; zero for the other kinds.
	ResetsAt time.Time
}

// Use is what is known of a limit at an instant. Instants are in µs, amounts in what the limit
// counts.
type Use struct {
	Limit limit.Limit
	Now   int64
	Used  int64
	Left  int64 // what may still be spent: less than the limit − Used if some is held
	// NextReturn is when the first part of Used returns; 0: not known.
	NextReturn int64
	// Amount and Charges are what was charged from Since to Now.
	Since, Amount, Charges int64
	// Hours are what was charged in each hour, drift and recovered units included, from the
	// hour that begins at First on. Only rolling windows of an hour or more need them.
	First int64
	Hours []Hour
}

// Hour is what was charged in the hour that begins at an instant (µs).
type Hour struct{ Begin, Amount int64 }

// length is that of the window, or of a calendar's period at an instant; 0 for buckets and
// open reservations. In µs.
func length(w limit.Window, at int64) int64 {
	if w.Calendar != nil {
		start, next := w.Calendar.Period(at)
		return next - start
	}
	return w.Length
}

// Span is how far back (µs) lately goes at an instant (µs); 0: the limit has no rate. One of
// an hour or more is meant to begin with a whole hour.
func Span(w limit.Window, at int64) int64 {
	switch n := length(w, at); {
	case w.Kind == limit.Concurrent:
		return 0
	case w.Kind == limit.Bucket:
		return hour
	case n < hour:
		return n
	default:
		return min(max(n/4, hour), day)
	}
}

// Lookback is how far back (µs) the hours are needed at an instant (µs); 0: the limit has no
// rate.
func Lookback(w limit.Window, at int64) int64 {
	span := Span(w, at)
	switch {
	case span == 0:
		return 0
	case w.Kind == limit.Rolling:
		return max(span, hour, min(w.Length, profile))
	}
	return max(span, hour)
}

// Of is the rate of a limit; nil: it has none, or too little was charged to know.
func Of(u Use) *Rate {
	w := u.Limit.Window
	if w.Kind == limit.Concurrent || u.Charges < FewestCharges || u.Amount < 0 || u.Now <= u.Since {
		return nil
	}
	perHour := float64(u.Amount) / float64(u.Now-u.Since) * float64(hour)
	r := &Rate{PerHour: math.Round(perHour*1000) / 1000, Charges: u.Charges, Since: time.UnixMicro(u.Since).UTC()}
	until := int64(math.MaxInt64)
	if w.Calendar != nil {
		_, next := w.Calendar.Period(u.Now)
		until = next + w.Guard
		if _, guarded, yes := w.InGuard(u.Now); yes {
			until = guarded
		}
		r.ResetsAt = time.UnixMicro(until).UTC()
	}
	if at, empty := u.empty(perHour / float64(hour)); empty && at < until {
		r.EmptyAt = time.UnixMicro(at).UTC().Round(time.Second)
		if now := time.UnixMicro(u.Now).UTC(); r.EmptyAt.Before(now) {
			r.EmptyAt = now
		}
	}
	return r
}

// empty is the instant (µs) at which nothing is left at a rate per µs; false: never.
func (u Use) empty(rate float64) (at int64, empty bool) {
	w := u.Limit.Window
	switch {
	case u.Left <= 0:
		return u.Now, true
	case rate <= 0:
		return 0, false
	case w.Kind == limit.Rolling:
		return u.outruns(rate)
	case w.Kind == limit.Bucket:
		amount, period := w.Refill.Rate()
		if rate -= float64(amount) / float64(period); rate <= 0 {
			return 0, false
		}
	}
	return after(u.Now, float64(u.Left)/rate)
}

// farthest is the longest forecast, in µs.
const farthest = 366 * day

// after is the instant a span after another, both in µs; false: that is too far away.
func after(now int64, span float64) (at int64, near bool) {
	if span > float64(farthest) {
		return 0, false
	}
	return now + int64(math.Round(span)), true
}
