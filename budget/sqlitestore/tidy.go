package sqlitestore

import "github.com/quotactl/quotactl/budget/driver"

// tidy removes forgotten entries after pruneFresh new ones, or pruneAfter µs after the last
// time.
const (
	pruneFresh int64 = 64
	pruneAfter int64 = 600_000_000
)

// labelIdle is how much longer than the entries that use them labels are kept, in µs: the
// longest lease, plus twice the age at which a label's noted use is renewed.
const labelIdle = int64(driver.MaxLease/1000) + 2*labelUseNoted

// tidy removes up to limit forgotten entries and unused labels, if it is time again.
func (l *ledger) tidy(limit int) error {
	if l.fresh < pruneFresh && l.last-l.prunedAt < pruneAfter {
		return nil
	}
	l.fresh, l.prunedAt = 0, l.last
	if _, err := l.prune(limit); err != nil {
		return err
	}
	return l.pruneLabels(l.gone-labelIdle, limit)
}

// prune removes up to limit forgotten entries. more: others are left.
func (l *ledger) prune(limit int) (more bool, err error) {
	lanes, err := l.lanes()
	if err != nil {
		return false, err
	}
	for _, lane := range lanes {
		e, list := entry{}, []entry(nil)
		err := l.c.each("SELECT "+entryColumns+" FROM entry WHERE b = ? AND lane = ? AND score <= ? ORDER BY score LIMIT ?",
			[]any{l.b, lane, l.gone, limit}, func() { list = append(list, e) }, e.columns()...)
		if err != nil {
			return false, err
		}
		for i := range list {
			if err := l.take(&list[i]); err != nil {
				return false, err
			}
			l.takeBack(&list[i])
		}
		if err := l.takeFromSums(lane, list); err != nil {
			return false, err
		}
		if limit -= len(list); limit <= 0 {
			return true, nil
		}
	}
	return false, nil
}

// idle is when the budget will be idle if it has no locks: a week after its longest window.
func (l *ledger) idle() int64 {
	longest := driver.MinHeld
	for _, w := range l.windows {
		longest = max(longest, w.longest)
	}
	for _, m := range l.meters {
		longest = max(longest, m.longest)
	}
	return l.last + longest + driver.WindowIdle
}

// postpone notes when the budget will be idle: after every lock, too. It updates the note when
// the instant has moved by an hour.
func (l *ledger) postpone() {
	at := l.idle()
	if at-l.idleAt >= driver.WindowUseNoted || l.version == 0 {
		l.idleAt = at
	}
	for _, k := range l.locks {
		l.idleAt = max(l.idleAt, k.until)
	}
}
