package sqlitestore

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// holds are what is kept for passes, in the order in which it was taken. They are in the
// budget's row. Ended ones may be among them until [holds.end].
type holds struct {
	list  []*driver.Hold
	text  string // the file's form, unless dirty
	dirty bool
}

// String is the file's form; empty without holds.
func (h *holds) String() string {
	if !h.dirty {
		return h.text
	}
	h.text, h.dirty = "", false
	if len(h.list) > 0 {
		text, _ := json.Marshal(h.list) // numbers and strings: no error
		h.text = string(text)
	}
	return h.text
}

func parseHolds(text string) (h holds, err error) {
	h.text = text
	if text != "" {
		err = json.Unmarshal([]byte(text), &h.list)
	}
	return h, err
}

// end drops the holds whose lease has ended at now.
func (h *holds) end(now int64) { h.drop(func(one *driver.Hold) bool { return one.Until <= now }) }

// drop drops some of the holds.
func (h *holds) drop(which func(*driver.Hold) bool) {
	if slices.ContainsFunc(h.list, which) {
		h.list, h.dirty = slices.DeleteFunc(h.list, which), true
	}
}

// named is the hold of a pass's fence and a region; nil if there is none.
func (h *holds) named(fence, region string) *driver.Hold {
	at := slices.IndexFunc(h.list, func(one *driver.Hold) bool { return one.Fence == fence && one.Region == region })
	if at < 0 {
		return nil
	}
	return h.list[at]
}

// draw has a charge draw from its pass's hold, if it has one.
func (h *holds) draw(item driver.Item) {
	own := driver.HoldOf(h.list, item)
	if own == nil {
		return
	}
	if draw := own.Draw(item); draw.Units > 0 || draw.Calls > 0 {
		own.Take(item.ID, item.Lease > 0, draw)
		h.dirty = true
	}
}

// giveBack gives back what a reservation drew and now returns.
func (h *holds) giveBack(id string, units int64, released bool) {
	for _, one := range h.list {
		if _, drew := one.Drawn[id]; drew {
			one.GiveBack(id, units, released)
			h.dirty = true
		}
	}
}

// shown is a hold for callers.
func shown(h *driver.Hold) driver.Hold {
	one := *h
	one.Left, one.Drawn = slices.Clone(h.Left), nil
	return one
}

// hold grants a hold.
func (d *decider) hold(item driver.Item, now int64, observed string) driver.Decision {
	h := &d.l.holds
	h.list = append(h.list, &driver.Hold{
		Fence: item.Fence, Region: item.Labels.Region, Job: item.Labels.Job, Span: item.Span,
		Since: now, Until: d.when.later + item.Lease, Left: slices.Clone(item.Needs),
	})
	h.dirty = true
	decision := d.granted(item)
	decision.At, decision.Observed = now, observed
	return decision
}

// holdAgain answers an item that asks for a hold that lives.
func (d *decider) holdAgain(item driver.Item) (decision driver.Decision, lives bool) {
	h := d.l.holds.named(item.Fence, item.Labels.Region)
	if h == nil || item.DryRun {
		return driver.Decision{}, false
	}
	decision = d.granted(item)
	decision.Replayed, decision.At = true, h.Since
	return decision, true
}

// held is what holds have left in the limit.
func (v *counting) held() (sum int64) {
	for _, h := range v.l.holds.list {
		sum += h.Amount(v.limit)
	}
	return sum
}

// remaining is what is left of a limit.
func (d *decider) remaining(i int) int64 {
	v := d.limits[i]
	return v.limit.Remaining(v.used() + v.held())
}

// living is the holds that live from an instant on, as an item finds them.
type living struct {
	holds []*driver.Hold
	own   *driver.Hold // the one that the item draws from; nil: none
	draw  []driver.Need
}

// living are the holds that live after an instant.
func (h *holds) living(item driver.Item, after int64) (s living) {
	if len(h.list) == 0 {
		return s
	}
	for _, one := range h.list {
		if one.Until > after {
			s.holds = append(s.holds, one)
		}
	}
	if s.own = driver.HoldOf(s.holds, item); s.own != nil {
		s.draw = []driver.Need{s.own.Draw(item)}
	}
	return s
}

// amount is how much the item takes of a limit besides what it draws. all: the limit counts
// its hold, and it draws all of it.
func (s *living) amount(l limit.Limit, item driver.Item) (amount int64, all bool) {
	amount = item.Amount(l)
	if s.own == nil || !driver.CountsHold(l, s.own.Span) {
		return amount, false
	}
	amount -= driver.AmountOf(l, s.draw)
	return amount, amount == 0
}

// held is what the holds have left in a limit, by a test's parts; nil if that is nothing.
func (s *living) held(t *test) (parts []int64) {
	for _, h := range s.holds {
		amount := h.Amount(t.v.limit)
		if amount == 0 {
			continue
		}
		if parts == nil {
			parts = make([]int64, t.parts())
		}
		part := 0
		if t.divided {
			part = t.partOf(t.v.limit.ShareOf(h.Job))
		}
		parts[part] += amount
	}
	return parts
}

func (s *Store) changeHold(ctx context.Context, c driver.HoldChange) (answer driver.HoldLeft, err error) {
	err = s.write(ctx, func(conn *conn) error {
		l, err := s.ledger(conn, c.Budget)
		if err != nil {
			return err
		}
		clock, anchor, err := s.clocks.read(l.anchor)
		if err != nil {
			return err
		}
		when, err := l.enter(clock, c.Now, s.clocks.oneBoot(l.anchor))
		if err != nil {
			return err
		}
		var changed bool
		answer = driver.HoldLeft{Now: when.clock}
		if answer.Holds, changed = l.changeHold(c, when); !changed {
			return nil
		}
		l.keep(clock, when.now, anchor)
		l.postpone()
		return l.write()
	})
	return answer, err
}

// changeHold renews or ends holds within a transaction.
func (l *ledger) changeHold(c driver.HoldChange, when moment) (list []driver.Hold, changed bool) {
	for _, h := range l.holds.list {
		if h.Fence != c.Fence || h.Until <= when.now || c.Lease == 0 && h.Region != c.Region {
			continue
		}
		if until := when.later + c.Lease; c.Lease > 0 && until > h.Until {
			h.Until, changed = until, true
		}
		list = append(list, shown(h))
	}
	if c.Lease == 0 && len(list) > 0 {
		l.holds.drop(func(h *driver.Hold) bool { return h.Fence == c.Fence && h.Region == c.Region })
		changed = true
	}
	l.holds.dirty = l.holds.dirty || changed
	return list, changed
}
