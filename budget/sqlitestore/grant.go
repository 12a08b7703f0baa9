package sqlitestore

import "github.com/quotactl/quotactl/budget/driver"

// grant records a charge. old is an entry with the same id that is no longer held, or nil.
// observed is what would have refused the charge but for observe mode.
func (d *decider) grant(item driver.Item, old *entry, now int64, observed string) (driver.Decision, error) {
	l := d.l
	op, err := l.number(item.Operation, item.Labels.Job)
	if err != nil {
		return driver.Decision{}, err
	}
	at := max(now, d.when.later, l.newest+1)
	if item.Recorded {
		at = max(now, d.when.later) - item.Age
		l.walkNo++
	}
	e := &entry{id: item.ID, start: at, score: at + item.Lease, asked: item.Units, units: item.Units, state: statePlain, calls: 1, observed: observed != ""}
	if item.Lease > 0 {
		e.state = stateOpen
	}
	if item.Recorded && e.score <= max(l.gone, l.horizon(now)) {
		decision := d.granted(item)
		decision.At = at
		return decision, nil
	}
	if old != nil {
		if old.score > l.gone { // no window may count from before an entry that is missing
			l.gone = max(l.gone, l.horizon(now))
		}
		if err := l.remove(old); err != nil {
			return driver.Decision{}, err
		}
	}
	e.score = max(e.score, l.merged+1)
	e.lane = laneOf(op, e.units, e.state)
	if err := l.label(e, item.Labels, at); err != nil {
		return driver.Decision{}, err
	}
	if at > l.newest {
		l.newest, l.newestID = at, item.ID
	}
	if at == l.last+1 { // the next of several at one instant
		l.last = at
	}
	if err := l.insert(e); err != nil {
		return driver.Decision{}, err
	}
	l.charge(e, item.Units, item.Recorded, d.when.drains())
	l.noteSpent(at, series{operation: l.base(op), job: item.Labels.Job, region: item.Labels.Region}, item.Units, 1)
	l.holds.draw(item, now)
	l.witness = item.ID
	if item.Recorded { // it may be too old to count
		if err := d.expireAdded(); err != nil {
			return driver.Decision{}, err
		}
	}
	decision := d.granted(item)
	decision.At, decision.Observed = at, observed
	return decision, nil
}

// granted is a grant, with the limit that has the least left.
func (d *decider) granted(item driver.Item) driver.Decision {
	limit, left := driver.LeastRemaining(d.batch.Limits, item, func(i int) int64 { return d.limits[i].used() + d.limits[i].held() })
	return driver.Decision{Result: driver.Granted, Units: item.Units, Limit: limit, Remaining: left}
}
