package outage

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
)

// partLease is how long the host's own ledger keeps units reserved while the store decides,
// in µs.
const partLease = int64(time.Minute / time.Microsecond)

// withinPart has the store decide again the items that a loss holds back, if the host's
// part has room for them. The parts of all hosts together fit in the headroom, whatever
// another host has yet to report.
func (s *Store) withinPart(ctx context.Context, batch driver.Batch, decided driver.Decisions) driver.Decisions {
	var places []int
	for i, d := range decided.Items {
		if d.Result == driver.Refused && d.Recovering && !batch.Items[i].IsHold() {
			places = append(places, i)
		}
	}
	if len(places) == 0 || ctx.Err() != nil || s.o.Dir == "" || s.o.Allowance == 0 {
		return decided
	}
	local := driver.Batch{Budget: batch.Budget, Now: batch.Now, Observe: batch.Observe}
	for _, l := range batch.Limits {
		local.Limits = append(local.Limits, s.part(l))
	}
	again := batch
	again.WithinPart, again.Items, again.Finishes = true, nil, nil
	for _, i := range places {
		item := batch.Items[i]
		item.Deadline, item.Floor, item.UseHeadroom, item.Fence = time.Time{}, 0, false, ""
		item.ID, item.Lease = rand.Text(), partLease // the item's own id may be in that ledger already, released
		local.Items, again.Items = append(local.Items, item), append(again.Items, batch.Items[i])
	}
	ledger, err := s.allowance(ctx)
	var room driver.Decisions
	if err == nil {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), localTimeout)
		defer cancel()
		room, err = ledger.Decide(own, local)
	}
	if err != nil {
		s.log.Warn("the part that this host may spend during a recovery cannot be read", "budget", batch.Budget, "error", err)
		return decided
	}
	fits, kept, asked := again.Items[:0], places[:0], local.Items[:0]
	for j, i := range places {
		if room.Items[j].Result == driver.Granted {
			fits, kept, asked = append(fits, again.Items[j]), append(kept, i), append(asked, local.Items[j])
		}
	}
	if again.Items = fits; len(fits) == 0 {
		return decided
	}
	s.memory.writesNext(batch.Budget) // the refusals' answer must not delay this one's write
	bounded, cancel := context.WithTimeoutCause(ctx, s.o.Timeout, driver.ErrUnavailable)
	defer cancel()
	answers, err := s.decide(bounded, again)
	if err != nil {
		s.log.Warn("calls that fit this host's part cannot be charged", "budget", batch.Budget, "error", err)
	}
	for j, i := range kept {
		if err != nil {
			if unreached(bounded, err) || bounded.Err() != nil { // it stays spent in the part: the store may have charged it
				decided.Items[i] = driver.Decision{Result: driver.OutcomeUnknown, Limit: -1, Err: err}
			}
			continue
		}
		decided.Items[i] = answers.Items[j]
		if decided.Items[i].Result != driver.OutcomeUnknown {
			s.closePart(ctx, ledger, batch, asked[j], decided.Items[i].Result == driver.Granted)
		}
	}
	if err == nil {
		decided.Now, decided.Seen, decided.Used, decided.Mark = answers.Now, answers.Seen, answers.Used, answers.Mark
	}
	return decided
}

// closePart settles or releases what was reserved in the host's part.
func (s *Store) closePart(ctx context.Context, ledger *sqlitestore.Store, batch driver.Batch, item driver.Item, spent bool) {
	if item.DryRun {
		return
	}
	done := driver.Finish{ID: item.ID, Release: !spent, Units: item.Units}
	if _, err := driver.FinishOne(context.WithoutCancel(ctx), ledger, batch.Budget, batch.Now, done); err != nil {
		s.log.Warn("the part that this host may spend during a recovery cannot be settled, and counts wrong for a while", "budget", batch.Budget, "operation", item.Operation, "id", item.ID, "error", err)
	}
}
