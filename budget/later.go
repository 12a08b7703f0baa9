package budget

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// The most pieces of work that are kept for later, and that are done at a time.
const (
	mostLater   = 4096
	mostAtATime = 16
)

// laters does work that nobody waits for at first. No goroutine outlives what is to be
// done.
type laters struct {
	mu      sync.Mutex // guards all below
	tasks   map[*later]struct{}
	queue   []*later // those that are not under way
	running int
	ctx     context.Context // of those that come; nil: none came since the last were given up
	giveUp  context.CancelCauseFunc
}

// later is one piece of work.
type later struct {
	do   func(context.Context)
	ctx  context.Context
	done chan struct{}
}

// Later runs work at the store that its caller does not wait for, as soon as possible.
// The work bounds its own time, and ends early with its context. The channel is closed
// when it is done; [Budget.Flush] and [Budget.Close] wait for it. False: too much is
// waiting already, and the work is not done.
func (b *Budget) Later(do func(context.Context)) (done <-chan struct{}, ok bool) {
	return b.laters.add(do)
}

// Flush waits until the cost of all responses whose bodies are closed by now is
// recorded. The error is the context's.
func (b *Budget) Flush(ctx context.Context) error {
	if left := b.laters.wait(ctx.Done()); left > 0 {
		return fmt.Errorf("flush %s: %w: of %d responses it is not recorded yet what they cost", b.spec.Name, context.Cause(ctx), left)
	}
	return nil
}

func (l *laters) add(do func(context.Context)) (<-chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tasks) >= mostLater {
		return nil, false
	}
	if l.ctx == nil {
		l.ctx, l.giveUp = context.WithCancelCause(context.Background())
	}
	if l.tasks == nil {
		l.tasks = map[*later]struct{}{}
	}
	task := &later{do: do, ctx: l.ctx, done: make(chan struct{})}
	l.tasks[task] = struct{}{}
	l.queue = append(l.queue, task)
	l.start()
	return task.done, true
}

// start begins with the next piece, if one more may be under way. l.mu is held.
func (l *laters) start() {
	if len(l.queue) == 0 || l.running == mostAtATime {
		return
	}
	task := l.queue[0]
	l.queue = l.queue[1:]
	l.running++
	go l.run(task)
}

func (l *laters) run(task *later) {
	defer func() { // also where the work ended its goroutine
		close(task.done)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.tasks, task)
		l.running--
		l.start()
	}()
	task.do(task.ctx)
}

// wait waits for what has come so far, until the end that is given. It is how much is left.
func (l *laters) wait(end <-chan struct{}) (left int) {
	l.mu.Lock()
	tasks := slices.Collect(maps.Keys(l.tasks))
	l.mu.Unlock()
	for i, task := range tasks {
		select {
		case <-task.done:
		case <-end:
			for _, task := range tasks[i:] {
				if !task.isDone() {
					left++
				}
			}
			return left
		}
	}
	return 0
}

func (t *later) isDone() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// close waits for a while for what has come so far, and then has it give up, for which
// it waits as long again. It is how much was given up.
func (l *laters) close(patience time.Duration) (left int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if left = l.wait(ctx.Done()); left == 0 {
		return 0
	}
	l.mu.Lock()
	if l.ctx != nil {
		l.giveUp(ErrClosed)
	}
	l.ctx = nil
	l.mu.Unlock()
	ctx, cancel = context.WithTimeout(context.Background(), patience)
	defer cancel()
	l.wait(ctx.Done())
	return left
}
