package budget

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// waitJitter is the most a waiter sleeps past the instant its call fits, so
// that the processes waiting for one window do not all come in the same moment.
const waitJitter = 10 * time.Millisecond

// Wait charges the call as soon as its units fit. Waiters of one process whose
// calls are checked against the same limits are served first in, first out.
// It fails at once, with a [*RefusedError] that also is
// context.DeadlineExceeded, when the context's deadline comes before the units
// can fit, and with the plain refusal when no wait helps.
func (b *Budget) Wait(ctx context.Context, call Call) (Receipt, error) {
	if call.ID == "" {
		call.ID = newID() // one id for all tries: at most one of them is charged
	}
	queue := b.waits.of(fmt.Sprint(b.covering(call.Operation)))
	place := queue.enter()
	defer queue.leave(place)
	if err := queue.turn(ctx, place); err != nil {
		return Receipt{}, b.waitEnded(call, err)
	}
	for {
		receipt, err := b.Charge(ctx, call)
		var refused *RefusedError
		if err == nil || !errors.Is(err, ErrExhausted) || !errors.As(err, &refused) {
			return receipt, err
		}
		jitter := rand.N(waitJitter) //nolint:gosec // spreading, not secrecy
		if deadline, ok := ctx.Deadline(); ok && refused.RetryAfter > time.Until(deadline) {
			refused.Cause = errWaitTooLong
			return Receipt{}, refused
		} else if ok {
			jitter = min(jitter, time.Until(deadline)-refused.RetryAfter)
		}
		queue.announce(place, refused)
		timer := time.NewTimer(refused.RetryAfter + jitter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			refused.Cause = ctx.Err()
			return Receipt{}, refused
		}
	}
}

// errWaitTooLong tells callers what they test for without having waited.
var errWaitTooLong = fmt.Errorf("the deadline comes before the units: %w", context.DeadlineExceeded)

// waitEnded is the answer to a waiter that never got its turn.
func (b *Budget) waitEnded(call Call, err error) error {
	var ahead *aheadError
	if !errors.As(err, &ahead) {
		return fmt.Errorf("wait for %s %s: %w", b.spec.Name, call.Operation, err)
	}
	units, _ := b.spec.price(call) // the head of the queue has the same kind of call
	refused := b.refuse(call, units, ErrExhausted, fmt.Errorf("calls ahead of it wait as long: %w", errWaitTooLong))
	refused.Limit, refused.Remaining = ahead.head.Limit, ahead.head.Remaining
	refused.RetryAt, refused.RetryAfter = ahead.head.RetryAt, time.Until(ahead.until)
	return refused
}

// waitQueues holds one queue per set of limits.
type waitQueues struct {
	mu     sync.Mutex // guards queues
	queues map[string]*waitQueue
}

func newWaitQueues() *waitQueues { return &waitQueues{queues: map[string]*waitQueue{}} }

func (w *waitQueues) of(key string) *waitQueue {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[key]
	if q == nil {
		q = &waitQueue{}
		w.queues[key] = q
	}
	return q
}

// waitQueue lets one waiter try at a time, in the order they came.
type waitQueue struct {
	mu     sync.Mutex // guards all below
	places []*place   // the first is the head: its turn
	head   *RefusedError
	until  time.Time     // when the head tries again
	news   chan struct{} // closed when head or until change
}

// place is one waiter's place; turn is closed when it has become the head.
type place struct{ turn chan struct{} }

// aheadError says that the head waits past this waiter's deadline.
type aheadError struct {
	head  *RefusedError
	until time.Time
}

func (e *aheadError) Error() string { return "the calls ahead wait longer" }

func (q *waitQueue) enter() *place {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := &place{turn: make(chan struct{})}
	q.places = append(q.places, p)
	if len(q.places) == 1 {
		close(p.turn)
	}
	if q.news == nil {
		q.news = make(chan struct{})
	}
	return p
}

// turn returns when it is p's turn, or with why it will never come.
func (q *waitQueue) turn(ctx context.Context, p *place) error {
	for {
		q.mu.Lock()
		news, head, until := q.news, q.head, q.until
		q.mu.Unlock()
		select {
		case <-p.turn:
			return nil
		default:
		}
		if deadline, ok := ctx.Deadline(); ok && head != nil && until.After(deadline) {
			return &aheadError{head: head, until: until}
		}
		select {
		case <-p.turn:
			return nil
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// announce tells those behind the head how long it will wait.
func (q *waitQueue) announce(p *place, refused *RefusedError) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.places[0] != p {
		return
	}
	q.head, q.until = refused, time.Now().Add(refused.RetryAfter)
	close(q.news)
	q.news = make(chan struct{})
}

// leave gives up p's place; the next one becomes the head.
func (q *waitQueue) leave(p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, other := range q.places {
		if other != p {
			continue
		}
		q.places = append(q.places[:i], q.places[i+1:]...)
		if i == 0 {
			q.head = nil
			if len(q.places) > 0 {
				close(q.places[0].turn)
			}
		}
		return
	}
}
