package budget

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// batcher decides the charges of a process in batches, which it calls flights, or finishes its
// reservations in such: I is what one caller asks, A the answer to a flight. A charge
// that finds the store idle is sent at once; charges that arrive while a flight is under
// way form the next one. No charge waits for a flight to fill; and many that wait together do
// not wait for the flight under way, so that the store has work while callers take their answers.
//
// What one goroutine does for all is the serial part of a flight: callers put their own
// items into it and take their own answers out of it.
type batcher[I, A any] struct {
	decide  func(context.Context, []I) (A, error)
	due     func(*I, time.Time) // sets when an item is given up, by now
	timeout time.Duration       // bounds a decision, whatever its callers' own timeouts
	now     func() time.Time

	mu     sync.Mutex      // guards what follows, and what a flight says it guards
	queue  []*flight[I, A] // not sent yet, the next one first; none is empty
	flying int             // how many are under way, up to mostFlying
	last   int             // how many items the last flight had
	quick  bool            // the flight that landed last took no longer than quickFlight
	hasty  int             // for how many flights gather is left out
	failed bool            // the flight that landed last got no decision
}

// mostFlying is how many flights are under way at most. The second waits until it is full, or, if
// the flight before took no longer than quickFlight, until it has enoughFor items. A longer one is
// mostly a disk or a network, which larger flights use better.
const (
	mostFlying  = 2
	enoughFor   = 32
	quickFlight = time.Millisecond
)

// answerTime is how long past its timeout a call still waits for the answer, because a
// host decides from its own allowance only after the store has timed out.
const answerTime = 40 * time.Millisecond

// ownTurn is for how long the rest of the process may run before a flight is late.
const ownTurn = time.Millisecond

// errStoreGone is the result if the store ended the goroutine that made the decision.
var errStoreGone = errors.New("the store ended without a decision")

// do decides one item. If the store is busy with others the item waits for its turn, and then has
// the timeout for itself, as long as the flights before it land. If the caller gives up before the
// item is sent, it is never sent (ErrNotCharged); after that the outcome is unknown.
func (b *batcher[I, A]) do(ctx context.Context, item *I) (answer A, index int, err error) {
	if err := ctx.Err(); err != nil {
		return answer, 0, fmt.Errorf("%w: %w", ErrNotCharged, err)
	}
	b.mu.Lock()
	if b.flying == 0 {
		b.flying++
		b.mu.Unlock()
		return b.flyOne(ctx, item)
	}
	end, _ := ctx.Deadline()
	s := b.seat(item, end)
	b.startSecond()
	b.mu.Unlock()
	return b.await(ctx, s)
}

// startSecond has a flight take off beside the one under way, if it need not wait. b.mu is held.
func (b *batcher[I, A]) startSecond() {
	if b.flying < mostFlying && b.isEnough() {
		b.flying++
		go b.flyOn(b.take())
	}
}

// flyOne decides an item that found the store idle, in its caller's goroutine.
func (b *batcher[I, A]) flyOne(ctx context.Context, item *I) (answer A, index int, err error) {
	defer b.handOver() // even if the store panics
	ctx, cancel := context.WithTimeoutCause(ctx, b.timeout, errTimeout)
	defer cancel()
	f, began := flight[I, A]{items: []I{*item}}, time.Now()
	f.answers, f.err = b.decide(ctx, f.items)
	b.mu.Lock()
	b.quick, b.failed = f.err == nil && time.Since(began) <= quickFlight, f.err != nil
	b.mu.Unlock()
	return f.answer(0)
}

// seat puts an item into the flight that is queued last. b.mu is held.
func (b *batcher[I, A]) seat(item *I, end time.Time) seat[I, A] {
	if n := len(b.queue); n == 0 || len(b.queue[n-1].items) == driver.MaxBatch {
		b.queue = append(b.queue, b.newFlight(1))
	}
	f := b.queue[len(b.queue)-1]
	return seat[I, A]{f, f.add(item, end)}
}

