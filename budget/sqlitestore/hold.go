package sqlitestore

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// holds are what is kept for passes, in the order in which it was taken. They are in the
// budget's row. Ended ones may be among them until [holds.end].
type holds struct {
	list  []*kept
	text  string // the file's form, unless dirty
	dirty bool
}

// kept is a hold, and what its first answer says.
type kept struct {
	driver.Hold
	Units int64  `json:"units"`
	Run   string `json:"run,omitempty"`
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
	if err == nil && slices.Contains(h.list, nil) {
		err = errors.New("a hold in its row cannot be read")
	}
	return h, err
}

// end drops the holds whose lease has ended at now.
func (h *holds) end(now int64) { h.drop(func(one *kept) bool { return one.Until <= now }) }

// drop drops some of the holds.
func (h *holds) drop(which func(*kept) bool) {
	if slices.ContainsFunc(h.list, which) {
		h.list, h.dirty = slices.DeleteFunc(h.list, which), true
	}
}

// after are the holds that live longer than to an instant.
func (h *holds) after(at int64) (list []*driver.Hold) {
	for _, one := range h.list {
		if one.Until > at {
			list = append(list, &one.Hold)
		}
	}
	return list
}

// draw has a new charge draw from its pass's hold, if that has one. What the charge drew that
// had its id before is forgotten.
func (h *holds) draw(item driver.Item, now int64) {
	for _, one := range h.list {
		if _, drew := one.Drawn[item.ID]; drew {
			delete(one.Drawn, item.ID)
			h.dirty = true
		}
	}
	own := driver.HoldOf(h.after(now), item)
	if own == nil {
		return
	}
	if draw := own.Draw(item); draw.Units > 0 || draw.Calls > 0 {
		own.Take(item.ID, item.Lease > 0, draw)
		h.dirty = true
	}
}

// finish has a reservation of some units that drew from a hold end at others, as
// [driver.Hold.End] says.
func (h *holds) finish(id string, reserved, units int64, released bool) {
	for _, one := range h.list {
		if _, drew := one.Drawn[id]; drew {
			one.End(id, reserved, units, released)
			h.dirty = true
		}
	}
}

// shown are the holds for callers.
func (h *holds) shown() (list []driver.Hold) {
	for _, one := range h.list {
		list = append(list, one.shown())
	}
	return list
}

func (k *kept) shown() driver.Hold {
	one := k.Hold
	one.Left, one.Drawn = slices.Clone(k.Left), nil
	return one
}

// hold grants a hold.
func (d *decider) hold(item driver.Item, now int64, observed string) driver.Decision {
	h := &d.l.holds
	h.list = append(h.list, &kept{Units: item.Units, Run: item.Labels.Run, Hold: driver.Hold{
		Fence: item.Fence, Region: item.Labels.Region, Job: item.Labels.Job, Span: item.Span,
		Since: now, Until: max(now, d.when.later) + item.Lease, Left: slices.Clone(item.Needs),
	}})
	h.dirty = true
	decision := d.granted(item)
	decision.At, decision.Observed = now, observed
	return decision
}

// holdAgain answers an item that asks for a hold that lives.
func (d *decider) holdAgain(item driver.Item) (decision driver.Decision, lives bool) {
	for _, k := range d.l.holds.list {
		if k.Fence == item.Fence && k.Region == item.Labels.Region && !item.DryRun {
			decision = d.granted(item)
			decision.Replayed, decision.At, decision.Units = true, k.Since, k.Units
			decision.First = driver.Labels{Job: k.Job, Region: k.Region, Run: k.Run}
			return decision, true
		}
	}
	return driver.Decision{}, false
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
	s.holds = h.after(after)
	if s.own = driver.HoldOf(s.holds, item); s.own != nil {
		s.draw = []driver.Need{s.own.Draw(item)}
	}
	return s
}

// amount is how much the item takes of a limit besides what it draws. all: the limit counts
// its hold, and it draws all of it.
func (s *living) amount(l limit.Limit, item driver.Item) (amount int64, all bool) {
	amount = item.Amount(l)
	counts := s.own != nil && driver.CountsHold(l, s.own.Span) &&
		slices.ContainsFunc(s.own.Left, func(n driver.Need) bool { return l.Covers(n.Operation) })
	if !counts {
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
		answer = driver.HoldLeft{Now: when.clock, Holds: l.changeHold(c, when)}
		if len(answer.Holds) == 0 {
			return nil
		}
		l.keep(clock, when.now, anchor)
		l.postpone()
		return l.write()
	})
	return answer, err
}

// changeHold renews or ends holds within a transaction. Without any it changes nothing, for
// then nothing is written: a clock that steps back finds what it left.
func (l *ledger) changeHold(c driver.HoldChange, when moment) []driver.Hold {
	changed := holds{}
	for _, k := range l.holds.list {
		if k.Until > when.now && k.Fence == c.Fence && (c.Lease > 0 || k.Region == c.Region) {
			changed.list = append(changed.list, k)
		}
	}
	if len(changed.list) == 0 {
		return nil
	}
	l.holds.end(when.now)
	if c.Lease == 0 {
		l.holds.drop(func(k *kept) bool { return slices.Contains(changed.list, k) })
		return changed.shown()
	}
	for _, k := range changed.list {
		if until := max(when.now, when.later) + c.Lease; until > k.Until {
			k.Until, l.holds.dirty = until, true
		}
	}
	return changed.shown()
}
