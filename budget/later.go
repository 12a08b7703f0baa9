package budget

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// How many tasks may be unfinished at once, and how many of them may run at once.
const (
	mostLater   = 4096
	mostAtATime = 16
)

// laters runs tasks in the background. Its goroutines end with their tasks.
type laters struct {
	mu        sync.Mutex // guards all below
	tasks     map[*later]struct{}
	queue     []*later // tasks that have not started
	running   int
	spanned   int             // tasks that begin after a span
	lastStart time.Time       // when the last of them begins
	ctx       context.Context // for new tasks; nil: no task was added yet, or close has ended it
	giveUp    context.CancelCauseFunc
}

// later is one task.
type later struct {
	do      func(context.Context)
	ctx     context.Context
	done    chan struct{}
	spanned bool
	// count is of how many responses it records the cost, if of several.
	count atomic.Int64
}

// Later runs do in the background as soon as possible. It must bound its own time, and
// end early when its context ends. The channel is closed when it is done;
// [Budget.Flush] and [Budget.Close] wait for it. False: too many tasks are waiting
// already, and do is not run.
func (b *Budget) Later(do func(context.Context)) (done <-chan struct{}, ok bool) {
	return b.laters.add(do)
}

// Flush waits until the cost of all responses whose bodies are closed by now is
// recorded. The error is the context's.
func (b *Budget) Flush(ctx context.Context) error {
	go b.sendSilent(b.takeSilent(nil))
	if left := b.laters.wait(ctx.Done()); left > 0 {
		return fmt.Errorf("flush %s: %w: the cost of %d responses is not recorded yet", b.spec.Name, context.Cause(ctx), left)
	}
	return nil
}

func (l *laters) add(do func(context.Context)) (<-chan struct{}, bool) {
	task, ok := l.enter(0)
	if !ok {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	task.do = do
	l.queue = append(l.queue, task)
	l.start()
	return task.done, true
}

// enter adds a task that its caller begins after a span, and then leaves. Tasks with a span have a
// bound of their own.
func (l *laters) enter(span time.Duration) (task *later, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if spanned := span > 0; spanned && l.spanned >= mostLater || !spanned && len(l.tasks)-l.spanned >= mostLater {
		return nil, false
	}
	if l.ctx == nil {
		l.ctx, l.giveUp = context.WithCancelCause(context.Background())
	}
	if l.tasks == nil {
		l.tasks = map[*later]struct{}{}
	}
	task = &later{ctx: l.ctx, done: make(chan struct{}), spanned: span > 0}
	l.tasks[task] = struct{}{}
	if task.spanned {
		l.spanned++
		if start := time.Now().Add(span); start.After(l.lastStart) {
			l.lastStart = start
		}
	}
	return task, true
}

// leave ends a task; nil is none.
func (l *laters) leave(task *later) {
	if task == nil {
		return
	}
	close(task.done)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tasks, task)
	if task.spanned {
		l.spanned--
	}
}

// start starts the next task, if one more may run. l.mu is held.
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
	defer func() { // even if the task ended its goroutine
		l.leave(task)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running--
		l.start()
	}()
	task.do(task.ctx)
}

// wait waits for the tasks added so far, until end is closed. It returns how many are
// unfinished.
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
					left += max(1, int(task.count.Load()))
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

// close waits up to patience for the tasks added so far, from when the last of them has begun. Then
// it cancels the rest, waits for them as long again, and returns how many there were.
func (l *laters) close(patience time.Duration) (left int) {
	l.mu.Lock()
	started := max(0, time.Until(l.lastStart))
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), started+patience)
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
