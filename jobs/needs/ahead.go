package needs

import (
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/limit"
)

// Ahead is what a job may still need until an instant: so many whole passes, and runs besides.
// Each may be tried again so often that it takes Times as much.
type Ahead struct {
	Run    func(region string) Estimate
	Times  int64
	Passes int64      // of all regions
	Parts  [][]string // further passes, of these regions
}

// Add adds a pass of these regions; none are all.
func (a *Ahead) Add(regions []string) {
	if len(regions) == 0 {
		a.Passes++
		return
	}
	a.Parts = append(a.Parts, regions)
}

// Most is how much what is ahead comes to in a limit, in what it counts, of a job with these
// regions; false if the needs of a run are unknown. It is never above the largest int64.
func (a Ahead) Most(regions []string, l limit.Limit) (sum int64, known bool) {
	add := func(region string, times int64) bool {
		e := a.Run(region)
		if e.Source == Unknown || e.Source == "" {
			return false
		}
		sum = plus(sum, by(by(e.of(l), a.Times), times))
		return true
	}
	for _, region := range regions {
		if a.Passes > 0 && !add(region, a.Passes) {
			return 0, false
		}
	}
	for _, part := range a.Parts {
		for _, region := range part {
			if !add(region, 1) {
				return 0, false
			}
		}
	}
	return sum, true
}

// OfShare is what the jobs that a share names may still need together, at most [limit.MaxUnits],
// and their names, sorted; false if that of one is not known, or if one that the share names is
// not in the list.
func OfShare[J any](s *limit.Share, list []J, name func(J) string, mayNeed func(J) (int64, bool)) (sum int64, names []string, known bool) {
	known = true
	for _, j := range list {
		if !s.Has(name(j)) {
			continue
		}
		names = append(names, name(j))
		if known {
			var amount int64
			amount, known = mayNeed(j)
			sum = min(sum+min(amount, limit.MaxUnits), limit.MaxUnits)
		}
	}
	for _, pattern := range s.Jobs {
		if !strings.HasSuffix(pattern, "*") && !slices.Contains(names, pattern) {
			known = false
		}
	}
	slices.Sort(names)
	return sum, names, known && len(names) > 0
}

// of is how much an estimate comes to in a limit, in what it counts, leaving out the operations
// that it does not cover.
func (e Estimate) of(l limit.Limit) (sum int64) {
	for _, one := range e.Amounts {
		switch {
		case !l.Covers(one.Operation):
		case l.Counts == limit.CountCalls:
			sum = plus(sum, one.Calls)
		default:
			sum = plus(sum, one.Units)
		}
	}
	return sum
}

// by is a product of two numbers that are not negative, at most the largest int64.
func by(a, b int64) int64 {
	const most = 1<<63 - 1
	if b > 0 && a > most/b {
		return most
	}
	return a * b
}
