package budget

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/internal/suggest"
)

// Tightest is the limit with the smallest part left, and how much that is.
type Tightest struct {
	LimitStatus
	// Left is neither used nor held nor kept for shares, in what the limit counts; 0 while it
	// is locked.
	Left int64
	// Lock closes the limit or the whole budget; of several locks it is the one that ends last, and
	// else what [Status.Recovering] says. It is nil if there is none.
	Lock *Lock
}

// Tightest is the limit that says what the budget has left. It is nil if the budget has no
// limits.
//
// Of the limits that cover an operation charged within their window, or of all if there is
// none, it is the one with the smallest part left, whatever it counts; a locked limit has
// nothing left. [limit.Window.Brief] windows are left out unless they are locked or the
// budget has no other, and limits in observe mode unless the budget has only those.
func (s Status) Tightest() *Tightest {
	var found *Tightest
	least := 0
	for _, l := range s.Limits {
		one := &Tightest{LimitStatus: l, Left: l.Remaining - l.Kept()}
		if lock, locked := s.LockOf(l.Name); locked && !l.Observe {
			one.Left, one.Lock = 0, &lock
		}
		if rank := one.rank(s.At); found == nil || rank < least || rank == least && one.compare(found) < 0 {
			found, least = one, rank
		}
	}
	if lock, locked := s.LockOf(""); found != nil && locked && !s.Observe {
		if found.Left = 0; found.Lock == nil || found.Lock.Until.Before(lock.Until) {
			found.Lock = &lock
		}
	}
	if found != nil && found.Lock == nil && !s.Recovering.IsZero() && !s.Observe {
		found.Left, found.Lock = 0, &Lock{Until: s.Recovering, Since: s.At, Why: recoveringWhy}
	}
	return found
}

// recoveringWhy is why nothing is left for sure after a loss.
const recoveringWhy = "the store has lost data; until all hosts have reported, each spends only its part of the headroom"

// rank is lower for limits that come first, however much they have left.
func (t *Tightest) rank(at time.Time) (rank int) {
	charged := t.Used > t.Drift || len(t.Held) > 0
	if t.Lock != nil { // while it is locked, nothing is charged to it
		charged = charged || t.CoversAll() || t.Window.Brief() || t.Lock.Since.UnixMicro() <= t.Window.Cut(at.UnixMicro())
	}
	if t.Observe {
		rank += 4
	}
	if t.Window.Brief() && t.Lock == nil {
		rank += 2
	}
	if !charged {
		rank++
	}
	return rank
}

// compare is below 0 if less is left of t than of other, or of neither anything and t gets
// something back later.
func (t *Tightest) compare(other *Tightest) int {
	open := func(t *Tightest) (part float64, back time.Time) { // shares may still take what is kept for them
		switch {
		case t.Lock != nil:
			return 0, t.Lock.Until
		case t.Remaining == 0:
			return 0, t.NextReturn
		}
		return float64(t.Remaining) / float64(t.Limit.Limit), time.Time{}
	}
	part, back := open(t)
	otherPart, otherBack := open(other)
	return cmp.Or(cmp.Compare(t.Part(), other.Part()), cmp.Compare(part, otherPart), otherBack.Compare(back))
}

// Part is which part of the limit is left, from 0 to 1.
func (t *Tightest) Part() float64 { return float64(t.Left) / float64(max(1, t.Limit.Limit)) }

// Empty reports whether nothing is left for anybody, shares included.
func (t *Tightest) Empty() bool { return t.Lock != nil || t.Remaining == 0 }

// Refuses reports whether the budget refuses calls; false if it only observes, or has no limits.
func (t *Tightest) Refuses() bool { return t != nil && (!t.Observe || t.Lock != nil) }

// Only is the status with the limits that have a name, or for per = "operation" that name
// before a colon, and that cover an operation; empty: any. Remaining is unchanged.
func (s Status) Only(name, operation string) Status {
	s.Limits = slices.DeleteFunc(slices.Clone(s.Limits), func(l LimitStatus) bool {
		return name != "" && l.Name != name && !strings.HasPrefix(l.Name, name+":") || operation != "" && !l.Covers(operation)
	})
	s.Locks = slices.DeleteFunc(slices.Clone(s.Locks), func(lock Lock) bool {
		return lock.Limit != "" && !slices.ContainsFunc(s.Limits, func(l LimitStatus) bool { return l.Name == lock.Limit })
	})
	return s
}

// Only narrows each status as [Status.Only] does, and leaves out those without a limit then. If none
// has one, the error names the limits.
func Only(list []Status, name, operation string) (narrow []Status, err error) {
	var known []string
	for _, s := range list {
		for _, l := range s.Limits {
			known = append(known, l.Name)
		}
		if s = s.Only(name, operation); len(s.Limits) > 0 {
			narrow = append(narrow, s)
		}
	}
	if len(narrow) > 0 {
		return narrow, nil
	}
	fault := "there is no limit " + name
	if operation != "" {
		fault = strings.TrimSpace("no limit "+name) + " covers operation " + operation
	}
	known = slices.Compact(slices.Sorted(slices.Values(known)))
	return nil, fmt.Errorf("%s; the limits are %s%s", fault, strings.Join(known, ", "), suggest.DidYouMean(name, known))
}

// Kept is how much of what is left of a limit is kept for its shares.
func (l *LimitStatus) Kept() (sum int64) {
	for _, s := range l.Shares {
		sum += s.Kept
	}
	return min(sum, l.Remaining)
}
