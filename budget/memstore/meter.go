package memstore

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// meter is a live bucket. Its level is kept as a fraction, by definition.
type meter struct {
	limit   limit.Limit // says which operations it counts, and whether units or calls
	level   *big.Rat
	at      int64
	usedAt  int64
	longest int64
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// drained is what drains in a span of µs.
func (m *meter) drained(span int64) *big.Rat {
	amount, period := m.limit.Window.Refill.Rate()
	return new(big.Rat).Mul(rat(span), big.NewRat(amount, period))
}

// levelAt is the level at an instant, or at its last change if that is later.
func (m *meter) levelAt(at int64) *big.Rat {
	if at <= m.at {
		return m.level
	}
	level := new(big.Rat).Sub(m.level, m.drained(at-m.at))
	if level.Sign() < 0 {
		return rat(0)
	}
	return level
}

// add changes the level at an instant, never to below 0.
func (m *meter) add(amount *big.Rat, at int64) {
	m.level = new(big.Rat).Add(m.levelAt(at), amount)
	if m.level.Sign() < 0 {
		m.level = rat(0)
	}
	m.at = max(m.at, at)
}

func ceil(x *big.Rat) int64 {
	up := new(big.Int).Add(x.Num(), new(big.Int).Sub(x.Denom(), big.NewInt(1)))
	return up.Div(up, x.Denom()).Int64()
}

func (m *meter) used(at int64) int64 { return ceil(m.levelAt(at)) }

// reaches is the first instant, at or after at, at which no more than used is used.
func (m *meter) reaches(at, used int64) int64 {
	at = max(at, m.at)
	above := new(big.Rat).Sub(m.levelAt(at), rat(used))
	if above.Sign() <= 0 {
		return at
	}
	end := new(big.Int).Lsh(big.NewInt(1), 53)
	wait := new(big.Rat).Quo(above, m.drained(1))
	up := new(big.Int).Add(wait.Num(), new(big.Int).Sub(wait.Denom(), big.NewInt(1)))
	up.Div(up, wait.Denom()).Add(up, big.NewInt(at))
	if up.Cmp(end) > 0 {
		return end.Int64()
	}
	return up.Int64()
}

// charge adds a new entry; the meter drains again from the instant drains on.
func (m *meter) charge(e *entry, at, drains int64) {
	if m.limit.Covers(e.item.Operation) {
		m.add(rat(e.amount(m.limit)), at)
		m.at = max(m.at, drains)
	}
}

// change is what a finish adds to the meter, or, if negative, returns: at most the part
// that cannot have drained since the charge.
func (m *meter) change(e *entry, units int64, release bool, now int64) *big.Rat {
	change := int64(0)
	switch {
	case !m.limit.Covers(e.item.Operation):
	case m.limit.Counts == limit.CountUnits:
		change = units - e.units
	case release:
		change = -1
	}
	if change >= 0 {
		return rat(change)
	}
	back := new(big.Rat).Sub(rat(-change), m.drained(max(0, now-e.start)))
	if back.Sign() < 0 {
		return rat(0)
	}
	return back.Neg(back)
}

func (m *meter) finish(e *entry, units int64, release bool, now, drains int64) {
	if m.limit.Covers(e.item.Operation) {
		m.add(m.change(e, units, release, now), now)
		m.at = max(m.at, drains)
	}
}

// over reports whether a settlement would raise the meter above what can be kept.
func (m *meter) over(e *entry, units, now int64) bool {
	change := m.change(e, units, false, now)
	return change.Sign() > 0 && m.used(now)+ceil(change) > maxSum
}

// useMeters makes the meters of the limits live and drops meters that were unused for
// long.
func (l *ledger) useMeters(limits []limit.Limit, now int64) {
	for key, m := range l.meters {
		if now > m.usedAt+m.longest+driver.WindowIdle {
			delete(l.meters, key)
		}
	}
	seen := map[string]bool{}
	for _, lim := range limits {
		if lim.Window.Kind != limit.Bucket || seen[lim.Meter()] {
			continue
		}
		key := lim.Meter()
		seen[key] = true
		m := l.meters[key]
		if m == nil {
			m = l.begin(lim, now)
			l.meters[key] = m
		}
		m.longest = lim.Longest()
		if now-m.usedAt >= driver.WindowUseNoted {
			m.usedAt = now
		}
	}
}

// meter is the live meter of a limit, or the meter that the limit would begin with.
func (l *ledger) meter(limit limit.Limit, now int64) *meter {
	if m := l.meters[limit.Meter()]; m != nil {
		return m
	}
	return l.begin(limit, now)
}

// begin makes a meter by replaying the held entries; the oldest finds the meter full.
func (l *ledger) begin(limit limit.Limit, now int64) *meter {
	m := &meter{limit: limit, level: rat(0), at: now, usedAt: now, longest: limit.Longest()}
	when := func(e *entry) int64 { return min(e.score, now) }
	var held []*entry
	for _, e := range l.entries {
		if e.score > l.gone && e.counts(limit) && e.amount(limit) > 0 {
			held = append(held, e)
		}
	}
	if len(held) == 0 {
		return m
	}
	slices.SortFunc(held, func(a, b *entry) int { return cmp.Compare(when(a), when(b)) })
	oldest := when(held[0])
	m.level, m.at = rat(limit.Limit), oldest
	for _, e := range held {
		if when(e) > oldest {
			m.add(rat(e.amount(limit)), when(e))
		}
	}
	m.level, m.at = m.levelAt(now), now
	return m
}
