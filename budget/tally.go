package budget

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// tallyEvery is how soon refusals of a process that goes on are written to the history, and
// mostTallied bounds how many rows of them wait for that. Further ones count for their limit
// alone.
const (
	tallyEvery  = 10 * time.Second
	mostTallied = 1024
)

// tally counts calls that were refused for good, or waited, until they are written to the
// history: in the background, since no charge waits for it. A process that is killed loses
// those that it has not written; a write that the store did not answer may count twice.
type tally struct {
	sending sync.Mutex // held while counts are written

	mu     sync.Mutex                           // guards all below
	counts map[driver.RefusalCount]refusedCalls // by the count without its numbers
	timer  *time.Timer                          // runs if there are counts
}

// refusedCalls are how many calls were refused and how many waited.
type refusedCalls struct{ refused, waited int64 }

// tallied counts a refusal that a caller gets.
func (b *Budget) tallied(receipt Receipt, err error) (Receipt, error) {
	if err != nil {
		b.tally(err, refusedCalls{refused: 1})
	}
	return receipt, err
}

// tally adds to the counts of a refusal for lack of units. The hour is by the store's clock,
// if the refusal shows it.
func (b *Budget) tally(err error, n refusedCalls) {
	var refused *RefusedError
	if !errors.As(err, &refused) || !errors.Is(refused.Err, ErrExhausted) {
		return
	}
	at := b.now()
	if !refused.RetryAt.IsZero() {
		at = refused.RetryAt.Add(-refused.RetryAfter)
	}
	key := driver.RefusalCount{Hour: driver.HourOf(max(0, at.UnixMicro())), Operation: refused.Operation, Job: refused.job}
	if l, known := b.limitNamed(refused.Limit); known { // not a host's allowance
		key.Limit = l.Configured()
	}
	t := b.tallies
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.counts[key]; !known && len(t.counts) >= mostTallied {
		key.Operation, key.Job = "", ""
	}
	t.add(key, n)
	if t.timer == nil {
		t.timer = time.AfterFunc(tallyEvery, b.sendTally)
	}
}

// waited counts a call that was granted after a sleep, its own or that of one ahead of it.
func (b *Budget) waited(held *sleep, item driver.Item) {
	refused := *held.refused
	refused.Operation, refused.job = item.Operation, item.Labels.Job
	refused.RetryAt = time.Time{} // it is granted now
	b.tally(&refused, refusedCalls{waited: 1})
}

// add adds to a count. mu is held.
func (t *tally) add(key driver.RefusalCount, n refusedCalls) {
	if t.counts == nil {
		t.counts = map[driver.RefusalCount]refusedCalls{}
	}
	old := t.counts[key]
	t.counts[key] = refusedCalls{old.refused + n.refused, old.waited + n.waited}
}

// take takes up to driver.MaxRefusals of the counts.
func (t *tally) take() (list []driver.RefusalCount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, n := range t.counts {
		if len(list) == driver.MaxRefusals {
			break
		}
		delete(t.counts, key)
		key.Refused, key.Waited = n.refused, n.waited
		list = append(list, key)
	}
	if len(t.counts) == 0 && t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	return list
}

// sendTally writes the counts to the store. If the store is out of reach, they wait.
func (b *Budget) sendTally() {
	t := b.tallies
	t.sending.Lock()
	defer t.sending.Unlock()
	var err error
	if host, ok := b.store.(interface{ OutOfReach() (time.Time, bool) }); ok {
		if _, out := host.OutOfReach(); out {
			err = ErrUnavailable
		}
	}
	for list := t.take(); len(list) > 0; list = t.take() {
		if err == nil {
			_, err = apply(context.Background(), b, driver.Refusals{Budget: b.spec.Name, Now: b.now().UnixMicro(), Counts: list})
		}
		if err == nil {
			continue
		}
		b.log.Debug("the store did not count refusals", "budget", b.spec.Name, "error", err)
		if errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalid) { // nor will it later
			continue
		}
		t.mu.Lock()
		for _, one := range list {
			n := refusedCalls{one.Refused, one.Waited}
			one.Refused, one.Waited = 0, 0
			t.add(one, n)
		}
		t.timer = time.AfterFunc(tallyEvery, b.sendTally)
		t.mu.Unlock()
		return
	}
}

// closeTally writes what is left, within a decision's time.
func (b *Budget) closeTally() {
	b.sendTally()
	b.tallies.mu.Lock()
	defer b.tallies.mu.Unlock()
	if b.tallies.timer != nil {
		b.tallies.timer.Stop()
	}
}
