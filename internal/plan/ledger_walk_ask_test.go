package plan

import (
	"context"
	"errors"
	"slices"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// look asks whether what a run needs would fit, as package jobs does.
func (w *walker) look() {
	q, needs := w.question(), budget.Needs{}
	q.look, q.needs = true, nil
	operations := []string{"channels.list", "search.list", "videos.list", "videos.rate"}
	if w.IntN(4) == 0 {
		operations = []string{""}
	}
	for _, operation := range operations {
		if calls := w.Int64N(4); calls > 0 {
			needs[operation] = calls
			price := walkPrices[operation]
			if operation == "" {
				price = 1
			}
			q.needs = append(q.needs, driver.Need{Operation: operation, Units: price * calls, Calls: calls})
		}
	}
	if len(needs) == 0 {
		return
	}
	if q.several() {
		q.lasts = 1
	}
	no := w.ledger.decide(&q, w.now(), &w.scratch)
	err := w.budget.Room(context.Background(), needs, budget.Call{Floor: q.floor, Labels: budget.Labels{Job: q.job}})
	refused := new(budget.RefusedError)
	if errors.As(err, &refused); (no == nil) != (err == nil) {
		w.t.Errorf("step %d: look for %+v: the plan says %+v, the budget %v\n%s", w.step, q, no, err, w.shown())
		return
	}
	w.notBefore(&q, no)
	if no == nil || no.never || errors.Is(err, budget.ErrNeverFits) || len(w.holds) > 0 {
		return
	}
	w.counts["look refused"]++
	hold := w.decide(driver.Item{Needs: q.needs, Span: 1, Floor: q.floor, Labels: driver.Labels{Job: q.job}, DryRun: true}).Items[0]
	if hold.Result == driver.NeverFits {
		return // and the budget names no instant
	}
	at := no.at
	if no.multi {
		if hold.Result == driver.Refused {
			return // by the next period, which the look does not see: the budget names when that has changed
		}
		at = no.next
		w.counts["several calls in a bucket"]++
	}
	if slices.ContainsFunc(w.scratch, func(t taken) bool { return t.whole == 0 }) || no.lock && slices.ContainsFunc(w.limits, func(l limit.Limit) bool { return l.Name == no.limit && l.Window.Shortest() == 0 }) {
		return // the budget names the instant for the limits that can hold the calls
	}
	if at != refused.RetryAt.UnixMicro() && q.needs[0].Operation != "" {
		w.t.Errorf("step %d: look for %+v: the plan says %s, %+v, the budget %v, at %s\n%s", w.step, q, instant(at), no, err, refused.RetryAt, w.shown())
	}
}

// group compares calls that are charged together with the same calls one by one.
func (w *walker) group() {
	q := w.question()
	one, n := q.needs[0], 1+w.Int64N(5)
	if len(w.holds) > 0 && w.IntN(2) == 0 {
		q.own = w.holds[w.IntN(len(w.holds))].hold
		q.job = q.own.job
	}
	finish := w.now() + w.Int64N(2)*w.Int64N(60e6)
	if finish > w.now() {
		q.lasts = 60e6
	}
	single, together := w.ledger.copy(&q), w.ledger.copy(&q)
	fits := int64(0)
	for ; fits < n && single.l.decide(&single.q, w.now(), &w.scratch) == nil; fits++ {
		single.l.take(&single.q, w.scratch, finish, w.now()+q.lasts)
	}
	together.q.needs = []driver.Need{{Operation: one.Operation, Units: n * one.Units, Calls: n}}
	no := together.l.decide(&together.q, w.now(), &w.scratch)
	if no != nil && q.own != nil && q.floor > 0 { // together they may never fit beside the floor: then they are made one by one
		return
	}
	if (no == nil) != (fits == n) {
		w.t.Errorf("step %d: %d of %d calls %+v fit one by one, together they are refused: %+v\n%s", w.step, fits, n, q, no, w.shown())
		return
	}
	if no != nil {
		return
	}
	w.counts["group"]++
	together.l.take(&together.q, w.scratch, finish, w.now()+q.lasts)
	for i, a := range single.l.counters {
		b := together.l.counters[i]
		if a.used != b.used || !slices.Equal(a.shares, b.shares) || single.l.held(a).used != together.l.held(b).used || a.least != b.least {
			w.t.Errorf("step %d: %d calls %+v come to %d %v one by one, and to %d %v together\n%s", w.step, n, q, a.used, a.shares, b.used, b.shares, w.shown())
		}
	}
}

// copied is a ledger of its own, with a question to it.
type copied struct {
	l *ledger
	q ask
}

func (l *ledger) copy(q *ask) copied {
	other := &ledger{now: l.now, locks: l.locks, claims: map[caller][]claim{}}
	asked := *q
	asked.needs = slices.Clone(q.needs)
	for _, c := range l.counters {
		one := *c
		one.queue, one.shares = slices.Clone(c.queue), slices.Clone(c.shares)
		other.counters = append(other.counters, &one)
	}
	for _, h := range l.holds {
		one := *h
		one.Left = slices.Clone(h.Left)
		other.holds = append(other.holds, &one)
		if h == q.own {
			asked.own = &one
		}
	}
	return copied{other, asked}
}