// newFlight makes a flight with room for at least n items. b.mu is held.
func (b *batcher[I, A]) newFlight(n int) *flight[I, A] {
	size := min(max(n, b.last), driver.MaxBatch)
	f := &flight[I, A]{
		items: make([]I, 0, size), ends: make([]ending, 0, size),
		woken: make(chan struct{}), err: errStoreGone,
	}
	f.end = time.Now().Add(b.timeout + answerTime)
	f.timer = time.AfterFunc(b.timeout+answerTime, func() { b.late(f) })
	return f
}

// arm gives a flight its whole time. b.mu is held.
func (b *batcher[I, A]) arm(f *flight[I, A]) {
	f.yielded = false
	f.end = time.Now().Add(b.timeout + answerTime)
	f.timer.Reset(b.timeout + answerTime)
}

// joining is an item of a group, and when its caller's own context ends; zero: never.
type joining[I any] struct {
	item I
	end  time.Time
}

// join queues up to MaxBatch charges that are to be decided in one step, in their
// order. Each caller then awaits its own.
func (b *batcher[I, A]) join(group []joining[I]) []seat[I, A] {
	b.mu.Lock()
	if n := len(b.queue); n == 0 || len(b.queue[n-1].items)+len(group) > driver.MaxBatch {
		b.queue = append(b.queue, b.newFlight(len(group)))
	}
	seats := make([]seat[I, A], len(group))
	for i := range group {
		seats[i] = b.seat(&group[i].item, group[i].end)
	}
	idle := b.flying == 0
	if idle {
		b.flying++
	} else {
		b.startSecond()
	}
	b.mu.Unlock()
	if idle {
		b.handOver()
	}
	return seats
}

// await waits for a decision that is queued or under way, until its caller gives up.
func (b *batcher[I, A]) await(ctx context.Context, s seat[I, A]) (answer A, index int, err error) {
	select {
	case <-s.woken:
	case <-ctx.Done():
		return b.giveUp(s, ctx.Err())
	}
	if !s.late {
		return s.answer(s.index)
	}
	return b.giveUp(s, context.DeadlineExceeded)
}

// late has the callers of a flight give up, since the store has ended neither this flight nor one
// before it within a decision's timeout. If it is queued, it is not sent any more.
func (b *batcher[I, A]) late(f *flight[I, A]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case f.landed || f.late || time.Now().Before(f.end): // it has got more time meanwhile
		return
	case !f.yielded: // the answer may be here, and wait for the processor as all else does
		f.yielded = true
		f.timer.Reset(ownTurn)
		return
	}
	f.late = true
	close(f.woken)
	b.queue = slices.DeleteFunc(b.queue, func(queued *flight[I, A]) bool { return queued == f })
}

// giveUp takes a charge off the queue. If it was sent, it may have been decided just now:
// giveUp then returns the decision.
func (b *batcher[I, A]) giveUp(s seat[I, A], end error) (answer A, index int, err error) {
	b.mu.Lock()
	landed, taken := s.landed, s.taken
	if !taken {
		b.drop(s)
	}
	b.mu.Unlock()
	switch {
	case landed:
		return s.answer(s.index)
	case !taken:
		end = fmt.Errorf("%w: %w", ErrNotCharged, end)
	}
	return answer, 0, end
}

// drop leaves a seat of a queued flight empty, and drops a flight without any other
// charge. b.mu is held.
func (b *batcher[I, A]) drop(s seat[I, A]) {
	s.ends[s.index].gone = true
	s.empty++
	if s.empty == len(s.items) {
		s.timer.Stop()
		b.queue = slices.DeleteFunc(b.queue, func(f *flight[I, A]) bool { return f == s.flight })
	}
}

// handOver ends the caller's flight: a goroutine goes on with what is queued, if that need not wait.
func (b *batcher[I, A]) handOver() {
	if f := b.next(); f != nil {
		go b.flyOn(f)
	}
}

