package sqlitestore

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// meter is a live bucket. While it is replayed from the ledger, entries with scores above
// reached are not counted yet.
type meter struct {
	key     string
	limit   limit.Limit // the operations it covers, and whether it counts units or calls
	refill  limit.Refill
	level   limit.Level
	usedAt  int64
	longest int64
	fill    int64 // the level at which a replay begins
	oldest  int64 // the oldest entry's score; 0: the replay has not reached one yet
	reached int64 // the score up to which it is replayed; toTheEnd: in use
	dirty   bool
}

// levelAt is the level at an instant, or at its last change if that is later.
func (m *meter) levelAt(at int64) limit.Level { return m.refill.Drain(m.level, at) }

// add changes the level at an instant. A negative amount returns what was charged age µs
// before.
func (m *meter) add(amount, age, at, drains int64) {
	m.level, m.dirty = m.refill.Add(m.levelAt(at), amount, age), true
	m.level.At = max(m.level.At, drains)
}

// useMeters makes the limits' meters live, and drops those unused for long.
func (l *ledger) useMeters(limits []limit.Limit, now int64) error {
	for _, m := range l.meters {
		if now > m.usedAt+m.longest+driver.WindowIdle {
			if err := l.dropMeter(m); err != nil {
				return err
			}
		}
	}
	var seen []string
	for _, lim := range limits {
		if lim.Window.Kind != limit.Bucket || slices.Contains(seen, lim.Meter()) {
			continue
		}
		key := lim.Meter()
		seen = append(seen, key)
		m := l.meters[key]
		if m == nil {
			m = l.newMeter(lim, now)
			l.meters[key] = m
		}
		if longest := lim.Longest(); m.longest != longest {
			m.longest, m.dirty = longest, true
		}
		if now-m.usedAt >= driver.WindowUseNoted {
			m.usedAt, m.dirty = now, true
		}
	}
	return nil
}

func (l *ledger) dropMeter(m *meter) error {
	delete(l.meters, m.key)
	return l.c.exec("DELETE FROM meter WHERE b = ? AND key = ?", l.b, m.key)
}

// newMeter returns a meter whose replay has not begun.
func (l *ledger) newMeter(limit limit.Limit, now int64) *meter {
	m := &meter{key: limit.Meter(), limit: limit, refill: limit.Window.Refill, usedAt: now, longest: limit.Longest(), fill: limit.Limit}
	l.replayAnew(m)
	return m
}

// replayAnew restarts a meter's replay.
func (l *ledger) replayAnew(m *meter) {
	m.level, m.oldest, m.reached, m.dirty = limit.Level{}, 0, math.MinInt64, true
}

// metered reports whether the meter counts the entries of a lane.
func (l *ledger) metered(m *meter, lane int64) bool {
	return covered(m.limit, lane) && l.covers(m.limit, lane/classes)
}

// replay counts further entries into a meter, in the order of scores, open reservations as
// of now. It reads at most steps rows, and counts steps down. done: the meter is in use.
func (l *ledger) replay(m *meter, now int64, steps *int) (done bool, err error) {
	if m.reached == toTheEnd {
		return true, nil
	}
	all, err := l.lanes()
	if err != nil {
		return false, err
	}
	lanes := slices.DeleteFunc(all, func(lane int64) bool { return !l.metered(m, lane) })
	for m.reached != toTheEnd {
		if *steps <= 0 {
			return false, nil
		}
		read, upto := []row(nil), toTheEnd
		for _, lane := range lanes {
			rows, more, err := l.rows(lane, max(m.reached, l.gone), toTheEnd, max(16, min(*steps, chunk)/len(lanes)))
			if err != nil {
				return false, err
			}
			if more {
				upto = min(upto, rows[len(rows)-1].score)
			}
			read = append(read, rows...)
		}
		*steps -= max(1, len(read))
		slices.SortFunc(read, func(a, b row) int { return cmp.Compare(a.score, b.score) })
		for _, r := range read {
			if r.score <= upto {
				m.count(r, min(r.score, now))
			}
		}
		m.reached, m.dirty = upto, true
	}
	m.level = m.levelAt(now)
	m.level.At = max(m.level.At, now)
	return true, nil
}

