package sqlitestore

import "github.com/quotactl/quotactl/budget/limit"

// counting is a limit with the totals of its window.
type counting struct {
	l     *ledger
	limit limit.Limit
	w     *window        // nil for a bucket
	next  *window        // what a calendar will count after its reset, if the limit checks that; else nil
	m     *meter         // for a bucket; else nil
	ops   map[int64]bool // a cache: whether the limit counts an operation

	shares map[int64]int // a cache: the share of a pair, by its number
}

func newCounting(l *ledger, lim limit.Limit) *counting {
	v := &counting{l: l, limit: lim, ops: map[int64]bool{}}
	if lim.Window.Kind == limit.Bucket {
		v.m = l.meters[lim.Meter()]
	} else {
		v.w = l.windows[lim.Window.Key()]
		if lim.ChecksNext() {
			v.next = l.windows[lim.Window.AfterReset().Key()]
		}
	}
	return v
}

// sees reports whether the limit counts the entries of a lane.
func (v *counting) sees(lane int64) bool {
	if !covered(v.limit, lane) {
		return false
	}
	if v.limit.CoversAll() && !v.l.pseudo {
		return true
	}
	op := lane / classes
	covers, known := v.ops[op]
	if !known {
		covers = v.l.covers(v.limit, op)
		v.ops[op] = covers
	}
	return covers
}

// of returns the one of both sums that the limit counts.
func (v *counting) of(units, calls int64) int64 {
	if v.limit.Counts == limit.CountCalls {
		return calls
	}
	return units
}

// used is what the limit has used at the instant that its window was advanced to, or for a
// bucket at the last instant seen.
func (v *counting) used() int64 {
	if v.m != nil {
		return v.m.levelAt(v.l.last).Used
	}
	return v.sum(v.w)
}

// charged is the units of all charges in the limit's window, except pseudo-operations,
// whichever operations the limit covers.
func (v *counting) charged() int64 {
	sum := v.w.units
	for lane, t := range v.w.lanes {
		if v.l.pseudo && limit.IsPseudo(v.l.opNames[lane/classes]) {
			sum -= t.units
		}
	}
	return sum
}
