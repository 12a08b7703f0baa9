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

// shared is a divided limit's answer on an item: the scores that must return until each
// stage is met, as shares.lua has them, and what is kept for each share.
type shared struct {
	refused bool // else it fits now
	met     []int64
	kept    []int64
}

// readShared reads "score,… kept,…"; if the item fits now, behind "=".
func readShared(l limit.Limit, found string) (s shared, ok bool) {
	found, fits := strings.CutPrefix(found, "=")
	s.refused = !fits
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

// wait is how an item with a lease waits for the limit.
func (s shared) wait(l limit.Limit, lease, now int64) limit.Wait {
	w := limit.Wait{Limit: l, Now: now, Refused: s.refused, Lease: lease}
	switch {
	case l.Window.Kind == limit.CalendarKind:
	case slices.Contains(s.met, -1): // what is held is too much
		w.At = limit.Never
		return w
	default:
		w.At = l.Window.Returns(slices.Max(s.met))
		return w
	}
	for _, score := range s.met {
		start := now
		switch {
		case score < 0:
			start = limit.Never
		case score > 0:
			start = l.Window.Returns(score)
		}
		w.Starts = append(w.Starts, start)
	}
	return w
}
