package memstore

import (
	"context"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// hold is a hold by its definition: what was asked, and everything drawn from it since.
type hold struct {
	item         driver.Item
	since, until int64
	draws        []*draw
}

// draw is what a charge took from a hold, less what it gave back.
type draw struct {
	id           string
	operation    string
	units, calls int64
}

// left is what the hold has left of each operation, in the order of its needs.
func (h *hold) left() []driver.Need {
	list := slices.Clone(h.item.Needs)
	for i := range list {
		for _, d := range h.draws {
			if d.operation == list[i].Operation {
				list[i].Units -= d.units
				list[i].Calls -= d.calls
			}
		}
	}
	return list
}

func (h *hold) named(fence, region string) bool {
	return h.item.Fence == fence && h.item.Labels.Region == region
}

// counted is what a limit counts of needs of a pass that takes span.
func counted(lim limit.Limit, span int64, needs []driver.Need) (amount int64) {
	if lim.Window.Kind != limit.Rolling && lim.Window.Kind != limit.CalendarKind || lim.Window.Shortest() < span {
		return 0
	}
	for _, n := range needs {
		if lim.Covers(n.Operation) {
			if lim.Counts == limit.CountCalls {
				amount += n.Calls
			} else {
				amount += n.Units
			}
		}
	}
	return amount
}

// counts reports whether a limit counts the hold at all.
func (h *hold) counts(lim limit.Limit) bool {
	return lim.Window.Kind != limit.Bucket && lim.Window.Kind != limit.Concurrent && lim.Window.Shortest() >= h.item.Span &&
		slices.ContainsFunc(h.item.Needs, func(n driver.Need) bool { return lim.Covers(n.Operation) })
}

// claims is what holds mean for an item: those that live, the one that it draws from, and
// what it draws.
type claims struct {
	holds []*hold
	own   *hold
	draw  draw
}

// claimsAt is what holds mean for an item at an instant.
func (l *ledger) claimsAt(item driver.Item, at int64) (c claims) {
	for _, h := range l.holds {
		if h.until > at {
			c.holds = append(c.holds, h)
		}
	}
	c.draw = draw{id: item.ID, operation: item.Operation}
	if item.Fence == "" || item.IsHold() {
		return c
	}
	for _, region := range []string{item.Labels.Region, ""} {
		for _, h := range c.holds {
			if c.own == nil && h.named(item.Fence, region) {
				c.own = h
			}
		}
	}
	if c.own != nil {
		for _, n := range c.own.left() {
			if n.Operation == item.Operation {
				c.draw.units, c.draw.calls = min(item.Units, n.Units), min(1, n.Calls)
			}
		}
	}
	return c
}

// held is what all holds have left in a limit.
func (c claims) held(lim limit.Limit) (amount int64) {
	for _, h := range c.holds {
		amount += counted(lim, h.item.Span, h.left())
	}
	return amount
}

// takes is what an item takes of a limit beside what it draws; if it is covered, it draws all.
func (c claims) takes(lim limit.Limit, item driver.Item) (amount int64, covered bool) {
	amount = item.Amount(lim)
	if c.own == nil || !c.own.counts(lim) {
		return amount, false
	}
	amount -= counted(lim, c.own.item.Span, []driver.Need{{Operation: item.Operation, Units: c.draw.units, Calls: c.draw.calls}})
	return amount, amount == 0
}

// room is how much may be used without holds so that the item fits a limit, shares aside.
func (c claims) room(lim limit.Limit, item driver.Item) int64 {
	amount, covered := c.takes(lim, item)
	if covered { // what is held falls as it is charged
		return lim.Bound(0, item.UseHeadroom) - item.Amount(lim)
	}
	return lim.Bound(item.Floor, item.UseHeadroom) - amount - c.held(lim)
}

// sharedHeld is what the holds of each share's jobs have left in a limit.
func (c claims) sharedHeld(lim limit.Limit) []int64 {
	list := make([]int64, len(lim.Shares))
	for _, h := range c.holds {
		if i := lim.ShareOf(h.item.Labels.Job); i >= 0 {
			list[i] += counted(lim, h.item.Span, h.left())
		}
	}
	return list
}

// living drops the holds that have ended.
func (l *ledger) living(now int64) {
	l.holds = slices.DeleteFunc(l.holds, func(h *hold) bool { return h.until <= now || l.locks[h.item.Fence].until > now })
}

// held is what the living holds have left in a limit.
func (l *ledger) held(lim limit.Limit) int64 { return claims{holds: l.holds}.held(lim) }

// takeHold takes a hold that fits.
func (l *ledger) takeHold(limits []limit.Limit, item driver.Item, when moment, observed string) driver.Decision {
	sum := int64(0)
	for _, n := range item.Needs {
		sum = min(sum+n.Units, limit.MaxUnits+1)
	}
	if sum > limit.MaxUnits || len(l.holds) >= driver.MaxHolds {
		return driver.Decision{Result: driver.Overflow, Limit: -1}
	}
	if !item.DryRun {
		l.holds = append(l.holds, &hold{item: item, since: l.last, until: max(l.last, when.later) + item.Lease})
	}
	d := l.granted(limits, item, l.last)
	d.Observed = observed
	if !item.DryRun {
		d.At = l.last
	}
	return d
}

// replayed is the answer to an item that asks for a hold that lives.
func (l *ledger) replayed(limits []limit.Limit, item driver.Item) (driver.Decision, bool) {
	for _, h := range l.holds {
		if h.named(item.Fence, item.Labels.Region) {
			d := l.granted(limits, item, l.last)
			d.Replayed, d.At, d.Units, d.First = true, h.since, h.item.Units, h.item.Labels
			return d, true
		}
	}
	return driver.Decision{}, false
}

// charge charges a draw to the hold it is from.
func (c claims) charge() {
	for _, h := range c.holds {
		for _, d := range h.draws {
			if d.id == c.draw.id { // of an entry that is not held any more
				d.id = ""
			}
		}
	}
	if c.own != nil && c.draw.units+c.draw.calls > 0 {
		taken := c.draw
		c.own.draws = append(c.own.draws, &taken)
	}
}

// finishDraw cuts the draw of a reservation to the units that it ends at, or adds what these
// are above those reserved, as far as the hold has them left. A reservation that is released has
// made no call.
func (l *ledger) finishDraw(id string, reserved, units int64, released bool) {
	for _, h := range l.holds {
		for _, d := range h.draws {
			if d.id != id {
				continue
			}
			d.units = min(d.units, units)
			for _, n := range h.left() {
				if n.Operation == d.operation && units > reserved {
					d.units += min(n.Units, units-reserved)
				}
			}
			if released {
				d.calls = 0
			}
		}
	}
}

// changeHold renews or ends holds.
func (s *Store) changeHold(ctx context.Context, r driver.HoldChange) (driver.HoldLeft, error) {
	l, when, err := s.enter(ctx, r.Budget, r.Now)
	if err != nil {
		return driver.HoldLeft{}, err
	}
	answer := driver.HoldLeft{Now: when.clock}
	before := slices.Clone(l.holds)
	l.living(when.now)
	for _, h := range slices.Clone(l.holds) {
		switch {
		case r.Lease > 0 && h.item.Fence == r.Fence:
			h.until = max(h.until, max(when.now, when.later)+r.Lease)
		case r.Lease == 0 && h.named(r.Fence, r.Region):
			l.holds = slices.DeleteFunc(l.holds, func(other *hold) bool { return other == h })
		default:
			continue
		}
		answer.Holds = append(answer.Holds, h.view())
	}
	if len(answer.Holds) > 0 {
		l.last = when.now
	} else { // nothing is written down: a clock that steps back finds what it left
		l.holds = before
	}
	return answer, nil
}

func (h *hold) view() driver.Hold {
	return driver.Hold{
		Fence: h.item.Fence, Region: h.item.Labels.Region, Job: h.item.Labels.Job, Span: h.item.Span,
		Since: h.since, Until: h.until, Left: h.left(),
	}
}

// fitsFrom is the first instant, at or after the end of the first hold, at which a
// refused item fits every limit, while holds end with their leases. It tries every
// instant at which anything changes, in turn; limit.Never if that is beyond the limits'
// horizons.
func (l *ledger) fitsFrom(first int64, batch driver.Batch, item driver.Item, now int64) int64 {
	var tries []int64
	horizon, end := int64(0), now
	add := func(at int64) {
		if at > now && at < limit.Never {
			tries, end = append(tries, at), max(end, at)
		}
	}
	for _, h := range l.holds {
		add(h.until)
	}
	earliest := max(first, l.recoveringFor(batch), l.lockedUntil(batch, item))
	var checking []limit.Limit
	for _, lim := range batch.Limits {
		if !item.CheckedBy(lim) || lim.Observe {
			continue
		}
		checking = append(checking, lim)
		if lim.Window.Kind == limit.Bucket {
			if room := (claims{}).room(lim, item); l.used(lim, now) > room {
				earliest = max(earliest, l.fitsAt(lim, now, room))
			}
			continue
		}
		for _, e := range l.entries {
			if e.score > lim.Window.Cut(now) && e.counts(lim) {
				add(lim.Window.Returns(e.score))
			}
		}
		if item.WaitsForLapses(lim) {
			horizon = max(horizon, lim.Horizon())
		}
	}
	add(earliest)
	for _, lim := range checking {
		if !item.WaitsForLapses(lim) {
			continue
		}
		tries = append(tries, planEnds(lim, earliest)...)
		for at := earliest; lim.Window.Kind == limit.CalendarKind && at < end+horizon; {
			_, until := lim.Window.Span(at)
			for _, lapse := range lim.Lapses() {
				if lapses := until - lim.Window.Guard - lapse; lapses > earliest {
					tries = append(tries, lapses)
				}
			}
			tries = append(tries, until)
			at = until
		}
	}
	slices.Sort(tries)
	for _, at := range slices.Compact(tries) {
		c := l.claimsAt(item, at)
		if at >= earliest && !slices.ContainsFunc(checking, func(lim limit.Limit) bool { return !l.fits(c, lim, item, at) }) {
			return at
		}
	}
	return limit.Never
}
