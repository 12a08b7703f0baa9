package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// resultAgain is a script's answer on an item that it did not come to the end
// of; the item goes with its progress into the next run.
const resultAgain = 8

// batch is a budget.Batch on its way through as many script runs as it needs.
type batch struct {
	store *Store
	budget.Batch
	started   time.Time
	deadlines deadlines
	around    int64 // the instant for which calendar periods are sent
	open      []int // items without a decision yet
	progress  []string
	retried   []bool // found late by an old idea of the server's clock
	decided   budget.Decisions
	returns   []int64 // of each limit, for a look
	looking   bool
	born      int64 // when the ledger began
	seen      int64 // the instant decided at, the clamped clock
	looks     [][]any
}

// Decide implements budget.Store.
func (s *Store) Decide(ctx context.Context, b budget.Batch) (budget.Decisions, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return budget.Decisions{}, err
	}
	defer cancel()
	run := s.newBatch(b)
	if err := run.learnClock(ctx); err != nil {
		return budget.Decisions{}, err
	}
	for {
		done, err := run.once(ctx)
		if err != nil {
			return budget.Decisions{}, err
		}
		if done {
			return run.decided, nil
		}
		if ctx.Err() != nil {
			return run.interrupted(ctx)
		}
	}
}

func (s *Store) newBatch(b budget.Batch) *batch {
	run := &batch{
		store: s, Batch: b, around: b.Now, started: time.Now(),
		progress: make([]string, len(b.Items)), retried: make([]bool, len(b.Items)),
		decided: budget.Decisions{Items: make([]budget.Decision, len(b.Items))},
	}
	for i := range b.Items {
		run.open = append(run.open, i)
	}
	if offset, known := s.clockOffset(); known {
		run.around = time.Now().UnixMicro() + offset
	}
	return run
}

// learnClock asks for the server's clock when a deadline needs it and no answer
// has told it yet.
func (b *batch) learnClock(ctx context.Context) error {
	_, known := b.store.clockOffset()
	for i := 0; !known && i < len(b.Items); i++ {
		if !b.Items[i].Deadline.IsZero() {
			if err := b.store.probe(ctx, b.Budget); err != nil {
				return err
			}
			known = true
		}
	}
	b.deadlines = b.store.deadlines(b.Now, b.started)
	return nil
}

// once runs the script once on what is open. True when all is decided.
func (b *batch) once(ctx context.Context) (bool, error) {
	a, err := b.store.ask(ctx, b.doing(), b.Budget, b.store.scripts.charge, b.nextRegistry(), b.args())
	if err != nil {
		return false, err
	}
	b.decided.Now = a.now
	switch a.status {
	case statusPeriods:
		b.around = numberAt(a.rest, 0)
		return false, nil
	case statusAgain, statusRegistry:
		return false, nil
	}
	if r, added := b.store.registry(b.Budget).with(b.openItems()); len(added) > 0 {
		b.store.remember(b.Budget, r.names)
	}
	b.born, b.seen, b.looks = numberAt(a.rest, 1), numberAt(a.rest, 2), lists(a.rest, 3)
	answers := lists(a.rest, 0)
	if len(answers) != len(b.open) {
		return false, b.store.strange(b.doing(), b.Budget, a.rest)
	}
	var open []int
	for j, i := range b.open {
		if b.take(i, answers[j], a.now) {
			continue
		}
		open = append(open, i)
	}
	b.open = open
	return len(open) == 0, nil
}

// doing is what errors say was being done.
func (b *batch) doing() string {
	if b.looking {
		return "look at"
	}
	return "charge"
}

// take reads one item's answer. False when it must be asked again.
func (b *batch) take(i int, answer []any, now int64) bool {
	result := numberAt(answer, 0)
	if result == resultAgain {
		b.progress[i] = text(answer, 5)
		return false
	}
	if budget.Result(result) == budget.Late && !b.retried[i] && b.Items[i].Deadline.UnixMicro()-b.Now > 0 {
		// It was in time here: perhaps the server's clock was set. Its answer
		// tells what it shows now.
		b.retried[i] = true
		b.store.forgetOffset()
		b.store.learnAt(now)
		b.deadlines = b.store.deadlines(b.Now, b.started)
		if b.deadlines.of(b.Items[i].Deadline) > now {
			return false
		}
	}
	b.decided.Items[i] = b.decision(b.Items[i], budget.Result(result), answer)
	return true
}

