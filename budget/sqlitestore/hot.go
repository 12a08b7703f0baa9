package sqlitestore

import (
	"encoding/binary"
	"errors"
)

// Totals and sums of the history that most charges change are kept in the budget's own row,
// so that a charge changes three pages of the file, rather than six. Those in the row take
// the place of the total table's, and are added to the history's.

// mostHot bounds the totals, and the sums of history, in a budget's row. If there are more,
// all go to their tables.
const mostHot = 24

// waiting is what is to be added to a row of history that exists.
type waiting struct {
	no int64 // the series'
	sum
}

// errHot: the budget's row cannot be read.
var errHot = errors.New("the totals in its row cannot be read")

// hotTotal is a total in a budget's row.
type hotTotal struct {
	win, lane int64
	total
}

// numbers are the total's numbers in the order of the row.
func (h *hotTotal) numbers() []*int64 {
	t := &h.total
	return []*int64{&h.win, &h.lane, &t.units, &t.calls, &t.cut, &t.built, &t.next, &t.backUnits, &t.backCalls}
}

// encodeHot is the row's form: the number of totals and their numbers, then the number of
// sums and of each the series' number, hour, units, calls, operation, job and region. It
// first moves what no longer belongs there to the tables.
func (l *ledger) encodeHot() ([]byte, error) {
	hot := 0
	for _, w := range l.windows {
		for _, t := range w.lanes {
			if t.dirty {
				t.hot, t.dirty = true, false
			}
			if t.hot {
				hot++
			}
		}
	}
	if hot > mostHot {
		if err := l.writeTotals(); err != nil {
			return nil, err
		}
		hot = 0
	}
	text := binary.AppendUvarint(l.hot[:0], uint64(hot)) //nolint:gosec // not below 0
	for _, w := range l.windows {
		for lane, t := range w.lanes {
			if !t.hot {
				continue
			}
			one := hotTotal{w.no, lane, *t}
			for _, n := range one.numbers() {
				text = binary.AppendVarint(text, *n)
			}
		}
	}
	text = binary.AppendUvarint(text, uint64(len(l.waiting)))
	for key, one := range l.waiting {
		for _, n := range []int64{one.no, key.hour, one.units, one.calls} {
			text = binary.AppendVarint(text, n)
		}
		for _, s := range []string{key.operation, key.job, key.region} {
			text = append(binary.AppendUvarint(text, uint64(len(s))), s...)
		}
	}
	l.hot = text
	return text, nil
}

// decodeHot reads a row's form.
func decodeHot(text []byte) (totals []hotTotal, history map[hourly]*waiting, err error) {
	bad := false
	count := func() uint64 {
		n, size := binary.Uvarint(text)
		if bad = bad || size <= 0 || n > uint64(len(text)); bad {
			return 0
		}
		text = text[size:]
		return n
	}
	number := func() int64 {
		n, size := binary.Varint(text)
		if bad = bad || size <= 0; bad {
			return 0
		}
		text = text[size:]
		return n
	}
	word := func() string {
		n := count()
		if bad = bad || n > uint64(len(text)); bad {
			return ""
		}
		s := string(text[:n])
		text = text[n:]
		return s
	}
	history = map[hourly]*waiting{}
	if len(text) == 0 { // a new budget, or one of an older version
		return nil, history, nil
	}
	for range count() {
		var one hotTotal
		for _, to := range one.numbers() {
			*to = number()
		}
		one.hot = true
		totals = append(totals, one)
	}
	for range count() {
		one := &waiting{no: number()}
		key := hourly{hour: number()}
		one.units, one.calls = number(), number()
		key.operation, key.job, key.region = word(), word(), word()
		history[key] = one
	}
	if bad || len(text) > 0 {
		return nil, nil, errHot
	}
	return totals, history, nil
}

// writeTotals writes the totals of the budget's row to their table.
func (l *ledger) writeTotals() error {
	for _, w := range l.windows {
		for lane, t := range w.lanes {
			if !t.hot {
				continue
			}
			err := l.c.exec("INSERT OR REPLACE INTO total(b, win, lane, units, calls, cut, built, next, back_units, back_calls) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
				l.b, w.no, lane, t.units, t.calls, t.cut, t.built, t.next, t.backUnits, t.backCalls)
			if err != nil {
				return err
			}
			t.hot = false
		}
	}
	return nil
}

// addWaiting adds what waits in the budget's row to the history.
func (l *ledger) addWaiting() error {
	for key, one := range l.waiting {
		if err := l.c.exec(addToHistory, one.units, one.calls, one.no, key.hour); err != nil {
			return err
		}
	}
	clear(l.waiting)
	return nil
}

// keepHistory adds what waits in a budget's row to the history, before the ledger is deleted.
// It adds nothing for a row that cannot be read.
func keepHistory(c *conn, b int64) error {
	var text []byte
	if _, err := c.first("SELECT hot FROM budget WHERE b = ?", []any{b}, &text); err != nil {
		return err
	}
	_, history, _ := decodeHot(text)
	l := ledger{c: c, waiting: history}
	if err := l.addWaiting(); err != nil {
		return err
	}
	return c.exec("UPDATE budget SET hot = x'' WHERE b = ?", b)
}
