package budget

import (
	"cmp"
	"container/heap"
	"container/list"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// waitQueue keeps the waiters of a process in order of arrival, and decides whose turn
// it is. Waiters of one rank whose calls are checked against the same limits form one line; what
// is said here of limits is said of the shares of divided ones. Only the
// first of a line asks the store and sleeps until its units fit; its answer says how much
// room is left, and those behind it use that room in one step. So the work is linear in
// the number of waiters.
type waitQueue struct {
	// ask queues the calls of several waiters to be decided in one step, in their order.
	// It is called with mu held, and does not wait.
	ask  func([]*place) []chargeSeat
	host *hostLine // the waiters in other processes; nil: not known

	mu    sync.Mutex // guards all below
	came  int64      // how many waiters have entered so far
	lines []*line    // the lines that are not empty
	freed chan struct{}
}

// line holds the waiters of one rank whose calls are checked against the same limits.
type line struct {
	name   string
	rank   rank
	limits []string
	places list.List
	late   byDeadline // the waiters without a turn that have a deadline
	asking int        // how many ask the store now
	seen   *seen      // what the limits had used at the last grant; nil: unknown by now
	ahead  *sleep     // the sleep that holds up the waiters without a turn; nil: unknown
	held   *sleep     // the last one that did; nil: none
	heldTo int64      // it held up the waiters of the numbers up to this one
}

// place is one waiter's place.
type place struct {
	item     driver.Item
	until    time.Time // the caller's deadline; zero: none
	deadline time.Time // of the wait; zero: none

	number int64
	came   time.Time
	turns  chan turn // buffered, for one turn
	line   *line
	at     *list.Element // nil: it has left
	late   int           // its index in line.late, plus 1; 0: it is not there
	asking bool
	sleep  *sleep // set while it sleeps until its units fit

	ticket *ticket // its file, once it has waited
	looked bool    // whether waiters in other processes were looked for since it slept
	beside *sleep  // what it waits for there; nil: nothing
	look   time.Time
	next   int64 // the last two: when to look again, and hostLine.ahead's
}

// turn lets a waiter ask the store, or says in err why it need not wait any longer.
type turn struct {
	sooner <-chan struct{} // closed when units may have returned since
	asked  time.Time
	seat   *chargeSeat // set if the queue has asked for it already, together with others
	ahead  *sleep      // with err: the sleep that it waits behind; nil: unknown
	err    error
}

// sleep says what a waiter sleeps for.
type sleep struct {
	refused *RefusedError
	limit   string // the limit that binds; empty: the whole budget is locked
	until   time.Time
	soonest time.Time // the earliest that its units may fit; see Budget.Soonest
}

func newWaitQueue(ask func([]*place) []chargeSeat, host *hostLine) *waitQueue {
	return &waitQueue{ask: ask, host: host, freed: make(chan struct{})}
}

// free wakes the sleeping waiters, because a reservation was finished, or a lock or a hold
// was ended.
func (q *waitQueue) free() {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.freed)
	q.freed = make(chan struct{})
}

// enter puts p last in the line of its rank and of the limits that its call is checked against.
func (q *waitQueue) enter(p *place, limits []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name, of := strings.Join(limits, " "), rankOf(p.item)
	at := slices.IndexFunc(q.lines, func(l *line) bool { return l.name == name && l.rank == of })
	if at < 0 {
		at = len(q.lines)
		q.lines = append(q.lines, &line{name: name, rank: of, limits: limits})
	}
	q.came++
	p.came = time.Now()
	p.number, p.turns, p.line = q.came, make(chan turn, 1), q.lines[at]
	p.at = p.line.places.PushBack(p)
	p.line.waits(p)
	q.move()
}

// leave gives up a place. seen is what the limits had used when the call was granted;
// nil: it was not. It returns the last sleep that held up the place, its own or another's; nil:
// none did.
func (q *waitQueue) leave(p *place, seen *seen) (held *sleep) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.number <= p.line.heldTo {
		held = p.line.held
	}
	if seen != nil {
		p.line.seen = seen
	}
	q.remove(p)
	q.move()
	return held
}

