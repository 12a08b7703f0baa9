package jobs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
)

// edge is where the operations of all processes reach the store, one at a time. It counts by
// itself what is charged, and after each that may change the ledger compares the ledger with that count.
type edge struct {
	t      *testing.T
	name   string // of the budget
	limits []limit.Limit
	clock  *skewed // of the store and all processes
	host   bool    // the processes record what their host's allowance let them spend in an outage

	mu      sync.Mutex // guards all below, and is held while an operation is applied
	store   *memstore.Store
	charged map[string]charged
	holders map[string]*process // who took the holds of a fence
	fenced  map[string]bool
	drawn   map[string]drawn // by the ids of charges
	reset   int64            // when somebody reset the ledger last, µs
	counts  edgeCounts
	changed bool // the ledger, since it was last checked
	failed  int
}

// edgeCounts are what happened at the edge.
type edgeCounts struct{ holds, draws, ended, renewed, settled, released, fences, refused, fencedOff, recorded int }

// charged is what a granted charge counts as, and from when.
type charged struct {
	units, score int64
	job          string
	recorded     bool // after an outage: no limit refuses it
}

// drawn is what a charge drew from the hold of a fence and region.
type drawn struct {
	fence, region string
	need          driver.Need
}

func newEdge(w *world, clock *skewed) *edge {
	return &edge{
		t: w.t, name: "youtube/key1", limits: w.options.Budgets["youtube/key1"].Spec().Limits, store: w.store,
		clock: clock, charged: map[string]charged{}, holders: map[string]*process{}, fenced: map[string]bool{}, drawn: map[string]drawn{},
	}
}

func (e *edge) now() int64 { return e.clock.now().UnixMicro() }

// fail reports what is wrong; only the first few, since one fault shows at each operation.
func (e *edge) fail(format string, args ...any) {
	e.t.Helper()
	if e.failed++; e.failed <= 3 {
		e.t.Errorf("at %s: "+format, append([]any{time.Since(midnight)}, args...)...)
	}
}

// decide has the store decide item by item, as if other callers came between any two.
func (e *edge) decide(p *process, batch driver.Batch, most int) (all driver.Decisions, err error) {
	e.changed = true
	finished, err := e.finish(driver.Finishes{Budget: batch.Budget, Now: batch.Now, Items: batch.Finishes})
	if err != nil {
		return driver.Decisions{}, err
	}
	batch.Finishes = nil
	defer func() { all.Finished = finished }()
	items := batch.Items[:min(most, len(batch.Items))]
	if len(items) == 0 {
		return e.store.Decide(context.Background(), batch)
	}
	for i := range items {
		batch.Items = items[i : i+1]
		before, lookErr := e.viewAt(batch.Now)
		one, err := e.store.Decide(context.Background(), batch)
		if err != nil {
			return driver.Decisions{}, err
		}
		after, err := e.viewAt(batch.Now)
		if err = errors.Join(lookErr, err); err != nil {
			e.fail("look: %v", err)
		}
		e.decided(p, batch, items[i], one.Items[0], before)
		e.draws(items[i], one.Items[0], before, after)
		one.Items = append(all.Items, one.Items...)
		all = one
	}
	return all, nil
}

// decided counts what an item was granted, and checks a refusal.
func (e *edge) decided(p *process, batch driver.Batch, item driver.Item, d driver.Decision, before driver.View) {
	switch {
	case d.Result == driver.Refused && d.Limit >= 0 && !d.Locked && !d.Recovering:
		e.counts.refused++
		e.refused(batch.Limits[d.Limit], item, before, batch.Now)
	case d.Result == driver.Fenced:
		e.counts.fencedOff++
	case d.Result != driver.Granted || item.DryRun:
	case item.IsHold():
		e.counts.holds++
		e.holders[item.Fence] = p
		if e.fenced[item.Fence] {
			e.fail("%s holds for %s, which is fenced off", p.name, item.Fence)
		}
	case d.Replayed:
		if _, known := e.charged[item.ID]; !known {
			e.fail("%s is a replay of a charge that nobody made", item.ID)
		}
	case item.Recorded && !e.host:
		e.fail("%s is recorded, though there is no allowance", item.ID)
	case item.Recorded && d.At+item.Lease <= e.reset: // it leaves no trace
		e.counts.recorded++
	default:
		if _, twice := e.charged[item.ID]; twice {
			e.fail("%s is charged twice", item.ID)
		}
		if e.fenced[item.Fence] && !item.Recorded {
			e.fail("%s is charged although its pass %s is fenced off", item.ID, item.Fence)
		}
		if item.Recorded {
			e.counts.recorded++
		}
		e.charged[item.ID] = charged{item.Units, d.At + item.Lease, item.Labels.Job, item.Recorded}
	}
}

