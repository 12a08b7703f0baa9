package memstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/big"
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// mark is the mark of the ledger that a caller gets at an instant.
func (l *ledger) mark(now int64) driver.Mark {
	if l.id == "" {
		return driver.Mark{Seen: now}
	}
	longest := driver.MinHeld
	for _, w := range l.windows {
		longest = max(longest, w.shape.Longest())
	}
	for _, meter := range l.meters {
		longest = max(longest, meter.longest)
	}
	m := driver.Mark{Ledger: l.id, Changes: l.changes, ID: l.newestID, Seen: now, Kept: now + longest + driver.WindowIdle}
	if m.ID != "" {
		m.At = l.newest
	}
	return m
}

// lost reports whether the ledger lacks something that a caller's mark says it had.
func (l *ledger) lost(mark driver.Mark, limits []limit.Limit, now int64) bool {
	lower := l.lower(limits, now)
	other := mark.Ledger != l.id || mark.Changes > l.changes
	born := l.born
	if born == 0 { // there is no ledger
		born = now
	}
	if mark.Ledger != "" && other && mark.Seen > l.resetAt && !mark.Dropped(born, lower) {
		return true
	}
	return len(l.missing([]driver.Mark{mark}, limits, now)) > 0
}

// lower is the instant up to which a missing charge is not a loss.
func (l *ledger) lower(limits []limit.Limit, now int64) int64 {
	lower := l.horizon(now)
	for _, lim := range limits {
		if lim.Window.Kind != limit.Bucket {
			lower = min(lower, lim.Window.Cut(now))
		}
	}
	return max(lower, l.gone)
}

// missing are the ids of the marks' charges that the ledger lacks.
func (l *ledger) missing(marks []driver.Mark, limits []limit.Limit, now int64) (ids []string) {
	lower := max(l.merged, l.lower(limits, now))
	for _, mark := range marks {
		if mark.ID != "" && mark.At > lower && !slices.ContainsFunc(l.entries, func(e *entry) bool { return e.item.ID == mark.ID && !e.noID }) {
			ids = append(ids, mark.ID)
		}
	}
	return ids
}

// report notes that a caller reports a loss. The first report on a ledger begins
// the recovery, and so does one that finds it rolled back.
func (l *ledger) report(r driver.Recovery, now int64) {
	rolledBack := slices.Contains(r.Gone, l.id)
	if rolledBack {
		l.id = rand.Text()
	}
	if rolledBack || l.notice == 0 {
		l.notice, l.reported = now, nil
	}
	if r.Host != "" && len(l.reported) < driver.MaxReports && !slices.Contains(l.reported, r.Host) {
		l.reported = append(l.reported, r.Host)
	}
	l.changes++
}

// recovering is the instant until which a loss holds charges back if this many hosts
// share the store; 0 if it does not.
func (l *ledger) recovering(hosts int64) int64 {
	if l.notice == 0 || hosts <= 1 || int64(len(l.reported)) >= hosts {
		return 0
	}
	return l.notice + driver.RecoveryWait
}

// askRecovery makes the refusal that of a recovery, if that ends no earlier than
// everything else fits, and reports whether it only observes.
func (l *ledger) askRecovery(batch driver.Batch, refusal *driver.Decision, refused *bool) (observed string) {
	until := l.recovering(batch.Hosts)
	switch {
	case until <= l.last || batch.WithinPart:
	case batch.Observe:
		return driver.ObservedLock
	case !*refused || until >= refusal.RetryAt && !refusal.Locked || until > refusal.RetryAt:
		*refusal, *refused = driver.Decision{Result: driver.Refused, Limit: -1, RetryAt: until, Recovering: true}, true
	}
	return ""
}

// recoveringFor is until when a loss holds the items of a batch back; 0: it does not.
func (l *ledger) recoveringFor(batch driver.Batch) int64 {
	if batch.WithinPart || batch.Observe {
		return 0
	}
	return l.recovering(batch.Hosts)
}

// note notes that a host decides on the budget. If there are too many hosts, it forgets
// those noted first.
func (l *ledger) note(host string) {
	if host == "" {
		return
	}
	at := slices.IndexFunc(l.hosts, func(n noted) bool { return n.host == host })
	switch {
	case at >= 0 && l.last-l.hosts[at].at < driver.HostRenewed:
		return
	case at >= 0:
		l.hosts = slices.Delete(l.hosts, at, at+1)
	}
	l.hosts = append(slices.DeleteFunc(l.hosts, func(n noted) bool { return n.at <= l.last-driver.HostNoted }), noted{host, l.last})
	l.hosts = l.hosts[max(0, len(l.hosts)-driver.MaxHosts):]
}

// atWork is how many hosts were noted lately.
func (l *ledger) atWork(now int64) (n int) {
	for _, one := range l.hosts {
		if one.at > now-driver.HostNoted {
			n++
		}
	}
	return n
}

