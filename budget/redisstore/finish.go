package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
)

// Finish implements driver.Store.
func (s *Store) Finish(ctx context.Context, finishes driver.Finishes) ([]driver.Finished, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	run := s.newFinishing(ctx, finishes)
	if err := run.run(ctx); err != nil {
		return nil, err
	}
	return run.done, nil
}

// finishing is a driver.Finishes during as many script runs as it needs.
type finishing struct {
	store *Store
	driver.Finishes
	until  []time.Time // when to give up each, by the local clock
	open   []int       // those without an answer yet
	days   []int64     // of the history that may be written
	unsure bool        // an attempt got no answer and may have been applied
	done   []driver.Finished
	sent   *redis.Cmd // ahead of another command
	apart  bool       // usual.lua has left them to finish.lua
}

func (s *Store) newFinishing(ctx context.Context, finishes driver.Finishes) *finishing {
	began, n := time.Now(), len(finishes.Items)
	run := &finishing{store: s, Finishes: finishes, days: s.daysAround(finishes.Budget, finishes.Now), done: make([]driver.Finished, n)}
	for i, f := range finishes.Items {
		run.open = append(run.open, i)
		run.until = append(run.until, giveUp(ctx, f.Deadline, finishes.Now, began))
	}
	return run
}

// run runs the script until all are answered.
func (f *finishing) run(ctx context.Context) error {
	for len(f.open) > 0 {
		r := f.store.registry(f.Budget)
		a, err := f.store.ask(ctx, f.doing(), f.Budget, f.store.scripts.Finish, f.store.daysKeys(f.Budget, r, f.days), func(attempt time.Time) []any {
			return f.args(r, attempt)
		})
		if err == nil {
			err = f.read(a)
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil && len(f.open) > 0 {
			return fmt.Errorf("%s %s in Redis: %w: out of time", f.doing(), f.Budget, driver.ErrUnavailable)
		}
	}
	return nil
}

// ahead is the command for the first run, to be sent right before another. f is nil where there is
// nothing to finish.
func (f *finishing) ahead(ctx context.Context, until time.Time) *redis.Cmd {
	if f == nil {
		return nil
	}
	r := f.store.registry(f.Budget)
	f.sent = f.store.command(ctx, "evalsha", f.store.scripts.Finish.SHA(), boxed(f.store.daysKeys(f.Budget, r, f.days)), f.args(r, until))
	return f.sent
}

// heard takes in the answer to that command. If it is none, or not the last, some stay open.
func (f *finishing) heard() {
	if f == nil || f.sent == nil {
		return
	}
	reply, err := f.sent.Slice()
	if err != nil || isOlderFormat(reply) {
		return
	}
	if a, err := f.store.read(f.doing(), f.Budget, reply); err == nil {
		_ = f.read(a) // run would meet the error again
	}
}

// doing names the call in errors.
func (*finishing) doing() string { return "finish reservations of" }

// args are the arguments of finish.lua.
func (f *finishing) args(r registry, attempt time.Time) []any {
	serverTime := f.store.serverTimes(f.Budget)
	items := make([]finishItemArgs, len(f.open))
	for j, i := range f.open {
		one := &f.Items[i]
		items[j] = finishItemArgs{one.ID, one.Release, one.Units, serverTime(earlier(f.until[i], attempt)), one.Age}
	}
	return arguments(finishArgs{ledgerArgs{r.sig, f.Now, f.store.historyOf(f.Budget, f.days)}, items})
}

// read takes in a run's answer. Those that are late for this attempt only, or by an outdated
// offset of the server's clock, stay open.
func (f *finishing) read(a answer) error {
	f.unsure, f.days = f.unsure || a.unsure, withDays(f.days, a)
	if a.status != statusDone {
		return nil
	}
	if !finishRest(a.rest, len(f.open)) {
		return f.store.strange(f.doing()+" "+f.Budget, a.rest)
	}
	var open []int
	for j, i := range f.open {
		result := driver.FinishResult(numberAt(a.rest, 3*j))
		switch {
		case result != driver.FinishLate:
		case time.Now().Before(f.until[i]):
			f.store.learnAnew(f.Budget, a.now)
			open = append(open, i)
			continue
		case f.unsure:
			return lostAnswer(f.doing() + " " + f.Budget)
		}
		f.done[i] = driver.Finished{Result: result, Replayed: numberAt(a.rest, 3*j+1) == 1, At: numberAt(a.rest, 3*j+2), Now: earlierClock(a.now, f.Now)}
	}
	f.open = open
	return nil
}

// finishFirst does what is to be done before the items, unless it goes with usual.lua by a plan.
func (b *batch) finishFirst(ctx context.Context, p *plan) error {
	if _, one := b.store.client.(*redis.Client); b.before == nil || p != nil && (one || p.settles(b.before)) {
		return nil
	}
	if err := b.before.run(ctx); err != nil {
		b.unrun = true // none of the items
		return err
	}
	b.finished()
	return nil
}

// finished takes in what was done before the items, if all is.
func (b *batch) finished() {
	if b.before != nil && len(b.before.open) == 0 {
		b.decided.Finished, b.before = b.before.done, nil
	}
}