// ownOf is the hold that an item draws from.
func ownOf(list []driver.Hold, item driver.Item) *driver.Hold {
	holds := make([]*driver.Hold, len(list))
	for i := range list {
		holds[i] = &list[i]
	}
	return driver.HoldOf(holds, item)
}

// refused fails if what is used and what the living hold leave room for a refused item, whose
// caller's clock stood at now.
func (e *edge) refused(l limit.Limit, item driver.Item, before driver.View, now int64) {
	takes := item.Amount(l)
	floor := item.Floor
	if own := ownOf(before.Holds, item); own != nil && driver.CountsHold(l, own.Span) {
		takes -= driver.AmountOf(l, []driver.Need{own.Draw(item)})
		if takes == 0 {
			floor = 0
		}
	}
	for i, one := range e.limits {
		if one.Name != l.Name {
			continue
		}
		room := l.Bound(floor, item.UseHeadroom) - before.Limits[i].Used
		for _, h := range before.Holds {
			if by := e.holders[h.Fence]; by == nil || !by.lapsed(now) {
				room -= h.Amount(l)
			}
		}
		if takes <= room {
			e.fail("%d units of %s for %q are refused by %s, which has room for %d beside what the living hold: %+v", takes, item.Operation, item.Labels.Job, l.Name, room, before.Holds)
		}
	}
}

// draws checks what a decision took from the hold: nothing, but what a charge of its pass has
// drawn; and that the rest of a charge that is not recorded fits.
func (e *edge) draws(item driver.Item, d driver.Decision, before, after driver.View) {
	own := ownOf(before.Holds, item)
	took := driver.Need{Operation: item.Operation}
	traceless := item.DryRun || d.Replayed || item.Recorded && d.At+item.Lease <= e.reset
	if own != nil && d.Result == driver.Granted && !traceless {
		took = own.Draw(item)
		e.drawn[item.ID] = drawn{own.Fence, own.Region, took}
		e.counts.draws++
	}
	if d.Result == driver.Granted && !traceless && !item.Recorded {
		e.fits(item, own, took, after)
	}
	for _, h := range before.Holds {
		want := h.Left
		if own != nil && h.Fence == own.Fence && h.Region == own.Region {
			want = less(want, took)
		}
		e.left(h, want, after)
	}
}

// fits fails if what a charge or a hold takes beside its draw has led beyond a limit.
func (e *edge) fits(item driver.Item, own *driver.Hold, took driver.Need, after driver.View) {
	for i, l := range e.limits {
		takes := item.Amount(l)
		if own != nil && driver.CountsHold(l, own.Span) {
			takes -= driver.AmountOf(l, []driver.Need{took})
		}
		sum := after.Limits[i].Used
		for _, h := range after.Holds {
			sum += h.Amount(l)
		}
		if takes > 0 && item.CheckedBy(l) && sum > l.Bound(0, item.UseHeadroom) {
			e.fail("%d of %s were granted, and %d are used and held then: %+v", takes, l.Name, sum, item)
		}
	}
}

// less is what is left of a hold without a draw.
func less(left []driver.Need, draw driver.Need) []driver.Need {
	left = slices.Clone(left)
	for i := range left {
		if left[i].Operation == draw.Operation {
			left[i].Units -= draw.Units
			left[i].Calls -= draw.Calls
		}
	}
	return left
}

// left fails unless a hold has as much left as it should.
func (e *edge) left(h driver.Hold, want []driver.Need, now driver.View) {
	for _, found := range now.Holds {
		if found.Fence == h.Fence && found.Region == h.Region {
			if !slices.Equal(found.Left, want) {
				e.fail("the hold of %s %s has %+v left, want %+v", h.Fence, h.Region, found.Left, want)
			}
			return
		}
	}
	e.fail("the hold of %s %s is gone", h.Fence, h.Region)
}

// finish has the store end reservations, one by one, and counts what that changes.
func (e *edge) finish(finishes driver.Finishes) (all []driver.Finished, err error) {
	for _, f := range finishes.Items {
		done, err := e.finishOne(finishes, f)
		if err != nil {
			return nil, err
		}
		all = append(all, done)
	}
	return all, nil
}

