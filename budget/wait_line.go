package budget

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Line is the place, in the order of [Budget.Wait], of a call that its caller makes by itself,
// and again when it is refused. One goroutine may wait at a time.
type Line struct {
	b    *Budget
	p    atomic.Pointer[place] // nil: not in line
	turn turn                  // the last one
}

// Line returns a place that is in no line yet.
func (b *Budget) Line() *Line { return &Line{b: b} }

// Wait waits after a refusal for this long, or until those ahead are served if that is later.
// Then the caller makes the call; if that is refused too, it keeps its place and waits again,
// otherwise it leaves. If the context ends, or its deadline comes before the call's turn, the
// error says so, and the place is lost.
func (l *Line) Wait(ctx context.Context, refused *RefusedError, wait time.Duration) error {
	l.b.tally(refused, refusedCalls{refused: -1}) // the call goes on
	p, until := l.p.Load(), time.Now().Add(wait)
	again := p != nil
	if !again {
		p = &place{item: driver.Item{Operation: refused.Operation, Units: refused.Units, Floor: refused.Floor, Labels: Labels{Job: refused.job}}}
	}
	p.deadline, _ = ctx.Deadline() // nobody reads it while the place asks
	if !again {
		l.b.waits.enter(p, partNames(l.b.checking(p.item), refused.job))
		l.p.Store(p)
	}
	err := l.wait(ctx, p, refused, until, again)
	if err != nil {
		l.Leave(false)
	}
	return err
}

// wait waits at a place until an instant. asked: it is this call's turn since before, and it was refused.
func (l *Line) wait(ctx context.Context, p *place, refused *RefusedError, until time.Time, asked bool) error {
	for ; ; asked = false {
		if !asked {
			l.turn = l.b.waits.turn(ctx, p)
		}
		left := time.Until(until)
		switch {
		case l.turn.err != nil || left <= 0 && !asked:
			return l.turn.err
		case endsBefore(ctx, left):
			return waitTooLong{}
		case !l.b.waits.sleeps(p, refused, l.b.bindingPart(refused, refused.job), left):
			continue
		}
		if err := sleepUntil(ctx, left, l.turn.sooner, 0); err != nil {
			return err
		}
		until = time.Now()
		l.b.waits.wakes(p)
	}
}

// Leave gives up the place, if there is one. granted: the call was, after its wait.
func (l *Line) Leave(granted bool) {
	p := l.p.Swap(nil)
	if p == nil {
		return
	}
	if held := l.b.waits.leave(p, nil); granted && held != nil {
		l.b.waited(held, p.item)
	}
}

// bindingPart names what a refused call of a job waits for, as partNames does; empty: the whole
// budget.
func (b *Budget) bindingPart(refused *RefusedError, job string) string {
	if l, known := b.limitNamed(refused.Limit); known {
		return partName(l, job)
	}
	return refused.Limit
}
