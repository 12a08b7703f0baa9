package redisstore

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/lua"
)

// leftLater is what usual.lua answers where something is to be done first that it leaves undone.
const leftLater = 4

// leftSettlements is what it answers where finish.lua is to settle.
const leftSettlements = 18

// tidyFirst is for how many items that is done by a run of its own.
const tidyFirst = 8

// A usualRun is a row of items that count alike, so that usual.lua decides them as one.
type usualRun struct {
	first, items int // among the open ones
	operation    int
	row          int // the place of the operation among the rows, from 1
	usualTexts
	poured  []int64 // for each bucket, what an item adds to it, or notPoured
	metered bool    // some bucket counts it, which drains between two items: so the run has one
	changes []int64 // for each limit, what an item adds to its use
}

// notPoured is what an item adds to a bucket that does not count it.
const notPoured = -1

// usualBatch is a run of usual.lua.
type usualBatch struct {
	*plan
	rows    []int // operations whose rows the script needs
	runs    []usualRun
	settles []driver.Finish // before the items
}

// runUsual has usual.lua decide the open items. What it leaves to charge.lua, the next step
// takes. It returns true when all are decided.
func (b *batch) runUsual(ctx context.Context, p *plan) (bool, error) {
	b.slow = true
	u, ok := p.batch(b)
	if !ok {
		return false, nil
	}
	before := b.before
	if p.settles(before) {
		u.settles, before = before.Items, nil
	}
	cmd, unsure := b.store.attemptsAfter(ctx, before, b.store.scripts.Usual, u.keys(b), func(attempt time.Time) []any { return u.args(b, attempt) })
	before.heard()
	b.finished()
	reply, err := cmd.Result()
	b.unsure = b.unsure || unsure
	if hasCode(err, "ERR") && strings.Contains(err.Error(), "user_script") { // the ledger is as this script does not expect it
		b.store.drop(b.Budget, p)
		return false, nil
	}
	if err != nil {
		b.unrun = !unsure && notRun(cmd.Err())
		return false, b.store.fault(b.doing()+" "+b.Budget, err)
	}
	if left, isLeft := reply.(int64); isLeft {
		switch {
		case left <= 2:
			b.store.drop(b.Budget, p)
		case len(b.open) >= tidyFirst && left == leftLater && !b.tidied:
			b.tidied, b.slow = true, !b.store.tidy(ctx, b.Batch, u.rows)
		case left == leftSettlements:
			b.before.apart, b.slow = true, false
		}
		return false, nil
	}
	if !b.takeUsual(u, reply) {
		return false, b.store.strange(b.doing()+" "+b.Budget, reply)
	}
	return len(b.open) == 0, nil
}

// tidy has charge.lua do what is to be done on the ledger of a batch, without its items, since
// it decides each of many items more slowly than usual.lua does. It returns whether it did.
func (s *Store) tidy(ctx context.Context, b driver.Batch, operations []int) bool {
	b.Items = nil
	run := s.newBatch(ctx, b, time.Now())
	run.tidies = operations
	for {
		done, err := run.step(ctx)
		if done || err != nil || ctx.Err() != nil {
			return done && err == nil
		}
	}
}

// tidyLater does so beside the calls, once at a time for each ledger. In tests with a clock of
// their own it does so at once.
func (s *Store) tidyLater(b driver.Batch, operations []int) {
	b.Limits = slices.Clone(b.Limits)
	s.mu.Lock()
	skip := s.closed || s.tidying[b.Budget]
	if !skip {
		s.tidying[b.Budget] = true
		s.tidied.Add(1)
	}
	s.mu.Unlock()
	if skip {
		return
	}
	run := func() {
		defer s.tidied.Done()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.tidying, b.Budget)
		}()
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		s.tidy(ctx, b, operations) // the script asks a later call to do the rest
	}
	if s.testClock != nil {
		run()
		return
	}
	b.Now = time.Now().UnixMicro()
	go run()
}