func (e *edge) finishOne(of driver.Finishes, f driver.Finish) (driver.Finished, error) {
	e.changed = true
	before := e.view()
	done, err := driver.FinishOne(context.Background(), e.store, of.Budget, of.Now, f)
	if err != nil {
		return done, err
	}
	back, drew := e.drawn[f.ID]
	switch {
	case done.Result == driver.Settled:
		back.need.Units, back.need.Calls = min(back.need.Units, max(0, e.charged[f.ID].units-f.Units)), 0
	case done.Result != driver.Released:
		drew = false
	}
	if done.Replayed {
		drew = false
	}
	after := e.view()
	for _, h := range before.Holds {
		want := h.Left
		if drew && h.Fence == back.fence && h.Region == back.region {
			want = less(want, driver.Need{Operation: back.need.Operation, Units: -back.need.Units, Calls: -back.need.Calls})
		}
		e.left(h, want, after)
	}
	switch done.Result {
	case driver.Settled:
		e.counts.settled++
		ended := e.charged[f.ID]
		ended.units, ended.score = f.Units, done.At
		e.charged[f.ID] = ended
	case driver.Released:
		e.counts.released++
		delete(e.charged, f.ID)
	}
	return done, nil
}

// change has the store make a change, and notes what that ends.
func (e *edge) change(c driver.Change) (driver.Changed, error) {
	e.changed = true
	changed, err := e.store.Change(context.Background(), c)
	if err != nil {
		return changed, err
	}
	switch c := c.(type) {
	case driver.Lock:
		if e.holders[c.Limit] != nil || c.Force {
			e.counts.fences++
			e.fenced[c.Limit] = true
		}
	case driver.Unlock:
		delete(e.fenced, c.Limit)
	case driver.Reset:
		e.reset = e.now()
		clear(e.charged)
		clear(e.fenced)
		clear(e.drawn)
	case driver.HoldChange:
		if c.Lease > 0 {
			e.counts.renewed++
		} else {
			e.counts.ended++
		}
	}
	return changed, nil
}

func (e *edge) view() driver.View {
	view, err := e.viewAt(e.now())
	if err != nil {
		e.fail("look: %v", err)
	}
	return view
}

// viewAt is the ledger as a caller finds it whose clock stood at an instant when it asked: a
// hold that has ended since still counts for what it asked. Long ago is an error, as for what
// it asked.
func (e *edge) viewAt(now int64) (driver.View, error) {
	view, err := e.store.Look(context.Background(), driver.Look{Budget: e.name, Now: now, Limits: e.limits})
	if err != nil {
		view.Limits = make([]driver.LimitView, len(e.limits))
	}
	return view, err
}

// checkChanged is check, unless nothing has changed since.
func (e *edge) checkChanged() {
	if e.changed {
		e.check()
	}
}

// check compares the ledger with the count, and what is used and held with the limits, which
// only what hosts recorded after an outage may exceed.
func (e *edge) check() {
	e.changed = false
	view := e.view()
	for i, l := range e.limits {
		want, recorded, held := int64(0), int64(0), int64(0)
		cut := l.Window.Cut(view.Now)
		for _, c := range e.charged {
			if c.score <= cut {
				continue
			}
			want += l.Amount(c.units)
			if c.recorded {
				recorded += l.Amount(c.units)
			}
		}
		for _, h := range view.Holds {
			held += h.Amount(l)
		}
		if used := view.Limits[i].Used; used != want {
			e.fail("%s has used %d, and %d were charged", l.Name, used, want)
		} else if used+held > l.Limit+recorded {
			e.fail("%s has used %d and held %d of %d, and %d were recorded", l.Name, used, held, l.Limit, recorded)
		}
	}
	for _, h := range view.Holds {
		for _, n := range h.Left {
			if n.Units < 0 || n.Calls < 0 {
				e.fail("a hold has %+v left", n)
			}
		}
		switch by := e.holders[h.Fence]; {
		case by == nil:
			e.fail("nobody took the hold of %s", h.Fence)
		case by.lapsed(e.now()):
			e.fail("the hold of %s outlives its process %s: it ends at %s", h.Fence, by.name, time.UnixMicro(h.Until).Sub(midnight))
		case e.fenced[h.Fence]:
			e.fail("the hold of %s outlives its fence", h.Fence)
		}
	}
}

// look is check, at an instant at which nothing is applied. It returns what is held.
func (e *edge) look() []driver.Hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.check()
	return e.view().Holds
}

// spentByJobs is how many units the daemons' passes have charged.
func (e *edge) spentByJobs() (units int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.charged {
		if c.job != "" {
			units += c.units
		}
	}
	return units
}
