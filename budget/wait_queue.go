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

// waitQueue keeps the waiters of a process in the order they came, and says whose
// turn it is. Those whose calls are checked against the same limits stand in one line,
// of which only the first asks the store and sleeps until its units fit. What it is told
// of the room left, those behind it take together. So the work is linear in the number
// of waiters.
type waitQueue struct {
	// ask has the calls of several waiters decided in one step, in their order. It is
	// called with mu held, and does not wait.
	ask func([]*place) []*pending

	mu    sync.Mutex // guards all below
	came  int64      // how many waiters have come
	lines []*line    // that are not empty
	freed chan struct{}
}

// line holds the waiters whose calls are checked against the same limits.
type line struct {
	name   string
	limits []string
	places list.List
	late   byDeadline // those that wait for their turn until a deadline
	asking int        // how many ask the store
	seen   *seen      // what the limits had used with the last grant; nil: it is not known now
	ahead  *sleep     // that those who wait for their turn wait for; nil: it is not known
}

// place is one waiter's place.
type place struct {
	item     driver.Item
	until    time.Time // the caller's deadline; zero: none
	deadline time.Time // of the wait; zero: none

	number int64
	turns  chan turn // holds one
	line   *line
	at     *list.Element // nil: it has left
	late   int           // its index in line.late, from 1 on; 0: it is not there
	asking bool
	sleep  *sleep // while it sleeps until its units fit
}

// turn tells a waiter to ask the store, or why it need not wait any longer.
type turn struct {
	sooner  <-chan struct{} // closed when units may have come back since
	asked   time.Time
	pending *pending // it is being asked already, with others
	ahead   *sleep   // of one that sleeps past the waiter's deadline
	err     error
}

// sleep says what a waiter sleeps for.
type sleep struct {
	refused *RefusedError
	limit   string // that binds; empty: the whole budget, which is locked
	until   time.Time
	soonest time.Time // that they may fit, where leases end early
}

func newWaitQueue(ask func([]*place) []*pending) *waitQueue {
	return &waitQueue{ask: ask, freed: make(chan struct{})}
}

// free wakes those that sleep: a reservation was finished before its lease's end,
// or a lock was ended.
func (q *waitQueue) free() {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.freed)
	q.freed = make(chan struct{})
}

// enter takes the last place for a call that is checked against the limits named.
func (q *waitQueue) enter(p *place, limits []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := strings.Join(limits, " ")
	at := slices.IndexFunc(q.lines, func(l *line) bool { return l.name == name })
	if at < 0 {
		at = len(q.lines)
		q.lines = append(q.lines, &line{name: name, limits: limits})
	}
	q.came++
	p.number, p.turns, p.line = q.came, make(chan turn, 1), q.lines[at]
	p.at = p.line.places.PushBack(p)
	p.line.waits(p)
	q.move()
}

// leave gives up a place. seen is what the limits had used when it was granted.
func (q *waitQueue) leave(p *place, seen *seen) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if seen != nil {
		p.line.seen = seen
	}
	q.remove(p)
	q.move()
}

