package limit

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// Refill is the rate at which a bucket's meter drains: amount per period, in
// lowest terms.
type Refill struct {
	amount int64
	period int64 // µs
}

// maxExact is the largest integer that a store counting in floating point
// keeps exactly, and the largest product of a limit and a refill's period.
const maxExact = 1 << 53

// NewRefill makes a rate: amount per period. The amount is 1 to MaxUnits, in what the
// limit counts; the period is 1 µs to 366 days. In lowest terms the amount times the
// period in µs stays below 2^53.
func NewRefill(amount int64, period time.Duration) (Refill, error) {
	us := period.Microseconds()
	if amount < 1 || amount > MaxUnits || us < 1 || period > MaxWindow {
		return Refill{}, fmt.Errorf("a refill of %d per %s: use 1 to %d, per 1µs to %s", amount, period, MaxUnits, SpanText(MaxWindow))
	}
	common := gcd(amount, us)
	r := Refill{amount / common, us / common}
	if !exact(r.amount+1, r.period) {
		return Refill{}, fmt.Errorf("a refill of %d per %s is too fine to be counted exactly: use a rounder rate", amount, period)
	}
	return r, nil
}

// Rate is the amount and the period in µs, in lowest terms.
func (r Refill) Rate() (amount, period int64) { return r.amount, r.period }

func (r Refill) String() string {
	return fmt.Sprintf("%d/%s", r.amount, SpanText(time.Duration(r.period)*time.Microsecond))
}

// Level is how full a bucket is at an instant: Used − Part/period, where period is the
// refill's; 0 ≤ Part < period, and Part is 0 if Used is 0. Used is what counts as used:
// the level rounded up.
type Level struct {
	Used int64
	Part int64
	At   int64 // µs
}

// Drain is the level at a later instant; an earlier one changes nothing.
func (r Refill) Drain(l Level, at int64) Level {
	if at <= l.At {
		return l
	}
	whole, rest := (at-l.At)/r.period, (at-l.At)%r.period
	l.At = at
	if whole > l.Used/r.amount { // drained whole ≥ used + 1
		return Level{At: at}
	}
	part := l.Part + r.amount*rest
	l.Used -= r.amount*whole + part/r.period
	l.Part = part % r.period
	if l.Used <= 0 {
		return Level{At: at}
	}
	return l
}

// Add is the level after amount more. A negative amount returns a charge that was made
// age µs ago, except the most of it that can have drained since.
func (r Refill) Add(l Level, amount, age int64) Level {
	if amount >= 0 {
		l.Used += amount
		return l
	}
	back := r.Drain(Level{Used: -amount}, max(age, 0))
	l.Used, l.Part = l.Used-back.Used, l.Part-back.Part
	if l.Part < 0 {
		l.Used, l.Part = l.Used+1, l.Part+r.period
	}
	if l.Used <= 0 {
		return Level{At: l.At}
	}
	return l
}

// Reaches is the first instant (µs) at which no more than used counts as used, if nothing
// else happens. It is at most 2^53, in the year 2255.
func (r Refill) Reaches(l Level, used int64) int64 {
	if l.Used <= used {
		return l.At
	}
	hi, lo := bits.Mul64(uint64(l.Used-used), uint64(r.period))
	lo, borrow := bits.Sub64(lo, uint64(l.Part), 0)
	hi -= borrow
	lo, carry := bits.Add64(lo, uint64(r.amount-1), 0)
	hi += carry
	if hi >= uint64(r.amount) {
		return maxExact
	}
	wait, _ := bits.Div64(hi, lo, uint64(r.amount))
	if wait > uint64(maxExact-l.At) {
		return maxExact
	}
	return l.At + int64(wait)
}

// LevelFrom is the level at an instant (µs) at which so much counts as used, and at which one
// less does first at a later one, if nothing else happens: never less than it is, by less than
// drains in a microsecond.
func (r Refill) LevelFrom(used, at, falls int64) Level {
	l := Level{Used: used, At: at}
	hi, drained := bits.Mul64(uint64(r.amount), uint64(max(0, falls-at)))
	if used > 0 && falls > at && hi == 0 && drained < uint64(r.period) {
		l.Part = r.period - int64(drained) //nolint:gosec // below the period
	}
	return l
}

// Meter is the shape of a bucket: limits with the same Meter share one meter. It consists
// of the refill, what is counted, and a digest of the operations, and contains no spaces,
// commas, semicolons or '|'.
func (l Limit) Meter() string {
	sum := sha1.Sum([]byte(strings.Join(l.Operations, ","))) //nolint:gosec // see the import
	return fmt.Sprintf("b:%d:%d:%c:%s", l.Window.Refill.amount, l.Window.Refill.period, l.Counts[0], hex.EncodeToString(sum[:8]))
}

// Longest is an upper bound in µs of how long a charge counts in this limit. For a
// bucket, it is the time to drain from the limit to empty.
func (l Limit) Longest() int64 {
	if l.Window.Kind != Bucket {
		return l.Window.Longest()
	}
	r := l.Window.Refill
	return (l.Limit*r.period + r.amount - 1) / r.amount // exact, see checkBucket
}

// CheckBucket returns an error for a limit that a meter cannot count exactly, or that
// takes more than MaxWindow to drain.
func (l Limit) CheckBucket() error {
	r := l.Window.Refill
	bound := max(l.Limit, l.Quota)
	if !exact(bound+1, r.period) {
		return fmt.Errorf("%d times the refill's period of %d µs exceeds 2^53: use a rounder rate or a lower limit", bound, r.period)
	}
	if longest := l.Longest(); longest > MaxWindow.Microseconds() {
		return fmt.Errorf("at %s it takes %s to refill: use at most %s", r, SpanText(time.Duration(longest)*time.Microsecond), SpanText(MaxWindow))
	}
	return nil
}

// exact reports whether a product stays below 2^53.
func exact(a, b int64) bool {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return hi == 0 && lo < maxExact
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
