package refusals

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// mostKept is how many refusals a memory keeps: the latest.
const mostKept = 64

// setBack is how much less than the monotonic clock the wall clock may have advanced: it is
// read a little earlier.
const setBack = time.Millisecond

// memory keeps the refusals of one budget, or of several with one hash.
type memory struct {
	mu      sync.Mutex // guards all below
	changes uint64     // how often this process gave something back, as far as it has seen
	list    []refusal  // the oldest first
	// seen is the latest instant that a ledger had last seen in an answer; seenOf is its
	// budget.
	seen   int64
	seenOf string
}

// refusal is a refusal of the store.
type refusal struct {
	budget string
	asker  asker
	limits []limit.Limit // those that checked the call
	shares []int         // the call's share of each, as limit.Limit.ShareOf says
	units  int64

	decision driver.Decision
	binds    string // the name of the limit that binds; empty: the whole budget is locked

	// asked is before the store was asked, and heard when it had answered; now is the
	// store's clock in between, and witness the caller's wall clock, both in µs.
	asked, heard time.Time
	now, witness int64
	lasts        time.Duration // from asked on
}

// asker is what else a decision depends on.
type asker struct {
	lease, floor         int64
	useHeadroom, observe bool
	fence                string
	region, operation    string // with a fence: what it may draw from its pass's hold
	policy               driver.Policy
}

func askerOf(batch driver.Batch, item driver.Item) asker {
	one := asker{lease: item.Lease, floor: item.Floor, useHeadroom: item.UseHeadroom, observe: batch.Observe, fence: item.Fence, policy: item.OnStoreError}
	if item.Fence != "" {
		one.region, one.operation = item.Labels.Region, item.Operation
	}
	return one
}

// found are the answers that a memory has for a batch; those of the other items have no
// Result. now estimates the store's clock.
type found struct {
	items []driver.Decision
	now   int64
}

// answers looks for remembered refusals of a batch that is asked at an instant; nil: there
// are none. changes goes to learn.
func (m *memory) answers(batch driver.Batch, at time.Time) (answers *found, changes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.list) == 0 {
		return nil, m.changes
	}
	m.list = slices.DeleteFunc(m.list, func(r refusal) bool { return at.Sub(r.asked) >= r.lasts })
	for i, item := range batch.Items {
		best := m.find(batch, item, at)
		if best == nil {
			continue
		}
		if answers == nil {
			answers = &found{items: make([]driver.Decision, len(batch.Items))}
		}
		answers.items[i] = best.decision
		answers.items[i].Limit = slices.IndexFunc(batch.Limits, func(l limit.Limit) bool { return l.Name == best.binds })
		answers.items[i].Remembered = true
		answers.now = max(answers.now, best.now+at.Sub(best.heard).Microseconds())
	}
	return answers, m.changes
}

// find returns the refusal that says most about an item: the one of most units.
func (m *memory) find(batch driver.Batch, item driver.Item, at time.Time) (best *refusal) {
	if !item.NewID || item.IsHold() || item.Recorded || item.DryRun || !item.Deadline.IsZero() && item.Deadline.UnixMicro() < batch.Now {
		return nil
	}
	for i := range m.list {
		if r := &m.list[i]; r.budget == batch.Budget && (best == nil || r.units > best.units) && r.refuses(batch, item, at) {
			best = r
		}
	}
	return best
}

// refuses reports whether the store would refuse an item at an instant, as it refused the
// call that r is of, if nobody has given anything back.
func (r *refusal) refuses(batch driver.Batch, item driver.Item, at time.Time) bool {
	// The wall clock counts beside the monotonic one, because a store may go by it, and
	// because it goes on while the machine is suspended. If it was set back, the store may
	// go by its own clock now.
	wall := time.Duration(batch.Now-r.witness) * time.Microsecond
	if wall >= r.lasts || wall < at.Sub(r.asked)-setBack || at.Before(r.heard) {
		return false
	}
	if item.Units < r.units || r.asker != askerOf(batch, item) {
		return false
	}
	next := 0
	for i := range batch.Limits {
		l := &batch.Limits[i]
		switch {
		case !item.CheckedBy(*l):
			continue
		case next == len(r.limits) || l.Name != r.limits[next].Name || !reflect.DeepEqual(*l, r.limits[next]):
			return false
		case l.ShareOf(item.Labels.Job) != r.shares[next]:
			return false
		case !l.Observe && item.NeverFits(*l, false), item.Units > r.units && item.WaitsForLapses(*l):
			return false // waiting may not help a call of more units, which the store must say
		}
		next++
	}
	return next == len(r.limits)
}

// learn remembers what the store refused of a batch that was asked at an instant, when this
// process had seen so many changes.
func (m *memory) learn(batch driver.Batch, decided driver.Decisions, span time.Duration, asked time.Time, changes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seenOf != batch.Budget {
		m.seen, m.seenOf = 0, batch.Budget
	}
	// Charges in one microsecond take the following ones, so a ledger may have seen an
	// instant before the clock gets there.
	m.seen = max(m.seen, decided.Seen)
	m.list = slices.DeleteFunc(m.list, func(r refusal) bool { return r.budget == batch.Budget && r.decision.RetryAt <= m.seen })
	if m.changes != changes { // it may have been refused before
		return
	}
	heard := time.Time{}
	for i, d := range decided.Items {
		item := batch.Items[i]
		if d.Result != driver.Refused || d.Recovering || d.Allowance || d.Unsure || item.DryRun || item.IsHold() || d.RetryAt <= m.seen {
			continue
		}
		if heard.IsZero() {
			heard = time.Now()
		}
		wait := d.RetryAt - decided.Now
		wait -= wait/1000 + 1 // the store's clock may be faster, and was cut to a microsecond
		if wait <= 0 {
			continue
		}
		r := refusal{
			budget: batch.Budget, asker: askerOf(batch, item), units: item.Units, decision: d,
			asked: asked, heard: heard, now: decided.Now, witness: batch.Now,
			lasts: time.Duration(min(span.Microseconds(), wait)) * time.Microsecond,
		}
		if d.Limit >= 0 {
			r.binds = batch.Limits[d.Limit].Name
		}
		for _, l := range batch.Limits {
			if item.CheckedBy(l) {
				r.limits, r.shares = append(r.limits, l), append(r.shares, l.ShareOf(item.Labels.Job))
			}
		}
		m.keep(r)
	}
}

// keep adds a refusal in place of one of the same call, or of the oldest.
func (m *memory) keep(r refusal) {
	m.list = slices.DeleteFunc(m.list, func(old refusal) bool { return old.sameCall(r) })
	if len(m.list) == mostKept {
		m.list = slices.Delete(m.list, 0, 1)
	}
	m.list = append(m.list, r)
}

func (r refusal) sameCall(other refusal) bool {
	return r.budget == other.budget && r.units == other.units && r.asker == other.asker &&
		slices.Equal(r.shares, other.shares) && slices.EqualFunc(r.limits, other.limits, func(a, b limit.Limit) bool { return a.Name == b.Name })
}

// forget forgets all, and what is being decided now.
func (m *memory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	m.list = nil
}
