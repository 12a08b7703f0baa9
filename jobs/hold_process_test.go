package jobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/effort"
)

// side is where a process is killed at an operation.
type side int

const (
	before side = iota // it was not sent
	after_             // it was applied, and its answer did not arrive
	late               // it is applied long after the process died
	sides
)

func (s side) String() string { return [...]string{"before", "after", "late"}[s] }

// lateBy is how much later a late operation reaches the store.
const lateBy = 3 * time.Second

// errKilled is what operations of a dead process return, to end its goroutines.
var errKilled = errors.New("the process was killed")

// fate is what becomes of an operation.
type fate int

const (
	fateNone   fate = iota
	fateAway        // the store is not reached
	fateLost        // it is applied, and its answer is lost
	fateSilent      // it is not applied, and there is no answer
)

// process is a process that reaches the store over a network, and may be killed at any of its
// operations. Nothing that it does then reaches the store any more.
type process struct {
	edge    *edge
	name    string
	latency time.Duration          // of each direction
	fault   func(what string) fate // nil: nothing fails

	stop  context.CancelFunc
	drain chan struct{}
	done  chan error

	mu      sync.Mutex // guards all below
	counts  bool       // steps are counted
	steps   int
	killAt  int // the step at which it is killed; 0: never
	side    side
	dead    bool
	died    time.Time
	applied int64  // the instant (µs) by the later clock up to which it changed something
	at      string // the operation at which it was killed
}

var (
	_ driver.Store = (*process)(nil)
	_ State        = (*process)(nil)
)

// lapsed reports whether the process is dead, and everything that it held must have ended: with
// its lease, or, if the clocks were set back, once another daemon has taken it for dead.
func (p *process) lapsed(now int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.edge.clock.by.Load() < 0 {
		return p.dead && time.Since(p.died) > lateBy+9*DefaultHeartbeat
	}
	const slack = 1000 // µs: charges of one instant are a microsecond apart
	return p.dead && now >= p.applied+(4*DefaultHeartbeat).Microseconds()+slack
}

// killed says at which operation and when the process died; false if it lives.
func (p *process) killed() (at string, when time.Time, dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at, p.died, p.dead
}

// counting says whether operations are counted.
func (p *process) counting(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts = on
}

// killSoon has the process die at one of its next operations; 0: never.
func (p *process) killSoon(in int, of side) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts, p.side, p.killAt = true, of, 0
	if in > 0 {
		p.killAt = p.steps + in
	}
}

// die kills the process now.
func (p *process) die(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dieLocked(what)
}

func (p *process) dieLocked(what string) {
	if !p.dead {
		p.dead, p.died, p.at = true, time.Now(), what
		p.stop()
	}
}

// send counts an operation. If the process dies of it, it returns on which side.
func (p *process) send(what string) (of side, dies, sent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return 0, false, false
	}
	if !p.counts || !effort.Of(false, false, true) && idle(what) {
		return 0, false, true
	}
	if p.steps++; p.steps != p.killAt {
		return 0, false, true
	}
	if p.side == before {
		p.dieLocked(what)
		return before, true, false
	}
	return p.side, true, true
}

// idle reports whether a daemon does an operation also while it has nothing to do.
func idle(what string) bool {
	return what == "read the jobs" || strings.HasSuffix(what, newsName) || strings.HasSuffix(what, aliveName)
}

func (p *process) fate(what string) fate {
	if p.fault == nil {
		return fateNone
	}
	return p.fault(what)
}

// reach sends an operation to the store, and waits for its answer. Apply has the store
// do it, or, of a batch, in part.
func reach[A any](ctx context.Context, p *process, what string, apply func(part bool) (A, error)) (A, error) {
	var none A
	of, dies, sent := p.send(what)
	if !sent {
		return none, errKilled
	}
	switch p.fate(what) {
	case fateNone:
	case fateAway:
		return none, errFails
	case fateLost:
		after(p.latency)
		p.apply(func() { _, _ = apply(false) })
		return none, errFails
	case fateSilent:
		select {
		case <-ctx.Done():
			return none, ctx.Err()
		case <-time.After(20 * time.Second):
			return none, errFails
		}
	}
	if dies && of == late {
		p.die(what)
		p.mu.Lock()
		p.applied = p.edge.now() + lateBy.Microseconds() // an upper bound until then
		p.mu.Unlock()
		go func() {
			after(lateBy)
			p.apply(func() { _, _ = apply(false) })
		}()
		return none, errKilled
	}
	after(p.latency)
	var answer A
	var err error
	p.apply(func() {
		answer, err = apply(dies && rand.IntN(2) == 0)
		if dies {
			p.die(what)
		}
	})
	after(p.latency)
	switch _, _, dead := p.killed(); {
	case dead:
		return none, errKilled
	case ctx.Err() != nil:
		return none, ctx.Err()
	}
	return answer, err
}