// sleeps notes that p's call was refused and what p now sleeps for, by the limit that binds;
// empty: the whole budget is locked. False: p is not the
// first of its line and must wait for another turn.
func (q *waitQueue) sleeps(p *place, refused *RefusedError, limit string, soonest time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.line.asked(p)
	p.line.seen = nil
	first := p.line.first() == p
	if first {
		now := time.Now()
		p.sleep = &sleep{refused: refused, limit: limit, until: now.Add(refused.RetryAfter), soonest: now.Add(soonest)}
		q.host.show(p, p.sleep)
	} else {
		p.line.waits(p)
	}
	q.move()
	return first
}

// wakes notes that p is about to try again.
func (q *waitQueue) wakes(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.sleep, p.looked = nil, false
	p.line.seen = nil
	p.line.waits(p)
	q.move()
}

// turn returns when it is p's turn to ask. It has an error if the context ended, or at
// once if the waiter ahead sleeps past p's deadline.
func (q *waitQueue) turn(ctx context.Context, p *place) turn {
	select {
	case t := <-p.turns:
		return t
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case t := <-p.turns: // its call may have been sent already
		return t
	default:
		q.remove(p) // so that it gets no turn
		q.move()
		return turn{ahead: p.line.ahead, err: ctx.Err()}
	}
}

// move gives a turn to every waiter that need not wait for an earlier one. An earlier
// waiter goes first if it sleeps for a limit that counts the call too, or if both share a
// limit and the earlier one is asking or waits for one that asks. A waiter that sleeps
// for a limit that does not count the call does not hold it up, nor does one that leaves units
// to the call. q.mu is held.
func (q *waitQueue) move() {
	slices.SortFunc(q.lines, func(a, b *line) int { return cmp.Compare(a.first().number, b.first().number) })
	type earlier struct {
		asleep map[string]*sleep // the longest sleep, by limit
		taken  map[string]bool   // the limits that a line asks for
	}
	ranks := map[rank]earlier{}
	var free []*line
	for _, l := range q.lines {
		l.ahead = nil
		asks := false
		for other, e := range ranks {
			if other.yields(l.rank) {
				continue
			}
			l.ahead = longest(l.ahead, e.asleep[""])
			for _, limit := range l.limits {
				l.ahead = longest(l.ahead, e.asleep[limit])
				asks = asks || e.taken[limit]
			}
		}
		mine, known := ranks[l.rank]
		if !known {
			mine = earlier{map[string]*sleep{}, map[string]bool{}}
			ranks[l.rank] = mine
		}
		first := l.first()
		if first.sleep == nil && !first.asking {
			l.ahead = longest(l.ahead, q.ahead(first))
		}
		switch {
		case first.sleep != nil:
			mine.asleep[first.sleep.limit] = longest(mine.asleep[first.sleep.limit], first.sleep)
			l.ahead = longest(l.ahead, first.sleep)
		case l.ahead == nil:
			for _, limit := range l.limits {
				mine.taken[limit] = true
			}
			if !asks && l.asking == 0 {
				free = append(free, l)
			}
		}
		if l.ahead != nil {
			l.held, l.heldTo = l.ahead, q.came
		}
	}
	for _, l := range free {
		q.give(l)
	}
	for _, l := range slices.Clone(q.lines) {
		q.tooLate(l)
	}
}

// ahead is what the first of a line waits for in other processes. It looks again from time to
// time until that is nothing. q.mu is held.
func (q *waitQueue) ahead(first *place) *sleep {
	now := time.Now()
	if q.host == nil || first.looked && (first.beside == nil || first.look.After(now)) {
		return first.beside
	}
	n := 0
	first.looked = true
	if first.beside, n, first.next = q.host.ahead(first, first.line.limits); first.beside != nil {
		q.host.show(first, first.beside)
		until := first.beside.soonest.Sub(now)
		wait := min(max(until, -until/16, time.Duration(n)*lookEach), longLook)
		first.look = now.Add(wait)
		time.AfterFunc(wait, q.again)
	}
	return first.beside
}

