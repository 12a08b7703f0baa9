package plan

import (
	"cmp"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// ledger is a budget in fake time. It decides by the rules of package limit, as the stores do:
// each limit on its own, all or nothing. It writes nothing and forgets what has expired.
type ledger struct {
	now        int64
	counters   []*counter
	locks      []driver.LockView
	holds      []*hold
	running    int // runs under way
	deferred   []*deferred
	catchingUp bool  // a caught-up pass is under way
	looking    bool  // somebody looks at the deferred passes
	byPlan     bool  // a guarantee lapses by plan
	looks      int64 // when the deferred passes are looked at next; 0: nobody does
	claims     map[caller][]claim
}

// caller is what decides which limits a call counts in, and as whose.
type caller struct{ operation, job string }

// claim is a limit that a caller's calls count in, and the caller's share of it (−1: none).
type claim struct {
	counter *counter
	share   int
}

// hold is what a pass, or a run, keeps for itself.
type hold struct {
	driver.Hold
	job string
}

func newLedger(limits []limit.Limit, now int64) *ledger {
	l := &ledger{now: now, claims: map[caller][]claim{}}
	for _, one := range limits {
		l.counters = append(l.counters, newCounter(one, now))
	}
	return l
}

// of are the limits that count an operation, as a job calls it.
func (l *ledger) of(operation, job string) []claim {
	key := caller{operation, job}
	list, known := l.claims[key]
	if !known {
		for _, c := range l.counters {
			if operation == "" && (!c.limit.CoversAll() || c.limit.Counts == limit.CountCalls) { // one unit of no operation
				continue
			}
			if operation == "" || c.limit.Covers(operation) {
				list = append(list, claim{c, c.limit.ShareOf(job)})
			}
		}
		l.claims[key] = list
	}
	return list
}

// row counts an entry of the store's ledger.
func (l *ledger) row(row *Row) {
	for _, one := range l.of(row.Operation, row.Job) {
		kind := one.counter.limit.Window.Kind
		if kind == limit.Bucket || kind == limit.Concurrent && !row.Open {
			continue
		}
		amount := row.Units
		if one.counter.limit.Counts == limit.CountCalls {
			amount = row.Calls
		}
		one.counter.load(counted{score: row.Score, lease: row.Score, amount: amount, share: int32(one.share)}) //nolint:gosec // at most limit.MaxShares
	}
}

// advance brings all limits to an instant.
func (l *ledger) advance(now int64) {
	l.now = now
	for _, c := range l.counters {
		c.advance(now)
	}
}

// ask is a question: do so many units and calls of operations fit now?
type ask struct {
	job   string
	needs []driver.Need // of the operations; one for a call
	floor int64
	lasts int64 // µs: how long the call may count before it finishes, for the next period
	own   *hold // from which the call draws
	span  int64 // of a hold: limits of shorter windows do not count it; 0: a call
	// look: nothing is reserved, so that limits on open reservations do not count it.
	look bool
	// beside, of a look: limits that count a hold of this span (µs) are left out; 0: none are.
	beside int64
}

// refused is why something does not fit.
type refused struct {
	limit string // empty: a lock of the budget
	// at is the first instant at which it fits if nothing else happens; limit.Never: at none.
	at    int64
	short int64 // what it lacks in that limit now
	held  bool  // passes hold something of the limit
	lock  bool
	// multi: a bucket has too little for several calls; next is when it has more, and last
	// when it last has more before an instant.
	multi bool
	next  int64
	last  func(before int64) int64
	never bool // it can never fit
	// soonest is the first instant at which it may fit if what is under way ends at once.
	soonest int64
}

// counts reports whether a limit counts the question.
func (q *ask) counts(l *limit.Limit) bool {
	switch {
	case q.span > 0:
		return driver.CountsHold(*l, q.span)
	case q.look:
		return l.Window.Kind != limit.Concurrent && (q.beside == 0 || !driver.CountsHold(*l, q.beside))
	}
	return true
}

// taken is what the question takes of one limit.
type taken struct {
	claim
	amount int64 // without what it draws
	whole  int64
}

// takes is what the question takes of each limit that counts it, in the limits' order.
func (l *ledger) takes(q *ask, list []taken) []taken {
	list = list[:0]
	for i := range q.needs {
		n := &q.needs[i]
		for _, one := range l.of(n.Operation, q.job) {
			if !q.counts(&one.counter.limit) {
				continue
			}
			amount := n.Units
			if one.counter.limit.Counts == limit.CountCalls {
				amount = n.Calls
			}
			if at := slices.IndexFunc(list, func(t taken) bool { return t.counter == one.counter }); at >= 0 {
				list[at].amount, list[at].whole = list[at].amount+amount, list[at].whole+amount
				continue
			}
			list = append(list, taken{one, amount, amount})
		}
	}
	if q.own != nil {
		for i := range list {
			if t := &list[i]; driver.CountsHold(t.counter.limit, q.own.Span) {
				t.amount -= driver.AmountOf(t.counter.limit, []driver.Need{q.own.draw(q.needs[0])})
			}
		}
	}
	return list
}

// draw is what a call, or several alike, take from a hold.
func (h *hold) draw(n driver.Need) driver.Need {
	draw := driver.Need{Operation: n.Operation}
	for _, left := range h.Left {
		if left.Operation == n.Operation {
			draw.Units, draw.Calls = min(n.Units, left.Units), min(n.Calls, left.Calls)
		}
	}
	return draw
}

// held is what all holds have left in a limit, and those of each share's jobs.
func (l *ledger) held(c *counter) (sum int64, shares []int64) {
	shares = make([]int64, len(c.shares))
	for _, h := range l.holds {
		amount := h.Amount(c.limit)
		sum += amount
		if i := c.limit.ShareOf(h.job); i >= 0 {
			shares[i] += amount
		}
	}
	return sum, shares
}

// fits reports whether the question fits one limit now, and what it lacks.
func (l *ledger) fits(q *ask, t *taken) (short int64) {
	c := t.counter
	used, lim := c.usedNow(), &c.limit
	var held int64
	var heldBy []int64
	if len(l.holds) > 0 {
		held, heldBy = l.held(c)
	}
	if t.amount == 0 && q.own != nil { // it draws all: what is held falls as it is charged
		return max(0, used+t.whole-lim.Bound(0, false))
	}
	short = used + held + t.amount - lim.Bound(q.floor, false)
	if len(lim.Shares) > 0 {
		short = max(short, l.sharesShort(q, t, used, held, heldBy))
	}
	return max(0, short)
}

// sharesShort is what the question lacks in a divided limit, beside what is guaranteed to
// others; if it may count in the next period too, it must fit there under full guarantees.
func (l *ledger) sharesShort(q *ask, t *taken, used, held int64, heldBy []int64) int64 {
	c := t.counter
	if heldBy == nil {
		heldBy = make([]int64, len(c.shares))
	}
	if t.amount == 0 && t.whole > 0 {
		return 0
	}
	room := c.limit.Bound(0, false) - t.amount - held
	short := used + kept(c.limit.InForce(l.now), c.shares, heldBy, t.share) - room
	if after := c.limit.Window.AfterReset(); c.limit.Window.Kind == limit.CalendarKind && q.lasts > 0 && l.now+q.lasts > after.Cut(l.now) {
		later, shares := int64(0), make([]int64, len(c.shares))
		for i, cut := len(c.queue)-1, after.Cut(l.now); i >= c.head && c.queue[i].ends(l.now) > cut; i-- {
			later += c.queue[i].amount
			if c.queue[i].share >= 0 {
				shares[c.queue[i].share] += c.queue[i].amount
			}
		}
		short = max(short, later+kept(c.limit.Guarantees(), shares, heldBy, t.share)-room)
	}
	return short
}

// decide says whether a question fits now; nil: it does. It advances the limits to the instant.
func (l *ledger) decide(q *ask, now int64, scratch *[]taken) *refused {
	l.advance(now)
	*scratch = l.takes(q, *scratch)
	var no, bucket *refused
	for i := range *scratch {
		t := &(*scratch)[i]
		if t.counter.limit.Observe {
			continue
		}
		short := l.fits(q, t)
		if short == 0 {
			continue
		}
		switch one := l.refusal(q, t, short); {
		case one.multi:
			bucket = cmp.Or(bucket, one)
		case no == nil || one.at > no.at:
			no = one
		}
	}
	if no == nil { // else the wait for several calls is for the limits that could hold them
		no = bucket
	}
	if lock := l.locked(*scratch); lock != nil && (no == nil || lock.at > no.at) {
		no = lock
	}
	if no != nil && !no.lock && no.at < limit.Never {
		l.together(q, *scratch, no)
	}
	return no
}

// locked is the refusal by the lock that ends last.
func (l *ledger) locked(list []taken) (no *refused) {
	for _, lock := range l.locks {
		applies := lock.Limit == "" || slices.ContainsFunc(list, func(t taken) bool { return t.counter.limit.Name == lock.Limit && !t.counter.limit.Observe })
		if applies && lock.Until > l.now && (no == nil || lock.Until > no.at) {
			no = &refused{limit: lock.Limit, at: lock.Until, lock: true, soonest: lock.Until}
		}
	}
	return no
}

// take charges what fits, to finish at an instant.
func (l *ledger) take(q *ask, list []taken, finish, lease int64) {
	for i := range list {
		t := &list[i]
		score := finish
		if t.counter.limit.Window.Kind == limit.Concurrent && finish <= l.now {
			continue
		}
		t.counter.charge(counted{score: score, lease: lease, amount: t.whole, share: int32(t.share)}) //nolint:gosec // at most limit.MaxShares
	}
	if q.own != nil {
		draw := q.own.draw(q.needs[0])
		for i := range q.own.Left {
			if left := &q.own.Left[i]; left.Operation == draw.Operation {
				left.Units, left.Calls = left.Units-draw.Units, left.Calls-draw.Calls
			}
		}
	}
	for i := range list {
		held := int64(0)
		if len(l.holds) > 0 {
			held, _ = l.held(list[i].counter)
		}
		list[i].counter.note(l.now, held)
	}
}
