package plan

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// TestLedgerIsAStore asks a plan's ledger and the reference store the same random questions at the same instants. They
// say the same: whether something fits, what every limit and share has used, and when what was refused fits, except
// beside holds, where a plan only says when somebody asks again.
func TestLedgerIsAStore(t *testing.T) {
	effort.Unraced(t)
	seed := effort.Seed(t)
	counts := map[string]int{}
	walks := effort.Of[uint64](300, 600, 3000)
	for i := range walks {
		synctest.Test(t, func(t *testing.T) {
			w := newWalker(t, seed+i, counts)
			for w.step = range 120 {
				w.pass()
				w.act()
				w.compare()
			}
		})
		if t.Failed() {
			t.Fatalf("the ledger of seed %d; to begin with it: %s", seed+i, effort.Repeat(t, seed+i))
		}
	}
	t.Logf("%v", counts)
	for _, must := range []string{
		"fits", "refused", "locked", "never", "drawn", "held", "hold refused", "look refused", "group", "by rolling", "by coarse", "by calendar",
		"by guarded", "by bucket", "by concurrent", "by a share", "by a lapse", "together", "in the next period", "one of an operation", "several calls in a bucket",
	} {
		if walks >= 600 && counts[must] == 0 {
			t.Errorf("the walk never came by %q: it shows less than it should", must)
		}
	}
}

// walker is a plan's ledger beside a store.
type walker struct {
	*rand.Rand
	t      *testing.T
	counts map[string]int
	step   int

	store  *memstore.Store
	budget *budget.Budget
	limits []limit.Limit
	ledger *ledger
	spans  []int64 // for choosing steps of time, µs

	open    []openCall
	holds   []walkHold
	refused []refusedBefore
	scratch []taken
}

// openCall is a reservation that is settled at an instant.
type openCall struct {
	id    string
	at    int64
	units int64
}

// walkHold is a hold in both.
type walkHold struct {
	fence string
	hold  *hold
}

// refusedBefore is a question that cannot fit before an instant.
type refusedBefore struct {
	q       ask
	soonest int64
}

var (
	walkPrices = map[string]int64{"search.list": 10, "videos.list": 1, "videos.rate": 3, "channels.list": 0}
	walkJobs   = []string{"", "nightly", "feeds.us", "feeds.eu", "backfill"}
)

func newWalker(t *testing.T, seed uint64, counts map[string]int) *walker {
	w := &walker{Rand: rand.New(rand.NewPCG(seed, 5)), t: t, counts: counts} //nolint:gosec // repeatable on purpose
	year := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if w.IntN(2) == 0 { // a change of the clock is near
		year = time.Date(2026, []time.Month{3, 4, 10, 11}[w.IntN(4)], 1+w.IntN(8), 0, 0, 0, 0, time.UTC)
	}
	time.Sleep(time.Until(year) + time.Duration(w.Int64N(300*24*3600e6))*time.Microsecond/time.Duration(1+w.IntN(100)))
	w.store = memstore.New(nil)
	spec := budget.Spec{Name: "walk/key", Costs: map[string]budget.Cost{}, Timeout: time.Minute}
	for operation, price := range walkPrices {
		spec.Costs[operation] = budget.Cost{Units: price}
	}
	for i := range 1 + w.IntN(4) {
		spec.Limits = append(spec.Limits, w.limit(i))
	}
	w.budget = must.Get(budget.New(w.store, spec))(t)
	one := newBudget(spec.Name, spec)
	w.limits = one.Limits
	w.ledger = one.ledger(w.now(), nil)
	w.decide() // the windows live from now on
	return w
}

func (w *walker) now() int64 { return time.Now().UnixMicro() }

// pass lets time pass, often to an instant at which something changes; what ends meanwhile is settled.
func (w *walker) pass() {
	by := 1 + w.Int64N(60e6)
	if len(w.spans) > 0 && w.IntN(2) == 0 {
		by = 1 + w.Int64N(w.spans[w.IntN(len(w.spans))]/[]int64{1, 3, 20}[w.IntN(3)]+1)
	}
	at := w.now() + by
	if n := w.IntN(6); n < 2 && len(w.refused) > 0 {
		at = max(w.now()+1, w.refused[w.IntN(len(w.refused))].soonest-int64(n))
	}
	for _, c := range w.ledger.counters {
		if c.limit.Window.Kind == limit.CalendarKind && w.IntN(12) == 0 { // near a reset, or a lapse
			to := c.changes(w.now())
			at = max(w.now()+1, to-c.limit.Window.Guard-w.Int64N(2)*w.Int64N(2*c.limit.Window.Guard+2e6))
		}
	}
	at = min(at, w.now()+20*3600e6) // holds live for a day
	slices.SortStableFunc(w.open, func(a, b openCall) int { return int(a.at - b.at) })
	for len(w.open) > 0 && w.open[0].at <= at {
		w.sleepUntil(w.open[0].at)
		one := w.open[0]
		done := must.Get(driver.FinishOne(context.Background(), w.store, w.budget.Name(), w.now(), driver.Finish{ID: one.id, Units: one.units}))(w.t)
		must.Equal(w.t, done.Result, driver.Settled, "settled")
		w.open = w.open[1:]
	}
	w.sleepUntil(at)
	for _, h := range w.holds {
		must.Get(driver.Apply(context.Background(), w.store, driver.HoldChange{Budget: w.budget.Name(), Now: w.now(), Fence: h.fence, Lease: driver.MaxLease.Microseconds()}))(w.t)
	}
}

