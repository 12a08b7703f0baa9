package sqlitestore

import (
	"cmp"
	"math"
	"slices"

	"github.com/quotactl/quotactl/budget/limit"
)

// skimmed is a lane with sums that a walk may go on by.
type skimmed struct {
	lane, from int64 // the entries up to from are walked
	part       int
	sums       []row // of those above from; the first may cover earlier ones, too
	tail       int64 // at least what the limit counts above from and above the sums
	next       int   // the first of the sums that reaches beyond the score looked at
	most       int64 // at least what the limit counts above from and up to that score
}

// reach sets most for a score. The scores of one lane must not fall.
func (k *skimmed) reach(score int64, of func(units, calls int64) int64) {
	if k.next == 0 {
		k.most = 0
	}
	for k.next < len(k.sums) && (k.next == 0 || k.sums[k.next-1].score < score) {
		k.most += of(k.sums[k.next].units, k.sums[k.next].calls)
		k.next++
	}
	if beyond := len(k.sums) == 0 || k.sums[len(k.sums)-1].score < score; beyond && k.next <= len(k.sums) {
		k.most += k.tail
		k.next = len(k.sums) + 1
	}
}

// skim moves a walk for rolling windows on by whole sums: to the last score at the end of one
// at which the test fails even if all that a lane's sums begin by then had returned. left is
// what is left of the parts; what the walk passes is taken from it. A walk among few entries,
// or of open reservations alone, stays where it is.
func (t *test) skim(w *walk, left []int64, cut int64, steps *int) error {
	v := t.v
	if v.w.kind == limit.Concurrent || v.l.summed <= cut {
		return nil
	}
	for moved := true; moved && *steps > 0; {
		lanes, horizon, err := t.skimmable(w, left, cut, steps)
		if err != nil || len(lanes) == 0 {
			return err
		}
		to := t.farthest(lanes, left, horizon)
		if moved = to > math.MinInt64; !moved {
			return nil
		}
		for _, k := range lanes {
			amount, err := v.amount(k, to, steps)
			if err != nil {
				return err
			}
			w.sums[k.part] += amount
			left[k.part] -= amount
		}
		for part := range w.at {
			if slices.ContainsFunc(lanes, func(k *skimmed) bool { return k.part == part }) {
				w.at[part] = max(w.at[part], to)
			}
		}
	}
	return nil
}

// skimmable lists the lanes that the walk still reads, each with its next sums. Of scores above
// the horizon there may be sums that are not in the list.
func (t *test) skimmable(w *walk, left []int64, cut int64, steps *int) (lanes []*skimmed, horizon int64, err error) {
	v := t.v
	horizon = v.l.summed
	for lane, total := range v.w.lanes {
		part := t.part(lane)
		if total.calls <= 0 || !v.sees(lane) || t.within(part, left[part]) {
			continue
		}
		lanes = append(lanes, &skimmed{lane: lane, part: part, from: max(total.cut, cut, w.at[part]), tail: v.of(total.units, total.calls)})
	}
	for _, k := range lanes {
		most := max(2, min(*steps, chunk)/len(lanes))
		if k.sums, err = v.l.sums(k.lane, k.from, toTheEnd, most); err != nil {
			return nil, 0, err
		}
		*steps -= 1 + len(k.sums)/2 // a sum takes less than a row of a walk
		above := k.from
		if len(k.sums) > 0 {
			above = max(above, k.sums[len(k.sums)-1].score)
		}
		if len(k.sums) == most {
			horizon = min(horizon, above)
			continue
		}
		if k.tail, err = v.tail(k.lane, above, k.tail, steps); err != nil {
			return nil, 0, err
		}
	}
	return lanes, horizon, nil
}

// farthest is the last score up to the horizon, at the end of a sum, at which the test fails for
// certain; MinInt64 if there is none.
func (t *test) farthest(lanes []*skimmed, left []int64, horizon int64) int64 {
	var ends []int64
	for _, k := range lanes {
		for _, sum := range k.sums {
			if sum.score <= horizon {
				ends = append(ends, sum.score)
			}
		}
	}
	slices.Sort(ends)
	to := int64(math.MinInt64)
	parts := make([]int64, len(left))
	for _, end := range slices.Compact(ends) {
		copy(parts, left)
		for _, k := range lanes {
			k.reach(end, t.v.of)
			parts[k.part] -= k.most
		}
		if t.total(parts, t.guarantees) <= t.room {
			break
		}
		to = end
	}
	return to
}

// amount is what the limit counts of a lane, above what is walked and up to a score.
func (v *counting) amount(k *skimmed, to int64, steps *int) (sum int64, err error) {
	at := k.from
	i, _ := slices.BinarySearchFunc(k.sums, to, func(r row, to int64) int { return cmp.Compare(r.score, to+1) })
	if i > 0 { // the first i sums end by then
		if sum, err = v.rowsBetween(at, k.sums[0].score, k.lane, steps); err != nil {
			return 0, err
		}
		for _, r := range k.sums[1:i] {
			sum += v.of(r.units, r.calls)
		}
		at = k.sums[i-1].score
	}
	if at >= to {
		return sum, nil
	}
	rest, err := v.rowsBetween(at, to, k.lane, steps)
	return sum + rest, err
}

// rowsBetween adds up rows of a lane, about as many as a sum has.
func (v *counting) rowsBetween(above, upto, lane int64, steps *int) (int64, error) {
	*steps -= v.l.perSum / 8 // adding up is quicker than reading
	units, calls, err := v.l.between(lane, above, upto)
	return v.of(units, calls), err
}

// tail is what the limit counts of a lane above its last sum; all, if that is too much to
// read.
func (v *counting) tail(lane, above, all int64, steps *int) (int64, error) {
	few := 4 * v.l.perSum
	var units, calls int64
	var n int
	_, err := v.l.c.first("SELECT sum(units), sum(calls), count(*) FROM (SELECT units, calls FROM entry WHERE b = ? AND lane = ? AND score > ? LIMIT ?)",
		[]any{v.l.b, lane, above, few}, &units, &calls, &n)
	*steps -= n / 8
	if err != nil || n == few {
		return all, err
	}
	return v.of(units, calls), nil
}
