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
	return s, ok && len(s.met) == 2+len(l.Lapses())+len(l.Spells()) && len(s.kept) == len(l.Shares)
}

// wait is how an item with a lease waits for the limit.
func (s shared) wait(l limit.Limit, lease, now int64) limit.Wait {
	w := limit.Wait{Limit: l, Now: now, Refused: s.refused, Lease: lease}
	starts := make([]int64, len(s.met))
	for i, score := range s.met {
		switch starts[i] = now; {
		case score < 0: // what is held is too much
			starts[i] = limit.Never
		case score > 0:
			starts[i] = l.Window.Returns(score)
		}
	}
	whole := 2 + len(l.Lapses()) // the last of these is what a floor leaves
	for k, spell := range l.Spells() {
		w.Spells = append(w.Spells, limit.SpellWait{Until: spell.Until, Start: max(starts[whole+k], starts[whole-1])})
	}
	if l.Window.Kind == limit.CalendarKind {
		w.Starts = starts[:whole:whole]
		return w
	}
	w.At = slices.Max(starts[:whole])
	return w
}