func lost(name string) error {
	return fmt.Errorf("memory store: budget %s: %w", name, driver.ErrLost)
}

// pseudo is how much of a limit's use is recorded under a pseudo-operation.
func (l *ledger) pseudo(lim limit.Limit, operation string, now int64) (amount int64) {
	if lim.Window.Kind == limit.Bucket {
		return 0
	}
	for _, e := range l.entries {
		if e.item.Operation == operation && e.score > max(lim.Window.Cut(now), l.floor(lim)) && e.counts(lim) {
			amount += e.amount(lim)
		}
	}
	return amount
}

// recover carries out a recovery. A ledger in memory is never damaged.
func (s *Store) recover(ctx context.Context, r driver.Recovery) (driver.Recovered, error) {
	l, when, err := s.bring(ctx, r.Budget, r.Now, r.Limits)
	if err != nil {
		return driver.Recovered{}, err
	}
	now := when.now
	answer := driver.Recovered{Now: when.clock, Amounts: make([]int64, len(r.Limits))}
	if slices.Contains(r.Gone, l.id) || l.lost(r.Mark, r.Limits, now) {
		for i, limit := range r.Limits {
			if r.Used[i] >= 0 {
				own, id := r.OwnOf(i)
				answer.Amounts[i] = l.recover(limit, r.Used[i], min(r.At, now), now, own, id)
			}
		}
		l.report(r, now)
	}
	answer.Mark = l.mark(now)
	return answer, nil
}

// recover records what is missing in one limit. The limit had used this much at the
// instant at; own of that was charged by the host of ownID.
func (l *ledger) recover(lim limit.Limit, used, at, now, own int64, ownID string) int64 {
	switch lim.Window.Kind {
	case limit.Bucket:
		added := l.meters[lim.Meter()].refill(lim.Limit, used, at, now)
		l.noteFound(lim, limit.RecoveredOperation(lim.Name), added)
		return added
	case limit.Concurrent:
		return 0
	}
	cut := max(lim.Window.Cut(now), l.floor(lim))
	missing, stood, until := used, int64(0), at
	owns := map[string]int64{}
	kept := l.entries[:0:0]
	for _, e := range l.entries {
		switch {
		case e.item.Operation == limit.RecoveredOperation(lim.Name):
			if e.score > cut {
				stood, until = stood+e.amount(lim), max(until, e.score)
				if e.item.ID != limit.RecoveredID(lim.Name) {
					owns[e.item.ID] = e.amount(lim)
				}
			}
			continue
		case e.score > cut && e.score <= at && e.counts(lim):
			missing -= e.amount(lim)
		case at > cut && e.start <= at && e.score > at && lim.Covers(e.item.Operation): // it was open then
			missing -= (&entry{units: e.item.Units, calls: 1}).amount(lim)
		}
		kept = append(kept, e)
	}
	if own > 0 {
		owns[ownID] = max(own, owns[ownID])
	}
	charged := int64(0)
	for _, amount := range owns {
		charged += amount
	}
	amount := max(missing, stood, charged)
	l.entries = kept
	over := until <= lim.Window.Cut(now)
	if until = max(until, l.earliest(now)); over || amount <= 0 || until <= cut {
		return 0
	}
	owns[limit.RecoveredID(lim.Name)] = amount - charged
	for id, part := range owns {
		if part > 0 {
			l.record(lim, id, limit.RecoveredOperation(lim.Name), part, until)
		}
	}
	l.noteFound(lim, limit.RecoveredOperation(lim.Name), amount-stood)
	return amount
}

// record adds a charge that counts in one limit alone.
func (l *ledger) record(lim limit.Limit, id, operation string, amount, at int64) {
	e := &entry{item: driver.Item{ID: id, Operation: operation}, start: at, score: at, calls: 1, row: true}
	if e.units = amount; lim.Counts == limit.CountCalls {
		e.units, e.calls = 0, amount
	}
	l.entries = append(l.entries, e)
	l.changes++
}

// refill adds what is left of a level seen earlier, until the meter is full at most.
func (m *meter) refill(full, used, at, now int64) int64 {
	left := new(big.Rat).Sub(rat(used), m.drained(now-at))
	add := min(ceil(left), max(full, ceil(left))-m.used(now))
	if add <= 0 {
		return 0
	}
	m.add(rat(add), now)
	return add
}

func (s *Store) reset(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	old, now := s.ledgers[name], s.clock()
	if old != nil {
		now = max(now, old.last)
	}
	l := s.newLedger(name)
	if old != nil {
		l.id, l.changes, l.hosts, l.tables = old.id, old.changes, old.hosts, old.tables
	}
	l.born, l.last, l.newest, l.gone, l.resetAt = now, now, now, now, now
	s.begun(name, l)
	return nil
}
