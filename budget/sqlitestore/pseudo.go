package sqlitestore

import (
	"context"

	"github.com/quotactl/quotactl/budget/limit"
)

// repeat runs step in transactions until it is done. Other calls may run in between.
func (d *decider) repeat(ctx context.Context, step func(*conn) error) error {
	for {
		err := d.s.write(ctx, step)
		if err != nil || d.done {
			return err
		}
		if err := d.s.pause(ctx); err != nil {
			return err
		}
	}
}

// pseudo is how much of the limit's use is under a pseudo-operation.
func (v *counting) pseudo(operation string) (sum int64) {
	op, known := v.l.ops[operation]
	for lane, t := range v.w.lanes {
		if known && lane/classes == op && v.sees(lane) {
			sum += v.of(t.units, t.calls)
		}
	}
	return sum
}

// pseudoIDs lists the charges of a pseudo-operation.
func (v *counting) pseudoIDs(operation string) (list []string, err error) {
	op, known := v.l.ops[operation]
	if !known {
		return nil, nil
	}
	var id storedID
	for class := range int64(classes) {
		err := v.l.c.each("SELECT id FROM entry WHERE b = ? AND lane = ?", []any{v.l.b, op*classes + class}, func() { list = append(list, string(id)) }, &id)
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// removePseudo removes the charge of a pseudo-operation.
func (l *ledger) removePseudo(e *entry) error {
	l.walkNo++
	return l.remove(e)
}

// record adds a charge under a pseudo-operation, at a score now or in the past.
func (v *counting) record(id, operation string, amount, score int64) error {
	l := v.l
	op, err := l.number(operation, "")
	if err != nil {
		return err
	}
	e := &entry{id: id, score: score, start: score, units: amount, state: stateMerged, calls: 1}
	if v.limit.Counts == limit.CountCalls {
		e.units, e.calls = 0, amount
	}
	e.asked, e.lane = e.units, laneOf(op, e.units, e.state)
	l.walkNo++
	return l.insert(e)
}