// apply applies an operation that was sent, and checks the ledger.
func (p *process) apply(do func()) {
	p.edge.mu.Lock()
	defer p.edge.mu.Unlock()
	do()
	p.mu.Lock()
	p.applied = max(p.applied, p.edge.now())
	p.mu.Unlock()
	p.edge.checkChanged()
}

func (p *process) Decide(ctx context.Context, batch driver.Batch) (driver.Decisions, error) {
	what := "decide"
	switch {
	case len(batch.Items) == 0:
	case batch.Items[0].IsHold():
		what = "hold"
	case batch.Items[0].DryRun:
		what = "look whether it fits"
	case batch.Items[0].Lease > 0:
		what = "reserve"
	}
	return reach(ctx, p, what, func(part bool) (driver.Decisions, error) {
		most := driver.MaxBatch
		if part {
			most = 1
		}
		return p.edge.decide(p, batch, most)
	})
}

func (p *process) Finish(ctx context.Context, f driver.Finishes) ([]driver.Finished, error) {
	return reach(ctx, p, "finish", func(bool) ([]driver.Finished, error) { return p.edge.finish(f) })
}

func (p *process) Change(ctx context.Context, c driver.Change) (driver.Changed, error) {
	what := fmt.Sprintf("%T", c)
	if h, is := c.(driver.HoldChange); is {
		what = "renew the holds"
		if h.Lease == 0 {
			what = "end a hold"
		}
	}
	return reach(ctx, p, what, func(bool) (driver.Changed, error) { return p.edge.change(c) })
}

func (p *process) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	return reach(ctx, p, "look", func(bool) (driver.View, error) { return p.edge.store.Look(context.Background(), look) })
}

func (p *process) Spent(ctx context.Context, q driver.SpentQuery) (driver.Spent, error) {
	return reach(ctx, p, "spent", func(bool) (driver.Spent, error) { return p.edge.store.Spent(context.Background(), q) })
}

func (p *process) History(ctx context.Context, q driver.HistoryQuery) (driver.History, error) {
	return reach(ctx, p, "history", func(bool) (driver.History, error) { return p.edge.store.History(context.Background(), q) })
}

func (p *process) Budgets(ctx context.Context, upstream string, most int) ([]string, error) {
	return reach(ctx, p, "budgets", func(bool) ([]string, error) { return p.edge.store.Budgets(context.Background(), upstream, most) })
}

func (p *process) Export(context.Context, driver.Export, driver.LedgerWriter) error {
	return budget.ErrStoreConfig
}

func (p *process) Close() error { return nil }

func (p *process) Job(ctx context.Context, name string) (driver.JobDocument, error) {
	return reach(ctx, p, "read "+name, func(bool) (driver.JobDocument, error) { return p.edge.store.Job(context.Background(), name) })
}

func (p *process) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	return reach(ctx, p, "read the jobs", func(bool) ([]driver.JobDocument, error) { return p.edge.store.Jobs(context.Background(), names) })
}

func (p *process) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	return reach(ctx, p, "swap "+swap.Job, func(bool) (bool, error) { return p.edge.store.SwapJob(context.Background(), swap) })
}

func (p *process) JobValue(ctx context.Context, job, key string) ([]byte, error) {
	return reach(ctx, p, "read a value", func(bool) ([]byte, error) { return p.edge.store.JobValue(context.Background(), job, key) })
}

func (p *process) JobHistory(ctx context.Context, q driver.JobHistoryQuery) ([]driver.JobRecord, error) {
	return reach(ctx, p, "read records", func(bool) ([]driver.JobRecord, error) { return p.edge.store.JobHistory(context.Background(), q) })
}
