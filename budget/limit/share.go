package limit

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Share is the part of a limit that is guaranteed to some jobs: a call fits a divided limit
// if what is used, its units, and what other shares are guaranteed and have not used are
// together at most the bound. So a share is admitted within its guarantee whatever the
// others do, and alone it reaches the limit less what the others are guaranteed and have
// not spent.
type Share struct {
	Name string
	// Jobs are the labels of the charges that belong to the share: names and "prefix.*".
	Jobs []string
	// Guarantee is what is always there for these jobs, in what the limit counts.
	Guarantee int64
	// Lapse is how long before a calendar's reset the guarantee ends, in µs; 0: never.
	Lapse int64
	// Plan: the guarantee is no more than what records beside the ledger say that the jobs
	// may still need. A store adds these as Planned; there it is for no one else to set.
	Plan    bool      `json:",omitempty"`
	Planned []Planned `json:"-"`
}

// Has reports whether the charges of a job belong to the share; those without a job
// belong to none.
func (s Share) Has(job string) bool {
	return job != "" && slices.ContainsFunc(s.Jobs, func(pattern string) bool { return MatchOperation(pattern, job) })
}

// ShareOf is the index of the share that a job's charges belong to; −1: none.
func (l Limit) ShareOf(job string) int {
	return slices.IndexFunc(l.Shares, func(s Share) bool { return s.Has(job) })
}

// Guarantees is what each share is guaranteed while no guarantee has lapsed. If the limit
// is lower than their sum, they are scaled down in proportion, rounded down.
func (l Limit) Guarantees() []int64 {
	list, sum := make([]int64, len(l.Shares)), int64(0)
	for i, s := range l.Shares {
		list[i] = s.Guarantee
		sum += s.Guarantee
	}
	if sum > l.Limit {
		for i := range list {
			list[i] = scale(list[i], l.Limit, sum)
		}
	}
	return list
}

// scale is a × b ÷ c, rounded down; a ≤ c.
func scale(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b)) //nolint:gosec // none is negative
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(quotient) //nolint:gosec // at most b
}

// InForce is what each share is guaranteed at an instant: Guarantees without those that
// have lapsed, and no more than the records of those that lapse by plan say. A calendar's
// guarantees come back when its used units do: after the reset, and after the guard.
func (l Limit) InForce(at int64) []int64 {
	list := l.Guarantees()
	for i, s := range l.Shares {
		if most, ok := s.planned(at); ok {
			list[i] = min(list[i], most)
		}
		if lapses, ok := l.LapsesAt(i, at); ok && at >= lapses {
			list[i] = 0
		}
	}
	return list
}

// NeverFits reports whether an amount, in what the limit counts, can fit it at no time:
// not even when nothing is used and every guarantee has lapsed that may lapse before the
// call counts in the next period, or by plan. The call belongs to the share with the index own (−1:
// none), and its lease is in µs.
func (l Limit) NeverFits(amount, floor int64, useHeadroom bool, own int, lease int64) bool {
	if amount > l.Bound(floor, useHeadroom) {
		return true
	}
	room := l.Bound(0, useHeadroom) - amount
	guarantees := l.Guarantees()
	fits := func(beyond int64) bool { // with the guarantees in force that lapse later than that before the reset
		kept := int64(0)
		for i, s := range l.Shares {
			if i != own && !s.Plan && (beyond <= 0 || s.Lapse < beyond) {
				kept += guarantees[i]
			}
		}
		return kept <= room
	}
	return !fits(0) && !slices.ContainsFunc(l.Lapses(), func(lapse int64) bool {
		return lapse > lease+l.Window.Guard && fits(lapse)
	})
}

// CanDivide reports whether the limit's kind can have shares: a rolling or a calendar
// limit.
func (l Limit) CanDivide() bool { return l.Window.Kind == Rolling || l.Window.Kind == CalendarKind }

// validateShares returns the first error found in the shares.
func (l Limit) validateShares() error {
	if len(l.Shares) > MaxShares {
		return fmt.Errorf("it has %d shares: use at most %d", len(l.Shares), MaxShares)
	}
	if n := len(l.Lapses()); n > MaxLapses {
		return fmt.Errorf("its guarantees lapse at %d different times: use at most %d", n, MaxLapses)
	}
	for i, s := range l.Shares {
		switch {
		case !l.CanDivide():
			return fmt.Errorf("share %s: only a rolling or a calendar limit can be divided", s.Name)
		case s.Guarantee < 0 || s.Guarantee > MaxUnits:
			return fmt.Errorf("share %s: a guarantee of %d: use 0 to %d", s.Name, s.Guarantee, MaxUnits)
		case s.Plan && s.Lapse != 0:
			return fmt.Errorf("share %s: it lapses both by plan and at a time: use one", s.Name)
		case s.Lapse < 0 || s.Lapse > 0 && l.Window.Kind != CalendarKind:
			return fmt.Errorf("share %s: a lapse of %d µs: use 0, or more in a calendar", s.Name, s.Lapse)
		case s.Lapse > 0 && s.Lapse >= l.Window.Calendar.shortest()-l.Window.Guard:
			return fmt.Errorf("share %s: a lapse of %s before each reset: use less than %s", s.Name, spanOf(s.Lapse), l.Window.lapseBound())
		case len(s.Jobs) == 0:
			return fmt.Errorf("share %s: it has no jobs", s.Name)
		}
		for _, other := range l.Shares[:i] {
			if a, b, both := s.Overlaps(other); both {
				return fmt.Errorf("shares %s and %s: a job can match both %q and %q: a job belongs to one share of a limit", other.Name, s.Name, b, a)
			}
		}
	}
	return nil
}

// MaxShares is how many shares a limit may have, and MaxLapses at how many different times
// before a reset their guarantees may lapse.
const (
	MaxShares = 64
	MaxLapses = 8
)

// Overlaps reports whether one job can belong to both shares, and by which of their
// patterns.
func (s Share) Overlaps(other Share) (pattern, others string, both bool) {
	for _, a := range s.Jobs {
		for _, b := range other.Jobs {
			if PatternsOverlap(a, b) {
				return a, b, true
			}
		}
	}
	return "", "", false
}

// PatternsOverlap reports whether a name can match both patterns.
func PatternsOverlap(a, b string) bool {
	return MatchOperation(a, strings.TrimSuffix(b, "*")) || MatchOperation(b, strings.TrimSuffix(a, "*"))
}

// spanOf is a span in µs for people.
func spanOf(us int64) string { return SpanText(time.Duration(us) * time.Microsecond) }
