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

func newLedger(limits []limit.Limit, now int64) *ledger {
	l := &ledger{now: now, claims: map[caller][]claim{}}
	for place, one := range limits {
		l.counters = append(l.counters, newCounter(one, place, now))
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

// row counts an entry of the store's ledger, which finishes at an instant.
func (l *ledger) row(row *Row, finish int64) {
	for _, one := range l.of(row.Operation, row.Job) {
		kind := one.counter.limit.Window.Kind
		if kind == limit.Bucket || kind == limit.Concurrent && !row.Open {
			continue
		}
		amount := row.Units
		if one.counter.limit.Counts == limit.CountCalls {
			amount = row.Calls
		}
		one.counter.load(counted{score: finish, lease: row.Score, amount: amount, share: int32(one.share)}) //nolint:gosec // at most limit.MaxShares
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
	needs []driver.Need // of the operations; one for a call, or for several alike
	floor int64
	lasts int64 // µs: how long the call may count before it finishes; 0: it is no reservation
	own   *hold // from which the call draws
	span  int64 // of a hold: limits of shorter windows do not count it; 0: a call
	// look: nothing is reserved, so that limits on open reservations do not count it.
	look bool
	// beside, of a look: limits that count a hold of this span (µs) are left out; 0: none are.
	beside int64
}

// several reports whether a look is for more than one call. See [budget.Budget.Room], which
// then sees the present only.
func (q *ask) several() bool {
	return q.look && (q.beside > 0 || len(q.needs) > 1 || q.needs[0].Calls != 1 || q.needs[0].Operation == "")
}

// counts reports whether a limit counts the question.
func (q *ask) counts(l *limit.Limit) bool {
	switch {
	case q.span > 0:
		return driver.CountsHold(*l, q.span)
	case q.look:
		return l.Window.Kind != limit.Concurrent && (q.beside == 0 || !driver.CountsHold(*l, q.beside))
	}
	return l.Window.Kind != limit.Concurrent || q.lasts > 0
}

// taken is what the question takes of one limit.
type taken struct {
	claim
	whole  int64
	amount int64 // of it, what it does not draw from its hold
	drawn  bool  // it draws all
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
			list = append(list, taken{claim: one, amount: amount, whole: amount})
		}
	}
	if len(q.needs) > 1 {
		slices.SortFunc(list, func(a, b taken) int { return cmp.Compare(a.counter.place, b.counter.place) })
	}
	if q.own != nil {
		for i := range list {
			list[i].draw(q)
		}
	}
	return list
}

// draw takes what the question draws off the amount, if its hold counts in the limit.
func (t *taken) draw(q *ask) {
	lim := t.counter.limit
	if driver.CountsHold(lim, q.own.Span) && slices.ContainsFunc(q.own.Left, func(n driver.Need) bool { return lim.Covers(n.Operation) }) {
		t.amount -= driver.AmountOf(lim, []driver.Need{q.own.draw(q.needs[0])})
		t.drawn = t.amount == 0
	}
}

// lacks is what the question lacks in one limit at an instant, now or later, at which so much
// counts and is held; 0: it fits.
func (l *ledger) lacks(q *ask, t *taken, at int64, counts, held usage) int64 {
	c := t.counter
	lim := &c.limit
	if t.drawn { // what is held falls as it is charged
		return max(0, counts.used+t.whole-lim.Bound(0, false))
	}
	short := counts.used + held.used + t.amount - lim.Bound(q.floor, false)
	if len(lim.Shares) == 0 {
		return max(0, short)
	}
	room := lim.Bound(0, false) - held.used - t.amount
	short = max(short, counts.used+kept(c.inForce(at), counts, held, t.share)-room)
	if lim.Window.Kind != limit.CalendarKind || at == l.now && q.several() {
		return max(0, short)
	}
	if cut := c.nextCut(at); at+q.lasts > cut { // it will count in the next period too
		later := c.after(cut, l.now)
		short = max(short, later.used+kept(c.guarantees, later, held, t.share)-room)
	}
	return max(0, short)
}

// decide says whether a question fits now; nil: it does. It advances the limits to the instant.
func (l *ledger) decide(q *ask, now int64, scratch *[]taken) *refused {
	l.advance(now)
	*scratch = l.takes(q, *scratch)
	var no, bucket *refused
	for i := range *scratch {
		t := &(*scratch)[i]
		if t.counter.limit.Observe || q.several() && t.whole == 0 {
			continue
		}
		held := l.held(t.counter)
		short := l.lacks(q, t, now, t.counter.usage, held)
		if short == 0 {
			continue
		}
		switch one := l.refusal(q, t, short, held); {
		case one.multi:
			bucket = cmp.Or(bucket, one)
		case no == nil || one.at > no.at:
			no = one
		}
	}
	if no == nil { // else the wait for several calls is for the limits that could hold them
		no = bucket
	}
	if lock := l.locked(q, *scratch); lock != nil && (no == nil || no.multi || lock.at >= no.at) {
		no = lock
	}
	if no != nil && no.at < limit.Never && !no.multi {
		l.together(q, *scratch, no)
	}
	return no
}

// locked is the refusal by the lock that ends last.
func (l *ledger) locked(q *ask, list []taken) (no *refused) {
	for i := range l.locks {
		if lock := &l.locks[i]; lock.Until > l.now && (no == nil || lock.Until > no.at) && l.applies(lock.Limit, q, list) {
			no = &refused{limit: lock.Limit, at: lock.Until, lock: true, closed: lock, soonest: lock.Until}
		}
	}
	return no
}

// applies reports whether a lock refuses a question: a lock of the budget, or of a limit that
// counts the question. A look for several calls is refused by those of all its limits.
func (l *ledger) applies(lock string, q *ask, list []taken) bool {
	locks := func(c *counter) bool { return c.limit.Name == lock && !c.limit.Observe }
	if lock == "" || slices.ContainsFunc(list, func(t taken) bool { return locks(t.counter) }) {
		return true
	}
	return q.several() && slices.ContainsFunc(q.needs, func(n driver.Need) bool {
		return slices.ContainsFunc(l.of(n.Operation, q.job), func(one claim) bool { return locks(one.counter) })
	})
}

// take charges what fits, to finish at an instant; lease is the end of its lease.
func (l *ledger) take(q *ask, list []taken, finish, lease int64) {
	for i := range list {
		t := &list[i]
		if t.counter.limit.Window.Kind == limit.Concurrent && finish <= l.now {
			continue
		}
		t.counter.charge(counted{score: finish, lease: lease, amount: t.whole, share: int32(t.share)}) //nolint:gosec // at most limit.MaxShares
	}
	if q.own != nil {
		q.own.take(q.own.draw(q.needs[0]))
	}
	for i := range list {
		list[i].counter.note(l.now, l.held(list[i].counter).used)
	}
}