// count adds one entry in a replay. At the oldest entry the meter is full.
func (m *meter) count(r row, at int64) {
	amount := r.units
	if m.limit.Counts == limit.CountCalls {
		amount = r.calls
	}
	switch {
	case m.oldest == 0:
		m.oldest, m.level = at, limit.Level{Used: m.fill, At: at}
	case at > m.oldest:
		m.add(amount, 0, at, at)
	}
}

// charge adds a new entry to all meters that count it, now. It restarts replays for an entry
// of the past, which they may have passed.
func (l *ledger) charge(e *entry, units int64, past bool, drains int64) {
	for _, m := range l.meters {
		if past && m.reached != toTheEnd {
			l.replayAnew(m)
		}
		if e.score > m.reached || !l.covers(m.limit, e.operation()) {
			continue
		}
		m.add(m.limit.Amount(units), 0, l.last, drains)
	}
}

// change is what a finish adds to a meter; negative if it returns units or calls.
func (m *meter) change(e *entry, units int64, release bool) int64 {
	switch {
	case m.limit.Counts == limit.CountUnits:
		return units - e.units
	case release:
		return -1
	}
	return 0
}

// finishMeters applies an open reservation's end to the meters.
func (l *ledger) finishMeters(e *entry, units int64, release bool, now, drains int64) {
	for _, m := range l.meters {
		switch {
		case m.reached != toTheEnd:
			l.replayAnew(m)
		case l.covers(m.limit, e.operation()):
			m.add(m.change(e, units, release), now-e.start, now, drains)
		}
	}
}

// overfull reports whether a settlement would raise a meter above the largest level.
func (l *ledger) overfull(e *entry, units, now int64) bool {
	for _, m := range l.meters {
		change := m.change(e, units, false)
		if change > 0 && l.covers(m.limit, e.operation()) && m.levelAt(now).Used+change > maxSum {
			return true
		}
	}
	return false
}

// lookAtMeter reads a bucket's level. It replays a bucket that is not live.
func (l *ledger) lookAtMeter(limit limit.Limit, now int64) (seen driver.LimitView, err error) {
	m := l.meters[limit.Meter()]
	if m == nil {
		m = l.newMeter(limit, now)
	}
	for done := false; !done; {
		steps := math.MaxInt
		if done, err = l.replay(m, now, &steps); err != nil {
			return seen, err
		}
	}
	level := m.levelAt(now)
	if seen.Used = level.Used; seen.Used > 0 {
		seen.NextAt = m.refill.Reaches(level, seen.Used-1)
		seen.NextAmount = seen.Used - m.refill.Drain(level, seen.NextAt).Used
	}
	return seen, nil
}

// readMeters reads the live meters.
func (l *ledger) readMeters() error {
	var m meter
	var counts, operations string
	var amount, period int64
	var bad error
	err := l.c.each("SELECT key, counts, operations, amount, period, used, part, at, used_at, longest, fill, oldest, reached FROM meter WHERE b = ?",
		[]any{l.b}, func() {
			read := m
			if operations != "" {
				read.limit.Operations = strings.Split(operations, ",")
			}
			read.limit.Counts = limit.Counts(counts)
			refill, err := limit.NewRefill(amount, time.Duration(period)*time.Microsecond)
			if err != nil {
				bad = err
			}
			read.refill = refill
			read.limit.Window = limit.BucketWindow(refill)
			l.meters[read.key] = &read
		}, &m.key, &counts, &operations, &amount, &period, &m.level.Used, &m.level.Part, &m.level.At, &m.usedAt, &m.longest, &m.fill, &m.oldest, &m.reached)
	if err == nil && bad != nil {
		err = fmt.Errorf("budget %s: %w: a meter has no rate: %w; %s", l.name, driver.ErrDamaged, bad, adviceDamaged)
	}
	return err
}

// writeMeters writes the meters that changed.
func (l *ledger) writeMeters() error {
	for _, m := range l.meters {
		if !m.dirty {
			continue
		}
		amount, period := m.refill.Rate()
		err := l.c.exec(`INSERT OR REPLACE INTO meter(b, key, counts, operations, amount, period, used, part, at, used_at, longest, fill, oldest, reached)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			l.b, m.key, string(m.limit.Counts), strings.Join(m.limit.Operations, ","), amount, period,
			m.level.Used, m.level.Part, m.level.At, m.usedAt, m.longest, m.fill, m.oldest, m.reached)
		if err != nil {
			return err
		}
		m.dirty = false
	}
	return nil
}