// flyOn decides flight after flight, until next has none for it. It stays in one goroutine
// because that goroutine's stack has grown already.
func (b *batcher[I, A]) flyOn(f *flight[I, A]) {
	defer func() {
		if f != nil { // the store ended this goroutine: another takes the rest
			b.handOver()
		}
	}()
	for ; f != nil; f = b.next() {
		b.flyQueued(f)
		if len(f.items) > 1 {
			b.gather(len(f.items))
		}
	}
}

// gather ends when it has taken gatherTime. If it took longer than tooLong, which is about
// what a flight costs a store besides its items, it is left out for the next hasty flights:
// the callers, or others, then have so much to do that the store had better not wait.
const (
	gatherTime = 100 * time.Microsecond
	tooLong    = 250 * time.Microsecond
	hasty      = 15
)

// gather lets the callers that were just answered run, as long as this puts more charges
// into the queue, up to as many as they are: if they charge again, they are in the next flight
// rather than the one after it, so that flights are as large as there are callers, not half as
// large. It never sleeps: if nobody else is ready to run, it takes no time.
func (b *batcher[I, A]) gather(answered int) {
	b.mu.Lock()
	hurry := b.hasty > 0
	if hurry {
		b.hasty--
	}
	b.mu.Unlock()
	if hurry {
		return
	}
	began, n, took := time.Now(), b.queued(), time.Duration(0)
	most := min(n+answered, driver.MaxBatch)
	// Twice, as another processor may take up this goroutine before any of the callers.
	for idle := 0; idle < 2 && n < most && took < gatherTime; took = time.Since(began) {
		runtime.Gosched()
		before := n
		if n = b.queued(); n > before {
			idle = 0
		} else {
			idle++
		}
	}
	if took > tooLong {
		b.mu.Lock()
		b.hasty = hasty
		b.mu.Unlock()
	}
}

// queued is how many seats the flight that is sent next has.
func (b *batcher[I, A]) queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return 0
	}
	return len(b.queue[0].items)
}

// flyQueued decides a flight independently of its callers' contexts, and reports to them even if
// the store ends the goroutine.
func (b *batcher[I, A]) flyQueued(f *flight[I, A]) {
	defer b.land(f, time.Now())
	ctx, cancel := context.WithTimeoutCause(context.Background(), b.timeout, errTimeout)
	defer cancel()
	f.answers, f.err = b.decide(ctx, f.items)
}

// land wakes the callers of a flight that is decided.
func (b *batcher[I, A]) land(f *flight[I, A], began time.Time) {
	took := time.Since(began)
	b.mu.Lock()
	f.landed, b.quick, b.failed = true, f.err == nil && took <= quickFlight, f.err != nil
	late := f.late
	b.mu.Unlock()
	if !late {
		f.timer.Stop()
		close(f.woken)
	}
}

// next takes the first flight from the queue. It returns nil if none is queued, or if it is small,
// and another goroutine takes it when its own has landed: the caller's work is over.
func (b *batcher[I, A]) next() *flight[I, A] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 || b.flying > 1 && !b.isEnough() {
		b.flying--
		return nil
	}
	return b.take()
}

// isEnough reports whether the flight that is sent next need not wait for one under way. b.mu is
// held.
func (b *batcher[I, A]) isEnough() bool {
	if len(b.queue) == 0 {
		return false
	}
	n := len(b.queue[0].items)
	return n == driver.MaxBatch || n >= enoughFor && b.quick
}

// take takes that flight from the queue. b.mu is held.
func (b *batcher[I, A]) take() *flight[I, A] {
	f := b.queue[0]
	b.queue = slices.Delete(b.queue, 0, 1)
	f.takeOff(b.now(), b.timeout, b.due)
	b.arm(f)
	for _, behind := range b.queue {
		if !b.failed { // else the store may be gone, and those behind wait no longer than they do already
			b.arm(behind)
		}
	}
	b.last = len(f.items)
	return f
}