func (w *walker) sleepUntil(at int64) { time.Sleep(time.Duration(at-w.now()) * time.Microsecond) }

func (w *walker) act() {
	switch n := w.IntN(20); {
	case n < 12:
		w.call()
	case n < 15:
		w.look()
	case n < 16:
		w.takeHold()
	case n < 17 && len(w.holds) > 0:
		at := w.IntN(len(w.holds))
		h := w.holds[at]
		w.ledger.endHold(h.hold)
		must.Get(driver.Apply(context.Background(), w.store, driver.HoldChange{Budget: w.budget.Name(), Now: w.now(), Fence: h.fence}))(w.t)
		w.holds = slices.Delete(w.holds, at, at+1)
		w.refused = nil
	case n < 18 && w.IntN(4) == 0:
		w.lock()
	default:
		w.group()
	}
}

// decide asks the store.
func (w *walker) decide(items ...driver.Item) driver.Decisions {
	w.t.Helper()
	return must.Get(w.store.Decide(context.Background(), driver.Batch{Budget: w.budget.Name(), Now: w.now(), Limits: w.limits, Items: items}))(w.t)
}

// question draws a call, which may take any units.
func (w *walker) question() ask {
	operations := []string{"search.list", "videos.list", "videos.rate", "channels.list"}
	q := ask{job: walkJobs[w.IntN(len(walkJobs))]}
	n := driver.Need{Operation: operations[w.IntN(len(operations))], Calls: 1}
	if n.Units = walkPrices[n.Operation]; w.IntN(3) == 0 {
		n.Units = w.Int64N(30)
	}
	q.needs = []driver.Need{n}
	if w.IntN(6) == 0 {
		q.floor = w.Int64N(20)
	}
	return q
}

// call charges a call, or reserves it.
func (w *walker) call() {
	q := w.question()
	item := driver.Item{ID: fmt.Sprint("c", w.step), Operation: q.needs[0].Operation, Units: q.needs[0].Units, Floor: q.floor, Labels: driver.Labels{Job: q.job}}
	finish := w.now()
	if w.IntN(2) == 0 {
		item.Lease = 2 + w.Int64N([]int64{1e6, 3600e6, 20 * 3600e6}[w.IntN(3)])
		q.lasts = item.Lease
		finish += 1 + w.Int64N(item.Lease-1) // later: the store hears of it then, and is compared before
	}
	if len(w.holds) > 0 && w.IntN(2) == 0 {
		h := w.holds[w.IntN(len(w.holds))]
		q.own, q.job, item.Fence, item.Labels.Job = h.hold, h.hold.job, h.fence, h.hold.job
		w.counts["drawn"]++
	}
	no, d := w.ledger.decide(&q, w.now(), &w.scratch), w.decide(item).Items[0]
	if !w.same(&q, no, d) || no != nil {
		return
	}
	must.Equal(w.t, d.At, w.now(), "charged at")
	w.ledger.take(&q, w.scratch, finish, w.now()+item.Lease)
	if item.Lease > 0 {
		w.open = append(w.open, openCall{item.ID, finish, item.Units})
	}
}

// same compares what both say of a question.
func (w *walker) same(q *ask, no *refused, d driver.Decision) bool {
	w.t.Helper()
	want := d.Result == driver.Granted
	w.notBefore(q, no)
	if (no == nil) != want || no != nil && len(w.holds) == 0 && no.never != (d.Result == driver.NeverFits) {
		w.t.Errorf("step %d: %+v: the plan says %+v, the store %+v\n%s", w.step, *q, no, d, w.shown())
		return false
	}
	if no == nil {
		w.counts["fits"]++
		return true
	}
	w.count(q, no, d)
	if len(w.holds) > 0 || no.never {
		return true
	}
	by := ""
	if d.Limit >= 0 {
		by = w.limits[d.Limit].Name
	}
	if no.at != d.RetryAt || no.lock != d.Locked || no.limit != by {
		w.t.Errorf("step %d: %+v: the plan says at %s by %q %+v, the store at %s by %q: %+v\n%s", w.step, *q, instant(no.at), no.limit, no, instant(d.RetryAt), by, d, w.shown())
		return false
	}
	return true
}

// notBefore notes before when a question cannot fit, and holds what fits now against what was said.
func (w *walker) notBefore(q *ask, no *refused) {
	w.refused = slices.DeleteFunc(w.refused, func(r refusedBefore) bool { return r.soonest <= w.now() })
	for _, r := range w.refused {
		if w.ledger.decide(&r.q, w.now(), &w.scratch) == nil {
			w.t.Errorf("step %d: %+v fits, but not before %s, it was said\n%s", w.step, r.q, instant(r.soonest), w.shown())
		}
	}
	w.refused = w.refused[max(0, len(w.refused)-5):]
	future := q.several() && slices.ContainsFunc(w.limits, func(l limit.Limit) bool { return len(l.Lapses()) > 0 }) // which the look does not see
	if no != nil && !no.held && q.own == nil && !future {
		w.refused = append(w.refused, refusedBefore{*q, no.soonest})
	}
	w.ledger.decide(q, w.now(), &w.scratch)
}