// again looks whether waiters in other processes are gone.
func (q *waitQueue) again() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.move()
}

func longest(a, b *sleep) *sleep {
	if a == nil || b != nil && b.soonest.After(a.soonest) {
		return b
	}
	return a
}

// give lets the first of a line ask. If it is known what the limits have left, those
// behind it that fit too are decided with it, in one step of the store. Each of them asks
// for at least as much as the one before, so that none is granted if an earlier one is
// refused. q.mu is held.
func (q *waitQueue) give(l *line) {
	first := l.first()
	group := []*place{first}
	left := l.seen.room()
	l.seen = nil
	if left.take(first.item) {
		end := q.nextBeside(l)
		for at := first.at.Next(); at != nil && len(group) < driver.MaxBatch; at = at.Next() {
			p := at.Value.(*place)
			if p.number > end || q.host != nil && p.came.UnixNano() > first.next || p.item.Units < group[len(group)-1].item.Units || !left.take(p.item) {
				break
			}
			group = append(group, p)
		}
	}
	t := turn{sooner: q.freed, asked: time.Now()}
	var seats []chargeSeat
	if len(group) > 1 {
		seats = q.ask(group)
	}
	for i, p := range group {
		l.waitsNoMore(p)
		p.asking = true
		l.asking++
		if seats != nil {
			t.seat = &seats[i]
		}
		p.turns <- t
	}
}

// nextBeside is the number of the first waiter of another line that this line may not
// overtake. q.mu is held.
func (q *waitQueue) nextBeside(l *line) int64 {
	end := q.came
	for _, other := range q.lines {
		if other != l && !other.rank.yields(l.rank) && other.holdsUp(l) {
			end = min(end, other.first().number)
		}
	}
	return end
}

// holdsUp reports whether the line's waiters hold up later ones of another line.
func (l *line) holdsUp(other *line) bool {
	if l.ahead != nil {
		return l.ahead.limit == "" || slices.Contains(other.limits, l.ahead.limit)
	}
	return slices.ContainsFunc(l.limits, func(name string) bool { return slices.Contains(other.limits, name) })
}

// tooLate removes the waiters whose deadline comes before the waiter ahead of them can be
// served. q.mu is held.
func (q *waitQueue) tooLate(l *line) {
	for l.ahead != nil && len(l.late) > 0 && l.late[0].deadline.Before(l.ahead.soonest) {
		p := l.late[0]
		q.remove(p)
		p.turns <- turn{ahead: l.ahead, err: waitTooLong{}}
	}
}

// remove takes p out of its line. q.mu is held.
func (q *waitQueue) remove(p *place) {
	if p.at == nil {
		return
	}
	p.line.asked(p)
	p.line.waitsNoMore(p)
	p.ticket.drop()
	p.line.places.Remove(p.at)
	p.at = nil
	if p.line.places.Len() == 0 {
		q.lines = slices.DeleteFunc(q.lines, func(l *line) bool { return l == p.line })
	}
}

func (l *line) first() *place { return l.places.Front().Value.(*place) }

// asked notes that p no longer asks.
func (l *line) asked(p *place) {
	if p.asking {
		p.asking = false
		l.asking--
	}
}

// waits notes that p waits for its turn.
func (l *line) waits(p *place) {
	if !p.deadline.IsZero() {
		heap.Push(&l.late, p)
	}
}

// waitsNoMore notes that p has its turn, or has left.
func (l *line) waitsNoMore(p *place) {
	if p.late > 0 {
		heap.Remove(&l.late, p.late-1)
	}
}

// byDeadline is a heap of places, the one with the earliest deadline first.
type byDeadline []*place

func (h byDeadline) Len() int { return len(h) }

func (h byDeadline) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }

func (h byDeadline) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].late, h[j].late = i+1, j+1
}

// Push implements heap.Interface.
func (h *byDeadline) Push(x any) {
	p := x.(*place)
	*h = append(*h, p)
	p.late = len(*h)
}

// Pop implements heap.Interface.
func (h *byDeadline) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	p.late = 0
	return p
}
