package redisstore

import (
	"maps"

	"github.com/quotactl/quotactl/budget/driver"
)

// caller is what decides beside the units whether limits refuse an item.
type caller struct {
	charge
	floor       int64
	useHeadroom bool
	lease       int64
}

func callerOf(item *driver.Item) caller {
	return caller{charge{item.Operation, item.Labels.Job}, item.Floor, item.UseHeadroom, item.Lease}
}

// note takes over what charge.lua has decided on items, and before it by an earlier plan.
func (p *plan) note(earlier *plan, items []driver.Item, decided []driver.Decision) {
	if earlier != nil {
		earlier.mu.Lock()
		p.refused = maps.Clone(earlier.refused)
		earlier.mu.Unlock()
	}
	for i := range items {
		if items[i].IsHold() {
			continue
		}
		of := callerOf(&items[i])
		least, known := p.refused[of]
		switch {
		case decided[i].Result == driver.Refused && (!known || items[i].Units < least):
			if p.refused == nil || len(p.refused) >= maxOperations {
				p.refused = map[caller]int64{}
			}
			p.refused[of] = items[i].Units
		case decided[i].Result == driver.Granted && known && items[i].Units >= least:
			delete(p.refused, of)
		}
	}
}

// refuses reports whether charge.lua has refused such an item last time.
func (p *plan) refuses(item *driver.Item) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	least, known := p.refused[callerOf(item)]
	return known && item.Units >= least
}
