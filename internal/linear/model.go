package linear

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// asked is an Op with its id's place among the ids of its budget.
type asked struct {
	Op
	place int
	hold  int // the place of the hold's; without one, of an id that nothing has
	ids   int // how many ids the budget has
}

type state uint8

const (
	absent state = iota
	plain
	open
	settled
	released
	living // a hold
	ended
)

// charged is what is known of one id, of a charge or a hold.
type charged struct {
	state  state
	asked  int64
	units  int64
	start  int64
	finish int64
	part   part // what an open charge drew, or what a living hold has left
	hold   int  // the place of the hold that a charge drew from
}

// ledger is a state of the model: a budget whose windows never end.
type ledger struct {
	units, calls, open int64
	newest             int64 // the newest charge
	last               int64 // the newest instant of all
	taken              int64 // the newest hold
	holds              int64
	held               part // what the living holds have left
	ids                []charged
}

// with is the ledger after a change of one id; its totals already include the change.
func (l ledger) with(place int, c charged) ledger {
	l.ids = slices.Clone(l.ids)
	l.ids[place] = c
	return l
}

func (l ledger) equal(o ledger) bool {
	return l.sums() == o.sums() && slices.Equal(l.ids, o.ids)
}

func (l ledger) sums() [9]int64 {
	return [...]int64{l.units, l.calls, l.open, l.newest, l.last, l.taken, l.holds, l.held.units, l.held.calls}
}

// model is the sequential specification; limits are those of [Limits].
func model(limits []limit.Limit) porcupine.Model {
	most, mostOpen := limits[0].Limit, limits[2].Limit
	seed := maphash.MakeSeed()
	return porcupine.Model{
		Partition: byBudget,
		Init:      func() any { return ledger{} },
		Step: func(before, input, output any) (bool, any) {
			l, op, a := before.(ledger), input.(asked), output.(Answer)
			if l.ids == nil {
				l.ids = make([]charged, op.ids)
			}
			switch op.Kind {
			case Charge:
				return l.charge(op, a, most, mostOpen)
			case Status:
				return a.Used == [3]int64{l.units, l.calls, l.open} && a.Held == Held{l.holds, l.held.units, l.held.calls}, l
			case Take:
				return l.take(op, a, most)
			case End:
				return l.end(op, a)
			default:
				return l.finishes(op, a)
			}
		},
		Equal: func(a, b any) bool { return a.(ledger).equal(b.(ledger)) },
		Hash: func(s any) uint64 {
			return maphash.Comparable(seed, s.(ledger).sums())
		},
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v: %+v", input.(asked).Op, output.(Answer))
		},
	}
}

// charge is one step. The answer may be a replay of the Op's own first attempt, whose
// reply was lost: that attempt charged, but Limit and Remaining are of the later one.
func (l ledger) charge(op asked, a Answer, most, mostOpen int64) (bool, ledger) {
	c := l.ids[op.place]
	if c.state != absent {
		same := c.asked == op.Units && (c.state == plain) != op.Lease
		if !same {
			return a.Result == driver.Conflict, l
		}
		return a.Result == driver.Granted && a.Replayed && a.Units == c.asked && a.At == c.start, l
	}
	if op.Units > most || op.Lease && mostOpen == 0 {
		return a.Result == driver.NeverFits, l
	}
	draw := l.draws(op)
	if !l.fits(op, draw, most) || op.Lease && l.open >= mostOpen {
		left := [3]int64{l.remaining(most), 0, max(0, mostOpen-l.open)}
		return a.Result == driver.Refused && a.Limit >= 0 && a.Limit != 1 && a.Remaining == left[a.Limit], l
	}
	if a.Result != driver.Granted || a.Units != op.Units || a.At <= l.newest || a.At < l.last {
		return false, l
	}
	c = charged{state: plain, asked: op.Units, units: op.Units, start: a.At}
	l.units, l.calls, l.newest, l.last = l.units+op.Units, l.calls+1, a.At, a.At
	l = l.hands(op.hold, draw)
	if op.Lease {
		c.state, c.part, c.hold = open, draw, op.hold
		l.open++
	}
	if !a.Replayed && (a.Limit != 0 || a.Remaining != l.remaining(most)) {
		return false, l
	}
	return true, l.with(op.place, c)
}

// finishes is one step of a settlement or a release, with replays as in charge.
func (l ledger) finishes(op asked, a Answer) (bool, ledger) {
	c := l.ids[op.place]
	to, want, units := settled, driver.Settled, op.Units
	if op.Kind == Release {
		to, want, units = released, driver.Released, 0
	}
	switch c.state {
	case absent:
		return a.Finish == driver.FinishExpired, l
	case plain:
		return a.Finish == driver.FinishConflict, l
	case settled, released:
		if c.state != to || c.units != units {
			return a.Finish == driver.FinishConflict, l
		}
		return a.Finish == want && a.Replayed && a.At == c.finish, l
	}
	if a.Finish != want || a.At < l.last {
		return false, l
	}
	l.open--
	l.units += units - c.units
	l.last = a.At
	if to == released {
		l.calls--
	}
	back := part{units: min(0, units-c.part.units)}
	switch {
	case to == released:
		back.calls = -c.part.calls
	case units > c.units && c.part != (part{}): // what it drew nothing for, it draws nothing for now
		back.units = min(units-c.units, l.ids[c.hold].part.units)
	}
	l = l.hands(c.hold, back)
	c.state, c.units, c.finish, c.part, c.hold = to, units, a.At, part{}, 0
	return true, l.with(op.place, c)
}

// byBudget separates the budgets, which are independent of each other.
func byBudget(history []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, o := range history {
		name := o.Input.(asked).Budget
		parts[name] = append(parts[name], o)
	}
	var all [][]porcupine.Operation
	for _, part := range parts {
		all = append(all, part)
	}
	return all
}
