package sqlitestore

import (
	"context"
	"math"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// shareOf is the index of the share that the charges of a lane belong to; −1: none.
func (v *counting) shareOf(lane int64) int {
	if len(v.limit.Shares) == 0 {
		return -1
	}
	no := lane / classes
	share, known := v.shares[no]
	if !known {
		_, pattern := limit.CutPair(v.l.opNames[no])
		share = slices.IndexFunc(v.limit.Shares, func(s limit.Share) bool { return s.HasPattern(pattern) })
		if v.shares == nil {
			v.shares = map[int64]int{}
		}
		v.shares[no] = share
	}
	return share
}

// shared is what each of the limit's shares has used in a window.
func (v *counting) shared(w *window) []int64 {
	if len(v.limit.Shares) == 0 {
		return nil
	}
	used := make([]int64, len(v.limit.Shares))
	for lane, t := range w.lanes {
		if share := v.shareOf(lane); share >= 0 && v.sees(lane) {
			used[share] += v.of(t.units, t.calls)
		}
	}
	return used
}

// lookAtShares is shared for a look, which sums entries that are not in the lanes of their
// jobs yet by their labels.
func (v *counting) lookAtShares(ctx context.Context, now int64) ([]int64, error) {
	l := v.l
	used := v.shared(v.w)
	if l.splits([]limit.Limit{v.limit}) {
		return used, nil
	}
	patterns, jobs := limit.Patterns([]limit.Limit{v.limit}), map[int64]string{}
	var no, units, calls int64
	var name string
	if err := l.c.each("SELECT no, name FROM label WHERE b = ?", []any{l.b}, func() { jobs[no] = name }, &no, &name); err != nil {
		return nil, err
	}
	for lane, t := range v.w.lanes {
		operation := l.opNames[lane/classes]
		if t.calls == 0 || !v.sees(lane) || limit.IsPseudo(operation) || !limit.Splits(patterns, operation) {
			continue
		}
		if share := v.shareOf(lane); share >= 0 {
			used[share] -= v.of(t.units, t.calls)
		}
		for above, more := max(t.cut, v.w.cutAt(now)), true; more; {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			upto, err := toTheEnd, error(nil)
			more, err = l.c.first("SELECT score FROM entry WHERE b = ? AND lane = ? AND score > ? ORDER BY score LIMIT 1 OFFSET ?", []any{l.b, lane, above, spentChunk}, &upto)
			if err != nil {
				return nil, err
			}
			err = l.c.each("SELECT job, sum(units), sum(calls) FROM entry WHERE b = ? AND lane = ? AND score > ? AND score <= ?"+v.w.counted()+" GROUP BY job",
				[]any{l.b, lane, above, upto}, func() {
					if share := v.limit.ShareOf(jobs[no]); share >= 0 {
						used[share] += v.of(units, calls)
					}
				}, &no, &units, &calls)
			if err != nil {
				return nil, err
			}
			above = upto
		}
	}
	return used, nil
}

// sum is what the limit has used in a window.
func (v *counting) sum(w *window) int64 {
	if v.limit.CoversAll() && !v.l.pseudo {
		return v.of(w.units, w.calls)
	}
	sum := int64(0)
	for lane, t := range w.lanes {
		if v.sees(lane) {
			sum += v.of(t.units, t.calls)
		}
	}
	return sum
}

// test is one of the two checks of an item by a limit: that used + units is at most the
// bound less the floor, or, if divided, that used + units + kept is at most the bound.
//
// It counts in parts. Part 0 is the use of the item's own share and of what belongs to no
// share; part i + 1 is that of another share i. The divided check compares a sum that
// counts for each part at least its guarantee, and never grows as charges leave:
// part 0 + Σ max(guarantee, part).
type test struct {
	v          *counting
	divided    bool
	own        int
	lease      int64
	guarantees []int64 // by part; those in force
	room       int64   // the sum may be at most this
	floorRoom  int64   // of a divided calendar: what is used may be at most this
	held       []int64 // by part: what holds have left, which counts as used; nil: nothing
}

func (t *test) parts() int {
	if t.divided {
		return 1 + len(t.v.limit.Shares)
	}
	return 1
}

// part is the part that a lane's charges count in.
func (t *test) part(lane int64) int {
	if !t.divided {
		return 0
	}
	return t.partOf(t.v.shareOf(lane))
}

// partOf is the part of a share, by its index; −1 is none.
func (t *test) partOf(share int) int {
	if share == t.own {
		return 0
	}
	return share + 1
}

// sumHeld is what holds have left in the limit.
func (t *test) sumHeld() (sum int64) {
	for _, amount := range t.held {
		sum += amount
	}
	return sum
}

// neverFits reports whether the item cannot pass the test while the holds are the same.
func (t *test) neverFits() bool {
	held := t.held
	if held == nil { // all may be guaranteed to others, or the floor too high once the item draws from no hold
		held = make([]int64, t.parts())
	}
	return t.total(held, t.guarantees) > t.room
}

// within reports whether a part is another share within its guarantee, so that what returns
// to it frees nothing.
func (t *test) within(part int, used int64) bool { return part > 0 && used <= t.guarantees[part] }

// total is the sum that the check compares, of these parts under these guarantees.
func (t *test) total(parts, guarantees []int64) int64 {
	sum := parts[0]
	for i, used := range parts[1:] {
		sum += max(guarantees[i+1], used)
	}
	return sum
}

// each sums one value of the window's totals by part.
func (t *test) each(w *window, value func(*total) (units, calls int64)) []int64 {
	parts := make([]int64, t.parts())
	for lane, total := range w.lanes {
		if t.v.sees(lane) {
			parts[t.part(lane)] += t.v.of(value(total))
		}
	}
	return parts
}

// used is what counts in a window and what is held, by part.
func (t *test) used(w *window) (parts []int64) {
	if t.divided {
		parts = t.each(w, func(one *total) (int64, int64) { return one.units, one.calls })
	} else {
		parts = []int64{t.v.sum(w)}
	}
	for part, amount := range t.held {
		parts[part] += amount
	}
	return parts
}

// back is what has returned since the window's totals began, by part.
func (t *test) back() []int64 {
	return t.each(t.v.w, func(one *total) (int64, int64) { return one.backUnits, one.backCalls })
}

// byPart puts guarantees in the order of parts: none for part 0, nor for the item's own
// share.
func (t *test) byPart(guarantees []int64) []int64 {
	parts := append([]int64{0}, guarantees...)
	if t.own >= 0 {
		parts[t.own+1] = 0
	}
	return parts
}

// plain is the check against the bound less the floor, or, for an item that only draws from
// a hold, against the bound.
func (v *counting) plain(item driver.Item, lives *living) (t *test, drawn bool) {
	amount, drawn := lives.amount(v.limit, item)
	t = &test{v: v, own: -1, guarantees: []int64{0}}
	if drawn { // what is held falls as it is charged
		t.room = v.limit.Bound(0, item.UseHeadroom) - item.Amount(v.limit)
		return t, true
	}
	t.room = v.limit.Bound(item.Floor, item.UseHeadroom) - amount
	t.held = lives.held(t)
	return t, false
}

// dividedBy is the check against what is kept for the limit's other shares at now.
func (v *counting) dividedBy(item driver.Item, lives *living, now int64) *test {
	t := &test{v: v, divided: true, own: v.limit.ShareOf(item.Labels.Job), lease: item.Lasts()}
	amount, _ := lives.amount(v.limit, item)
	t.room = v.limit.Bound(0, item.UseHeadroom) - amount
	t.floorRoom = v.limit.Bound(item.Floor, item.UseHeadroom) - amount
	t.guarantees = t.byPart(v.limit.InForce(now))
	t.held = lives.held(t)
	return t
}

// kept is what is kept for each share if these parts are used.
func (t *test) kept(parts, guarantees []int64) []int64 {
	kept := make([]int64, len(parts)-1)
	for i := range kept {
		kept[i] = max(0, guarantees[i+1]-parts[i+1])
	}
	return kept
}

// check reports whether an item that would finish at score passes the divided check now,
// and what is kept for each share.
func (t *test) check(score int64) (kept []int64, fits bool) {
	v := t.v
	parts := t.used(v.w)
	kept = t.kept(parts, t.guarantees)
	if t.total(parts, t.guarantees) > t.room {
		return kept, false
	}
	if v.next == nil || score <= v.next.cutAt(v.l.last) {
		return kept, true
	}
	parts, full := t.used(v.next), t.byPart(v.limit.Guarantees())
	if t.total(parts, full) > t.room {
		return t.kept(parts, full), false
	}
	return kept, true
}

// stages are the limit's stages, by part, and after them its spells.
func (t *test) stages() [][]int64 {
	if !t.divided {
		return [][]int64{{0}}
	}
	list := t.v.limit.Stages()
	for _, spell := range t.v.limit.Spells() {
		list = append(list, spell.Guarantees)
	}
	for k, stage := range list {
		list[k] = t.byPart(stage)
	}
	return list
}

// fitsAfterReset is fitsAt for calendars. In each period the use of the periods before is
// gone, and guarantees lapse one after the other. For each stage of that it finds the first
// period in which the entries that still count pass the check. Only entries beyond the cut
// can count after the next reset: open reservations, and those that the guard counts twice.
// It walks these from the highest score down.
func (t *test) fitsAfterReset(w *walk, now int64, steps *int) (at int64, done bool, err error) {
	v := t.v
	v.w.cutAt(now)
	reset := v.w.end
	lowest := v.w.shape.Cut(reset) + 1
	stages := t.stages()
	if !w.began || w.version != v.l.version || w.reset != reset {
		w.begin(t, math.MaxInt64)
		copy(w.sums, t.held)
		w.reset, w.crossed = reset, make([]int64, len(stages)+1)
	}
	sums := append([]int64(nil), w.sums...)
	floorAt := &w.crossed[len(stages)]
	cross := func(score int64) (all bool) {
		all = true
		for k, stage := range stages {
			if w.crossed[k] == 0 && t.total(sums, stage) > t.room {
				w.crossed[k] = score
			}
			all = all && w.crossed[k] != 0
		}
		if used := t.total(sums, make([]int64, len(sums))); t.divided && *floorAt == 0 && used > t.floorRoom {
			*floorAt = score
		}
		return all && (!t.divided || *floorAt != 0)
	}
	if w.at[0] == math.MaxInt64 {
		cross(limit.Never)
	}
	_, done, err = t.merge(w, steps, func(c *cursor, from int64) (err error) {
		c.rows, c.more, err = v.l.rowsDown(c.lane, from, lowest, c.take)
		return err
	}, func(a, b int64) bool { return a > b }, func(int) bool { return false }, func(part int, amount, score int64) bool {
		sums[part] += amount
		return cross(score)
	})
	if err != nil || !done {
		return 0, done, err
	}
	used := t.used(v.w)
	starts := make([]int64, len(stages)+1)
	for i, score := range w.crossed {
		fits := i < len(stages) && t.total(used, stages[i]) <= t.room || i == len(stages) && t.total(used, make([]int64, len(used))) <= t.floorRoom
		switch {
		case score == limit.Never:
			starts[i] = limit.Never
		case score != 0:
			starts[i] = v.w.shape.Returns(score)
		case fits:
			starts[i] = now
		default:
			starts[i] = reset
		}
	}
	if !t.divided {
		return starts[0], true, nil
	}
	w.starts, w.spells = starts, nil
	if spells := v.limit.Spells(); len(spells) > 0 {
		floor, whole := starts[len(stages)], len(stages)-len(spells)
		for k, spell := range spells {
			w.spells = append(w.spells, limit.SpellWait{Until: spell.Until, Start: max(starts[whole+k], floor)})
		}
		w.starts = append(starts[:whole:whole], floor)
	}
	return t.wait(w, now, true).From(now), true, nil
}

// wait is the item's wait for the limit, of a walk that has found its end.
func (t *test) wait(w *walk, now int64, refused bool) limit.Wait {
	return limit.Wait{Limit: t.v.limit, Starts: w.starts, Spells: w.spells, At: w.fits, Now: now, Refused: refused, Lease: t.lease}
}