// sleeps notes that p's call was refused and what it now sleeps for. False: one before
// it in its line comes first, and it is to wait for another turn.
func (q *waitQueue) sleeps(p *place, refused *RefusedError, soonest time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.line.asked(p)
	p.line.seen = nil
	first := p.line.first() == p
	if first {
		now := time.Now()
		p.sleep = &sleep{refused: refused, limit: refused.Limit, until: now.Add(refused.RetryAfter), soonest: now.Add(soonest)}
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
	p.sleep = nil
	p.line.seen = nil
	p.line.waits(p)
	q.move()
}

// turn returns when it is p's turn to ask. Its error is the context's end, or that the
// one it waits behind sleeps past its deadline, which is told at once; that one's sleep
// is told where it is known.
func (q *waitQueue) turn(ctx context.Context, p *place) turn {
	select {
	case t := <-p.turns:
		return t
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case t := <-p.turns: // it may be under way
		return t
	default:
		q.remove(p) // it gets no turn that nobody takes
		q.move()
		return turn{ahead: p.line.ahead, err: ctx.Err()}
	}
}

// move gives turns to all whose turn it is. A waiter before has to be served first
// where it sleeps for a limit that counts the call too, or where both share a limit and
// it is asking, or waits for one that is. One that waits for a limit that is nothing to
// the call holds it up no longer. q.mu is held.
func (q *waitQueue) move() {
	slices.SortFunc(q.lines, func(a, b *line) int { return cmp.Compare(a.first().number, b.first().number) })
	asleep := map[string]*sleep{} // the longest, by the limit they are for
	taken := map[string]bool{}    // limits that one asks for
	var free []*line
	for _, l := range q.lines {
		l.ahead = asleep[""]
		asks := false
		for _, limit := range l.limits {
			l.ahead = longest(l.ahead, asleep[limit])
			asks = asks || taken[limit]
		}
		first := l.first()
		switch {
		case first.sleep != nil:
			asleep[first.sleep.limit] = longest(asleep[first.sleep.limit], first.sleep)
			l.ahead = longest(l.ahead, first.sleep)
		case l.ahead == nil:
			for _, limit := range l.limits {
				taken[limit] = true
			}
			if !asks && l.asking == 0 {
				free = append(free, l)
			}
		}
	}
	for _, l := range free {
		q.give(l)
	}
	for _, l := range slices.Clone(q.lines) {
		q.tooLate(l)
	}
}

func longest(a, b *sleep) *sleep {
	if a == nil || b != nil && b.soonest.After(a.soonest) {
		return b
	}
	return a
}

// give has the first of a line ask. Where it is known what is left, as many go with it
// as that is enough for, in one step of the store. Each asks for as much as the one
// before or more, so that none is granted where that is refused. q.mu is held.
func (q *waitQueue) give(l *line) {
	first := l.first()
	group := []*place{first}
	left := l.seen.room()
	l.seen = nil
	if left.take(first.item) {
		end := q.nextBeside(l)
		for at := first.at.Next(); at != nil && len(group) < driver.MaxBatch; at = at.Next() {
			p := at.Value.(*place)
			if p.number > end || !asksAtLeast(p.item, group[len(group)-1].item) || !left.take(p.item) {
				break
			}
			group = append(group, p)
		}
	}
	t := turn{sooner: q.freed, asked: time.Now()}
	var pending []*pending
	if len(group) > 1 {
		pending = q.ask(group)
	}
	for i, p := range group {
		l.waitsNoMore(p)
		p.asking = true
		l.asking++
		if pending != nil {
			t.pending = pending[i]
		}
		p.turns <- t
	}
}

// nextBeside is the number of the next waiter of another line that none of this line
// may overtake. q.mu is held.
func (q *waitQueue) nextBeside(l *line) int64 {
	end := q.came
	for _, other := range q.lines {
		if other != l && other.holdsUp(l) {
			end = min(end, other.first().number)
		}
	}
	return end
}

// holdsUp reports whether the line's waiters hold up those that come later to another.
func (l *line) holdsUp(other *line) bool {
	if l.ahead != nil {
		return l.ahead.limit == "" || slices.Contains(other.limits, l.ahead.limit)
	}
	return slices.ContainsFunc(l.limits, func(name string) bool { return slices.Contains(other.limits, name) })
}

// tooLate has those of a line give up whose deadline comes before the one they wait for
// can be served. q.mu is held.
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
	p.line.places.Remove(p.at)
	p.at = nil
	if p.line.places.Len() == 0 {
		q.lines = slices.DeleteFunc(q.lines, func(l *line) bool { return l == p.line })
	}
}

func (l *line) first() *place { return l.places.Front().Value.(*place) }

// asked notes that p asks no more.
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
