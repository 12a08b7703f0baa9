package sqlitestore

import "math"

// perSum is how many entries a sum is made of. Later changes may add to it or take from it.
const perSum = 256

// sumsAtOnce bounds the sums of a lane that one transaction makes.
const sumsAtOnce = 4

// few is how many rows expiry, building and walks read one by one before they go on by whole
// sums.
func (l *ledger) few() int { return max(1, l.perSum/2) }

// addToSum changes the sum that covers a score, if one does. At about one new entry in a
// quarter of a sum, chosen by its score, so that nothing needs to be counted, it notes that the lane
// may have entries for a further sum. An entry of the past may be new to its lane too, such as
// an imported one.
func (l *ledger) addToSum(lane, score, units, calls int64) error {
	if score <= l.summed {
		covered, err := l.c.change(`UPDATE entry_sum SET units = units + ?1, calls = calls + ?2 WHERE b = ?3 AND lane = ?4
			AND upto = (SELECT upto FROM entry_sum WHERE b = ?3 AND lane = ?4 AND upto >= ?5 ORDER BY upto LIMIT 1)`, units, calls, l.b, lane, score)
		if err != nil || covered > 0 {
			return err
		}
	}
	if mixed(score)%uint32(max(1, l.perSum/4)) == 0 && calls > 0 && lane%classes != classReleased {
		l.unsummed = append(l.unsummed, lane)
	}
	return nil
}

// mixed is a number by which scores are spread evenly, also those at whole seconds.
func mixed(score int64) uint32 { return uint32(uint64(score) * 0x9e3779b97f4a7c15 >> 32) } //nolint:gosec // any of its bits will do

// takeFromSums takes removed entries of a lane, lowest scores first, out of the sums that
// cover them. It deletes the sums that are empty then: the entries above are those of the
// next one.
func (l *ledger) takeFromSums(lane int64, list []entry) error {
	last := int64(math.MinInt64)
	for len(list) > 0 && list[0].score <= l.summed {
		found, err := l.c.first("SELECT upto FROM entry_sum WHERE b = ? AND lane = ? AND upto >= ? ORDER BY upto LIMIT 1", []any{l.b, lane, list[0].score}, &last)
		if err != nil || !found {
			return err
		}
		var units, calls int64
		for len(list) > 0 && list[0].score <= last {
			units, calls, list = units+list[0].units, calls+list[0].calls, list[1:]
		}
		if err := l.addToSum(lane, last, -units, -calls); err != nil {
			return err
		}
	}
	return l.c.exec("DELETE FROM entry_sum WHERE b = ? AND lane = ? AND upto <= ? AND calls = 0", l.b, lane, last)
}

// mostPerSum is how many times perSum calls an import leaves in a sum.
const mostPerSum = 16

// dropLarge deletes the sum that covers a score, and those that follow it, if an import has made it
// large. sumUp then begins there: what is deleted must be the last, since a sum covers
// everything above the one before.
func (l *ledger) dropLarge(lane, score int64) error {
	if score > l.summed {
		return nil
	}
	dropped, err := l.c.change(`DELETE FROM entry_sum WHERE b = ?1 AND lane = ?2 AND upto >= ?3
		AND (SELECT calls FROM entry_sum WHERE b = ?1 AND lane = ?2 AND upto >= ?3 ORDER BY upto LIMIT 1) > ?4`, l.b, lane, score, mostPerSum*l.perSum)
	if dropped > 0 {
		l.unsummed = append(l.unsummed, lane)
	}
	return err
}

// sumUp makes sums of the lanes that addToSum noted, of finished entries only: open
// reservations will move.
func (l *ledger) sumUp() error {
	for _, lane := range l.unsummed {
		for range sumsAtOnce {
			from := int64(math.MinInt64)
			if _, err := l.c.first("SELECT upto FROM entry_sum WHERE b = ? AND lane = ? ORDER BY upto DESC LIMIT 1", []any{l.b, lane}, &from); err != nil {
				return err
			}
			var upto, units, calls int64
			found, err := l.c.first("SELECT score FROM entry WHERE b = ? AND lane = ? AND score > ? AND score <= ? ORDER BY score LIMIT 1 OFFSET ?",
				[]any{l.b, lane, from, l.last, l.perSum - 1}, &upto)
			if err != nil {
				return err
			}
			if !found {
				break
			}
			if units, calls, err = l.between(lane, from, upto); err != nil {
				return err
			}
			if err := l.c.exec("INSERT INTO entry_sum(b, lane, upto, units, calls) VALUES (?, ?, ?, ?, ?)", l.b, lane, upto, units, calls); err != nil {
				return err
			}
			l.summed = max(l.summed, upto)
		}
	}
	l.unsummed = l.unsummed[:0]
	return nil
}

// between adds up the entries of a lane with scores above above and up to upto.
func (l *ledger) between(lane, above, upto int64) (units, calls int64, err error) {
	_, err = l.c.first("SELECT sum(units), sum(calls) FROM entry WHERE b = ? AND lane = ? AND score > ? AND score <= ?", []any{l.b, lane, above, upto}, &units, &calls)
	return units, calls, err
}

// sums reads sums of a lane, as rows with the highest scores that they cover: the sum
// that covers the first score above above, and those that follow, up to upto.
func (l *ledger) sums(lane, above, upto int64, limit int) (list []row, err error) {
	if above >= l.summed {
		return nil, nil
	}
	var r row
	err = l.c.each("SELECT upto, units, calls FROM entry_sum WHERE b = ? AND lane = ? AND upto > ? AND upto <= ? ORDER BY upto LIMIT ?",
		[]any{l.b, lane, above, upto, limit}, func() { list = append(list, r) }, &r.score, &r.units, &r.calls)
	return list, err
}

// leap adds up the entries of a lane with scores above above and up to the result's score, by
// whole sums. No score is above upto. It returns false where no sum ends in between.
func (l *ledger) leap(lane, above, upto int64, steps *int) (sum row, found bool, err error) {
	if *steps <= 0 {
		return sum, false, nil
	}
	list, err := l.sums(lane, above, upto, *steps)
	if err != nil || len(list) == 0 {
		return sum, false, err
	}
	// The first one may cover entries up to above, too.
	sum.score = list[0].score
	if sum.units, sum.calls, err = l.between(lane, above, sum.score); err != nil {
		return sum, false, err
	}
	*steps -= l.perSum
	for _, r := range list[1:] {
		sum = row{r.score, sum.units + r.units, sum.calls + r.calls}
	}
	*steps -= len(list)
	return sum, true, nil
}
