package redisstore

import (
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/limit"
)

// divides reports whether the run needs to count shares.
func (b *batch) divides() bool {
	return (b.mode == deciding || b.mode == looking || b.mode == importing) && slices.ContainsFunc(b.Limits, func(l limit.Limit) bool { return len(l.Shares) > 0 })
}

// registered returns the registry with names that a script listed, and the names beyond
// the first known ones.
func (r registry) registered(names []string, known int) (registry, []string) {
	all := slices.Clone(r.names)
	for _, name := range names {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return newRegistry(all, r.patterns), all[known:]
}

// shared is a divided limit's refusal: the scores that must return until each stage is met,
// as shares.lua has them, and what is kept for each share.
type shared struct {
	met  []int64
	kept []int64
}

// readShared reads "score,… kept,…".
func readShared(l limit.Limit, found string) (s shared, ok bool) {
	met, kept, ok := strings.Cut(found, " ")
	if !ok {
		return s, false
	}
	for _, one := range strings.Split(met, ",") {
		ok = ok && within(-1, maxWhole)(one)
		s.met = append(s.met, number(one))
	}
	for _, one := range strings.Split(kept, ",") {
		ok = ok && count(one)
		s.kept = append(s.kept, number(one))
	}
	return s, ok && len(s.met) == 2+len(l.Lapses()) && len(s.kept) == len(l.Shares)
}

// fits is when an item with a lease fits the limit, if it is refused at now.
func (s shared) fits(l limit.Limit, lease, now int64) int64 {
	if l.Window.Kind != limit.CalendarKind {
		return l.Window.Returns(slices.Max(s.met))
	}
	starts := make([]int64, len(s.met))
	for k, score := range s.met {
		switch {
		case score < 0:
			starts[k] = limit.Never
		case score == 0:
			starts[k] = now
		default:
			starts[k] = l.Window.Returns(score)
		}
	}
	return l.FitsFirst(now, lease, starts)
}
