package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// batcher decides the charges of a process together: a charge that finds the
// store idle goes at once; those that come while a step is under way go
// together in the next one. Nothing waits for company.
type batcher struct {
	decide func(context.Context, []driver.Item) (driver.Decisions, []limit.Limit, error)

	mu     sync.Mutex // guards queue and flying
	queue  []*pending
	flying bool
}

// pending is one charge on its way to the store.
type pending struct {
	item    driver.Item
	until   time.Time // when the caller gives up, by time.Now
	taken   bool      // under way; guarded by batcher.mu
	group   *pending  // the first of those that are decided in the same step; nil: it goes alone
	done    chan struct{}
	decided decided
	err     error
}

// decided is a decision with the store's clock and the name of the limit that
// it tells of.
type decided struct {
	driver.Decision
	storeNow int64
	limit    string
	seen     *seen
}

// answerTime is how long past its timeout a call waits for an answer that is on
// its way: what a host decides on its own comes after the store's time.
const answerTime = 40 * time.Millisecond

// errStoreGone is what is left of a decision whose goroutine ended under it.
var errStoreGone = errors.New("the store's decision never came back")

// do decides one item within timeout. A caller that gives up before the item is
// under way keeps it from being sent (ErrNotCharged); afterwards the outcome is
// unknown.
func (b *batcher) do(ctx context.Context, item driver.Item, timeout time.Duration) (decided, error) {
	if err := ctx.Err(); err != nil {
		return decided{}, fmt.Errorf("%w: %w", ErrNotCharged, err)
	}
	p := newPending(item, timeout)
	b.mu.Lock()
	if !b.flying {
		b.flying, p.taken = true, true
		b.mu.Unlock()
		defer b.handOver() // whatever becomes of the store
		b.fly(ctx, []*pending{p})
		return p.decided, p.err
	}
	b.queue = append(b.queue, p)
	b.mu.Unlock()
	return b.await(ctx, p)
}

func newPending(item driver.Item, timeout time.Duration) *pending {
	return &pending{item: item, until: time.Now().Add(timeout), done: make(chan struct{}), err: errStoreGone}
}

// join sends up to MaxBatch charges to be decided in one step, in their order. Each
// caller then awaits its own.
func (b *batcher) join(group []*pending) {
	for _, p := range group {
		p.group = group[0]
	}
	b.mu.Lock()
	b.queue = append(b.queue, group...)
	idle := !b.flying
	b.flying = true
	b.mu.Unlock()
	if idle {
		b.handOver()
	}
}

// await waits for a decision that is queued or under way, until its caller gives up.
func (b *batcher) await(ctx context.Context, p *pending) (decided, error) {
	timer := time.NewTimer(time.Until(p.until) + answerTime)
	defer timer.Stop()
	end := context.DeadlineExceeded
	select {
	case <-p.done:
		return p.decided, p.err
	case <-timer.C:
	case <-ctx.Done():
		end = ctx.Err()
	}
	return b.giveUp(p, end)
}

// giveUp takes p off the queue; one that is under way may just have been
// decided.
func (b *batcher) giveUp(p *pending, end error) (decided, error) {
	b.mu.Lock()
	taken := p.taken
	if !taken {
		b.drop(p)
	}
	b.mu.Unlock()
	select {
	case <-p.done:
		return p.decided, p.err
	default:
	}
	if !taken {
		end = fmt.Errorf("%w: %w", ErrNotCharged, end)
	}
	return decided{}, end
}

// handOver goes on with what has queued up, in a goroutine of its own, or
// leaves the batcher idle.
func (b *batcher) handOver() {
	if batch := b.next(); len(batch) > 0 {
		go b.flyOn(batch)
	}
}

// flyOn decides batch after batch until none is queued: one goroutine, whose
// stack has grown already, for as long as charges come.
func (b *batcher) flyOn(batch []*pending) {
	defer func() {
		if len(batch) > 0 { // the store ended the goroutine: the others go on
			b.handOver()
		}
	}()
	for ; len(batch) > 0; batch = b.next() {
		b.flyAlone(batch)
	}
}

// flyAlone has a batch decided that nobody's context bounds.
func (b *batcher) flyAlone(batch []*pending) {
	last := slices.MaxFunc(batch, func(p, q *pending) int { return p.until.Compare(q.until) })
	ctx, cancel := context.WithDeadlineCause(context.Background(), last.until, errTimeout)
	defer cancel()
	b.fly(ctx, batch)
}

// next takes up to MaxBatch from the queue, groups as a whole; none leaves the batcher
// idle.
func (b *batcher) next() []*pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.queue), driver.MaxBatch)
	if n == 0 {
		b.flying = false
		return nil
	}
	for n < len(b.queue) && b.queue[n].group != nil && b.queue[n].group == b.queue[n-1].group {
		n--
	}
	batch := slices.Clone(b.queue[:n])
	b.queue = slices.Clone(b.queue[n:])
	for _, p := range batch {
		p.taken = true
	}
	return batch
}

// fly has one batch decided and tells each caller, also when its goroutine ends
// on the way.
func (b *batcher) fly(ctx context.Context, batch []*pending) {
	defer func() {
		for _, p := range batch {
			close(p.done)
		}
	}()
	items := make([]driver.Item, len(batch))
	for i, p := range batch {
		items[i] = p.item
	}
	decisions, limits, err := b.decide(ctx, items)
	all := &seen{limits, decisions.Used}
	for i, p := range batch {
		p.err = err
		if err != nil {
			continue
		}
		p.decided = decided{Decision: decisions.Items[i], storeNow: decisions.Now, seen: all}
		if at := p.decided.Limit; at >= 0 && at < len(limits) {
			p.decided.limit = limits[at].Name
		}
	}
}

// drop removes p from the queue. b.mu is held.
func (b *batcher) drop(p *pending) {
	b.queue = slices.DeleteFunc(b.queue, func(q *pending) bool { return q == p })
}