// decision puts a script's answer into the caller's terms.
func (b *batch) decision(item budget.Item, result budget.Result, answer []any) budget.Decision {
	d := budget.Decision{Result: result, Limit: -1}
	used := func(i int) int64 { return numberAt(answer, 6+2*i) }
	switch result {
	case budget.Granted:
		d.Replayed, d.Units, d.At = numberAt(answer, 1) == 1, numberAt(answer, 2), numberAt(answer, 3)
		d.Limit, d.Remaining = b.least(item, used)
	case budget.NeverFits:
		d.Limit = int(numberAt(answer, 4)) - 1
		if d.Limit >= 0 && d.Limit < len(b.Limits) {
			d.Remaining = b.Limits[d.Limit].Remaining(used(d.Limit))
		}
	case budget.Refused:
		for i, limit := range b.Limits {
			score := numberAt(answer, 7+2*i)
			if score == 0 {
				continue
			}
			if at := limit.Window.Returns(score); d.Limit < 0 || at > d.RetryAt {
				d.Limit, d.RetryAt, d.Remaining = i, at, limit.Remaining(used(i))
			}
		}
	}
	return d
}

// least is the covering limit with the least left: limits that count units come
// first.
func (b *batch) least(item budget.Item, used func(int) int64) (limit int, left int64) {
	limit = -1
	for _, calls := range []bool{false, true} {
		for i, l := range b.Limits {
			if (l.Counts == budget.CountCalls) != calls || !l.Covers(item.Operation) {
				continue
			}
			if remaining := l.Remaining(used(i)); limit < 0 || remaining < left {
				limit, left = i, remaining
			}
		}
		if limit >= 0 {
			break
		}
	}
	return limit, left
}

// interrupted is the answer when the deadline came before everything was known:
// what was decided stands.
func (b *batch) interrupted(ctx context.Context) (budget.Decisions, error) {
	if len(b.open) == len(b.Items) && errors.Is(ctx.Err(), context.Canceled) {
		return budget.Decisions{}, ctx.Err()
	}
	for _, i := range b.open {
		b.decided.Items[i] = budget.Decision{Result: budget.Interrupted, Limit: -1}
	}
	return b.decided, nil
}

func (b *batch) openItems() []budget.Item {
	items := make([]budget.Item, 0, len(b.open))
	for _, i := range b.open {
		items = append(items, b.Items[i])
	}
	return items
}

// nextRegistry has the operations that the run will register.
func (b *batch) nextRegistry() registry {
	r, _ := b.store.registry(b.Budget).with(b.openItems())
	return r
}

// args are the arguments of charge.lua; its head tells them.
func (b *batch) args() []any {
	known := b.store.registry(b.Budget)
	r, added := known.with(b.openItems())
	windows, places := windowArgs(b.Limits, b.around)
	looking := 0
	if b.looking {
		looking = 1
	}
	args := []any{len(known.names), strings.Join(added, ","), b.store.maxSteps, b.Now, len(windows) / 5, len(b.Limits), len(b.open), looking}
	args = append(args, windows...)
	for i, limit := range b.Limits {
		args = append(args, places[i], countsLetter(limit), r.covered(limit))
		if b.looking {
			args = append(args, b.returns[i])
		}
	}
	for _, i := range b.open {
		item := b.Items[i]
		args = append(args, item.ID, r.number(item.Operation), item.Units, item.Lease, b.deadlines.of(item.Deadline), labelText(item.Labels), b.progress[i])
		for _, limit := range b.Limits {
			if limit.Covers(item.Operation) {
				args = append(args, limit.Bound(item.Floor, item.UseHeadroom))
			} else {
				args = append(args, "")
			}
		}
	}
	return args
}