// count notes by what a question was refused.
func (w *walker) count(q *ask, no *refused, d driver.Decision) {
	w.counts["refused"]++
	switch {
	case no.never:
		w.counts["never"]++
		return
	case no.lock:
		w.counts["locked"]++
		return
	}
	l := w.limits[d.Limit]
	kind := string(l.Window.Kind)
	switch {
	case l.Window.Precision > 0:
		kind = "coarse"
	case l.Window.Guard > 0:
		kind = "guarded"
	}
	w.counts["by "+kind]++
	for i, kept := range d.Kept {
		if kept > 0 {
			w.counts["by a share"]++
			if kept > l.InForce(w.now())[i] {
				w.counts["in the next period"]++
			}
		}
	}
	if len(l.Lapses()) > 0 && len(w.holds) == 0 {
		if from, _ := l.Window.Span(d.RetryAt); from != d.RetryAt {
			w.counts["by a lapse"]++
		}
	}
	if d.Ends > 0 {
		w.counts["together"]++
	}
	if len(q.needs) == 1 && l.Name == "l1:"+q.needs[0].Operation {
		w.counts["one of an operation"]++
	}
}

// compare compares what all limits and shares have used and hold.
func (w *walker) compare() {
	w.t.Helper()
	view := must.Get(w.store.Look(context.Background(), driver.Look{Budget: w.budget.Name(), Now: w.now(), Limits: w.limits}))(w.t)
	w.ledger.advance(w.now())
	for i, c := range w.ledger.counters {
		held := int64(0)
		for j := range view.Holds {
			held += view.Holds[j].Amount(c.limit)
		}
		if v := view.Limits[i]; v.Used != c.used || len(v.Shares) > 0 && !slices.Equal(v.Shares, c.shares) || held != w.ledger.held(c).used {
			w.t.Errorf("step %d: limit %s has used %d %v and holds %d in the plan, %d %v and %d in the store\n%s", w.step, c.limit.Name, c.used, c.shares, w.ledger.held(c).used, v.Used, v.Shares, held, w.shown())
		}
	}
}

func (w *walker) shown() string {
	text := "at " + instant(w.now()).Format(time.RFC3339Nano)
	for _, c := range w.ledger.counters {
		text += fmt.Sprintf("\n%s: %+v, shares %+v: used %d %v of %d", c.limit.Name, c.limit.Window.Key(), c.limit.Shares, c.used, c.shares, c.limit.Limit)
	}
	return text
}

// takeHold takes a hold of several operations.
func (w *walker) takeHold() {
	if len(w.holds) > 2 {
		return
	}
	q := w.question()
	q.job, q.needs, q.span = walkJobs[1+w.IntN(len(walkJobs)-1)], nil, 1+w.Int64N([]int64{5000, 3600e6, 20 * 3600e6}[w.IntN(3)])
	for _, operation := range []string{"search.list", "videos.list", "videos.rate"} {
		if calls := w.Int64N(4); calls > 0 {
			q.needs = append(q.needs, driver.Need{Operation: operation, Units: calls * walkPrices[operation], Calls: calls})
		}
	}
	if len(q.needs) == 0 {
		return
	}
	fence := driver.FenceName(q.job, int64(w.step+1))
	item := driver.Item{Needs: q.needs, Span: q.span, Lease: driver.MaxLease.Microseconds(), Fence: fence, Floor: q.floor, Labels: driver.Labels{Job: q.job}}
	q.lasts = item.Lasts()
	no := w.ledger.decide(&q, w.now(), &w.scratch)
	d := w.decide(item).Items[0]
	if !w.same(&q, no, d) {
		return
	}
	if no != nil {
		w.counts["hold refused"]++
		return
	}
	h, _ := w.ledger.takeHold(&q, w.now(), &w.scratch)
	w.holds = append(w.holds, walkHold{fence, h})
	w.counts["held"]++
}

// lock closes the budget or a limit.
func (w *walker) lock() {
	lock := driver.Lock{Budget: w.budget.Name(), Now: w.now(), Until: w.now() + 1 + w.Int64N(300e6), Most: driver.MaxLock, Why: "x", Force: true}
	if w.IntN(2) == 0 {
		lock.Limit = w.limits[w.IntN(len(w.limits))].Name
	}
	must.Get(driver.Apply(context.Background(), w.store, lock))(w.t)
	w.ledger.locks = slices.DeleteFunc(w.ledger.locks, func(other driver.LockView) bool { return other.Limit == lock.Limit })
	w.ledger.locks = append(w.ledger.locks, driver.LockView{Limit: lock.Limit, Until: lock.Until})
	w.refused = nil
}