// batch groups the open items. It returns false if charge.lua is to decide them.
func (p *plan) batch(b *batch) (u usualBatch, ok bool) {
	u = usualBatch{plan: p, rows: make([]int, 0, 4)}
	if hasTwice(len(b.open), func(i int) string { return b.Items[b.open[i]].ID }) {
		return u, false
	}
	var last *driver.Item
	for j, i := range b.open {
		item := &b.Items[i]
		if item.Lease > usualLease {
			return u, false
		}
		if last != nil && !u.runs[len(u.runs)-1].metered && p.decidesAlike(last, item) {
			u.runs[len(u.runs)-1].items++
			continue
		}
		last = item
		no := p.operation(item)
		if no == 0 {
			return u, false
		}
		run := usualRun{first: j, items: 1, operation: no, row: u.row(no), usualTexts: p.texts(b, no, item), changes: make([]int64, len(b.Limits))}
		for _, m := range p.meters {
			amount := int64(notPoured)
			if p.registry.counts(m.limit, no) {
				amount, run.metered = m.limit.Amount(item.Units), true
			}
			run.poured = append(run.poured, amount)
		}
		for k, l := range b.Limits {
			if l.Covers(item.Operation) && (l.Window.Kind != limit.Concurrent || item.Lease > 0) {
				run.changes[k] = l.Amount(item.Units)
			}
		}
		u.runs = append(u.runs, run)
	}
	for k := range p.sums {
		if no := p.sums[k].operation; no > 0 {
			u.row(no)
		}
	}
	return u, p.size()+len(u.rows)*p.stride() <= lua.MaxNumbers && u.asked() <= lua.MaxNumbers
}

// hasTwice reports whether an id is among n twice.
func hasTwice(n int, id func(int) string) bool {
	if n < 2 {
		return false
	}
	ids := make(map[string]struct{}, n)
	for i := range n {
		ids[id(i)] = struct{}{}
	}
	return len(ids) < n
}

// settles reports whether usual.lua may settle what is to be finished, so that no other script need
// run: it does not where a window counts open reservations alone.
func (p *plan) settles(f *finishing) bool {
	return f != nil && !f.apart && !slices.ContainsFunc(f.Items, func(f driver.Finish) bool { return f.Release }) &&
		!slices.ContainsFunc(p.windows, func(w plannedWindow) bool { return w.length == 0 }) &&
		!hasTwice(len(f.Items), func(i int) string { return f.Items[i].ID })
}

// decidesAlike reports whether two items are decided alike.
func (p *plan) decidesAlike(a, b *driver.Item) bool {
	if a.Operation != b.Operation || a.Units != b.Units || a.Lease != b.Lease || a.Floor != b.Floor || a.UseHeadroom != b.UseHeadroom {
		return false
	}
	return a.Labels.Job == b.Labels.Job || len(p.registry.patterns) == 0
}

// takeUsual reads the answer of usual.lua. It returns false if that has not its form.
func (b *batch) takeUsual(u usualBatch, reply any) bool {
	packed, ok := reply.(string)
	head := 5 + len(u.settles)
	if !ok || len(packed)%8 != 0 || len(packed) < 8*(head+len(u.sums)) || (len(packed)/8-head)%len(u.sums) != 0 {
		return false
	}
	numbers := make([]int64, len(packed)/8)
	for i := range numbers {
		value := math.Float64frombits(binary.LittleEndian.Uint64([]byte(packed[8*i : 8*i+8])))
		numbers[i] = int64(value)
		if float64(numbers[i]) != value || value < 0 || value > float64(maxWhole) {
			return false
		}
	}
	clock, seen, at, changes := numbers[0], numbers[1], numbers[2], numbers[3]
	if numbers[4] > 0 {
		b.store.tidyLater(b.Batch, u.rows)
	}
	charged := (len(numbers) - head) / len(u.sums)
	if charged > len(u.runs) || clock == 0 || at == 0 {
		return false
	}
	b.store.learnAt(b.Budget, clock)
	for i := range u.settles {
		b.before.done[i] = driver.Finished{Result: driver.Settled, At: numbers[5+i], Now: earlierClock(clock, b.Now)}
	}
	if len(u.settles) > 0 {
		b.before.open = nil
		b.finished()
	}
	used := make([]int64, len(b.Limits))
	done := 0
	for r, run := range u.runs[:charged] {
		after := numbers[head+r*len(u.sums):]
		for k := range run.items {
			i := b.open[run.first+k]
			left := int64(run.items - k - 1)
			for of := range u.sums {
				used[of] = after[of] - left*run.changes[of]
			}
			d := driver.Decision{Result: driver.Granted, Units: b.Items[i].Units, At: at + int64(done)}
			d.Limit, d.Remaining = driver.LeastRemaining(b.Limits, b.Items[i], func(l int) int64 { return used[l] })
			b.decided.Items[i] = d
			done++
		}
	}
	b.decided.Now = earlierClock(clock, b.Now)
	b.decided.Mark = driver.Mark{Ledger: u.told.mark.Ledger, Changes: changes, ID: b.Items[b.open[done-1]].ID, At: at + int64(done) - 1, Seen: seen, Kept: u.told.mark.Kept}
	b.decided.AtWork = u.told.atWork(seen)
	b.decided.Seen, b.decided.Used = seen, used
	b.open, b.seen = b.open[done:], seen
	return true
}
