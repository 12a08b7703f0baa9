package budget

import (
	"context"
	"slices"
	"sync"
	"time"
)

// waitQueue keeps the waiters of a process in the order they came, and says
// whose turn it is.
type waitQueue struct {
	mu     sync.Mutex // guards all below
	places []*place
	news   chan struct{} // closed when something has changed
	freed  chan struct{} // closed when something may have come back early
}

// place is one waiter's place.
type place struct {
	limits []string // that its call is checked against
	sleep  *sleep   // while it sleeps until its units fit
}

// sleep says what a waiter sleeps for.
type sleep struct {
	refused *RefusedError
	limit   string // that binds; empty: the whole budget, which is locked
	until   time.Time
	soonest time.Time // that they may fit, where leases end early
}

func newWaitQueue() *waitQueue {
	return &waitQueue{news: make(chan struct{}), freed: make(chan struct{})}
}

// sooner is closed when units may have come back before the instant that a
// waiter is told from now on.
func (q *waitQueue) sooner() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.freed
}

// free wakes those that sleep: a reservation was finished before its lease's end,
// or a lock was ended.
func (q *waitQueue) free() {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.freed)
	q.freed = make(chan struct{})
}

// changed tells all waiters to look again. q.mu is held.
func (q *waitQueue) changed() {
	close(q.news)
	q.news = make(chan struct{})
}

func (q *waitQueue) enter(limits []string) *place {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := &place{limits: limits}
	q.places = append(q.places, p)
	return p
}

func (q *waitQueue) leave(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.places = slices.DeleteFunc(q.places, func(other *place) bool { return other == p })
	q.changed()
}

// sleeps notes that p's call was refused and what it now sleeps for.
func (q *waitQueue) sleeps(p *place, refused *RefusedError, soonest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	p.sleep = &sleep{refused: refused, limit: refused.Limit, until: now.Add(refused.RetryAfter), soonest: now.Add(soonest)}
	q.changed()
}

// wakes notes that p is about to try again.
func (q *waitQueue) wakes(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p.sleep = nil
	q.changed()
}

// turn returns when it is p's turn to try. It fails when the context ends, and
// at once when the one it waits behind sleeps past the context's deadline; that
// one's sleep is told where it is known.
func (q *waitQueue) turn(ctx context.Context, p *place) (*sleep, error) {
	for {
		q.mu.Lock()
		news := q.news
		blocked, ahead := q.blocked(p)
		q.mu.Unlock()
		if !blocked {
			return nil, nil
		}
		if deadline, ok := ctx.Deadline(); ok && ahead != nil && ahead.soonest.After(deadline) {
			return ahead, errWaitTooLong
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ahead, ctx.Err()
		}
	}
}

// blocked reports whether a waiter before p has to be served first: one that
// sleeps for a limit that counts p's call too, or one that shares a limit with p
// and is trying, or blocked by one that p has to wait for too. ahead is the sleep
// that it comes down to, if any. q.mu is held.
func (q *waitQueue) blocked(p *place) (blocked bool, ahead *sleep) {
	for _, other := range q.places {
		switch {
		case other == p:
			return false, nil
		case other.sleep != nil:
			if other.sleep.limit == "" || slices.Contains(p.limits, other.sleep.limit) {
				return true, other.sleep
			}
		case shareOne(p.limits, other.limits):
			if _, ahead = q.blocked(other); ahead == nil || slices.Contains(p.limits, ahead.limit) {
				return true, ahead
			} // else it waits for a limit that is nothing to p
		}
	}
	return false, nil
}

func shareOne(a, b []string) bool {
	return slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
}
