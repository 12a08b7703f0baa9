package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// Soak has goroutines charge, settle and release at random, in concurrent batches, on
// budgets whose windows pass. It checks every answer against a ledger of its own, which
// knows only the answers: nothing exceeds a limit in any rolling window or period,
// remaining is exact, refusals charge nothing, ids are charged once, totals equal what
// was spent by whom, and nothing is left when a budget has idled. held is about how many
// entries a ledger may keep: few for a store that sums them all.
//
// A step is a charge, a settlement or a look; make soak takes ten million. A seed repeats a
// soak's requests, but the store may process concurrent requests in any order.
func Soak(t *testing.T, open Open, held int) {
	t.Helper()
	steps, seed := effort.Of[uint64](4_000, 20_000, 20_000, 10_000_000), effort.Seed(t)
	began := time.Now()
	const lanes = 2
	all := make([]*soakLane, lanes)
	failed := make([]error, lanes)
	var running sync.WaitGroup
	for i := range all {
		lane := &soakLane{rng: rand.New(rand.NewPCG(seed, uint64(i))), name: fmt.Sprint("lane", i), now: noon, most: held, counts: map[string]uint64{}}
		lane.store = open(t, func() int64 { return lane.now })
		all[i] = lane
		running.Go(func() {
			if failed[i] = lane.soak(steps / lanes); failed[i] != nil {
				failed[i] = fmt.Errorf("seed %d, %s, budget %s, step %d, clock %d: %w", seed, lane.name, lane.budget, lane.step, lane.now, failed[i])
			}
		})
	}
	running.Wait()
	must.Do(t, errors.Join(failed...))
	sum, done := map[string]uint64{}, uint64(0)
	for _, lane := range all {
		done += lane.step
		for what, n := range lane.counts {
			sum[what] += n
		}
	}
	took := time.Since(began)
	t.Logf("seed %d: %d steps in %.1f s, %.0f/s: %v", seed, done, took.Seconds(), float64(done)/took.Seconds(), sum)
	for _, must := range []string{"granted", "refused", "replayed", "conflict", "never fits", "dry", "settled", "released", "finished again", "finish conflict", "expired", "instant", "debt", "looked", "spent", "emptied"} {
		if sum[must] == 0 && steps >= 20_000 {
			t.Errorf("seed %d: the soak never came by %q: it shows less than it should", seed, must)
		}
	}
}

// soakLane soaks one budget after the other on a store of its own. Its clock stands still
// while charges are under way, so that the answers are determined except for their order.
type soakLane struct {
	rng    *rand.Rand
	name   string
	store  Store
	most   int
	step   uint64
	counts map[string]uint64

	now     int64
	budget  string
	limits  []limit.Limit
	lengths []int64 // spans for steps of time, give or take
	ledger  *soakLedger
	recent  []driver.Item // recently charged or refused
	open    []string      // reservations, some of them finished
	lately  []driver.Finish
	made    int // how many ids were made
}

// soak takes the given number of steps.
func (s *soakLane) soak(steps uint64) error {
	for s.step < steps {
		s.begin()
		for end := min(steps, s.step+max(5_000, steps/500)); s.step < end; {
			s.pass()
			for _, act := range []func() error{s.charges, s.finishes, s.look} {
				if err := act(); err != nil {
					return err
				}
			}
		}
		if err := s.idle(); err != nil {
			return err
		}
	}
	return nil
}

// flight is a batch under way, and later its answers.
type flight struct {
	driver.Batch
	got  driver.Decisions
	err  error
	next int // the first item whose answer is not yet explained
}

// charges has up to four batches decided at once, and explains the answers.
func (s *soakLane) charges() error {
	flights := make([]*flight, 1+s.rng.IntN(4))
	for i := range flights {
		flights[i] = &flight{Batch: s.batch()}
		s.step += uint64(len(flights[i].Items))
	}
	var all sync.WaitGroup
	for _, f := range flights {
		all.Go(func() { f.got, f.err = s.store.Decide(context.Background(), f.Batch) })
	}
	all.Wait()
	for _, f := range flights {
		if f.err != nil || f.got.Now != s.now || len(f.got.Items) != len(f.Items) {
			return fmt.Errorf("decide %d items: %d answers, clock %d, %w", len(f.Items), len(f.got.Items), f.got.Now, f.err)
		}
	}
	s.ledger.advance(s.now)
	return s.explain(flights)
}

// explain checks the answers in the order in which the store decided, which the instants
// of the new charges show. If the store decided a batch in several steps, a refusal in
// between may have been decided later than the charge before it.
func (s *soakLane) explain(flights []*flight) error {
	for {
		var first *flight
		var why error
		for _, f := range flights {
			if err := s.unchanging(f); err != nil {
				why = err
				continue
			}
			if f.next < len(f.Items) && (first == nil || f.got.Items[f.next].At < first.got.Items[first.next].At) {
				first = f
			}
		}
		switch {
		case first == nil && why == nil:
			return nil
		case first == nil:
			return fmt.Errorf("no order of the answers explains one of them: %w", why)
		}
		if err := s.ledger.charge(first.Items[first.next], first.got.Items[first.next]); err != nil {
			return errors.Join(err, why)
		}
		s.counts["granted"]++
		if item := first.Items[first.next]; item.Lease > 0 {
			s.open = append(s.open[max(0, len(s.open)-63):], item.ID)
		}
		first.next++
	}
}

// unchanging explains the answers of a batch up to the next new charge; its error is that
// of the first answer that is not right now.
func (s *soakLane) unchanging(f *flight) error {
	for ; f.next < len(f.Items); f.next++ {
		item, d := f.Items[f.next], f.got.Items[f.next]
		if d.Result == driver.Granted && !d.Replayed && !item.DryRun {
			return nil
		}
		instant := d.Result == driver.Refused && s.rng.IntN(50) == 0
		if err := s.ledger.explains(item, d, instant); err != nil {
			return err
		}
		switch {
		case instant:
			s.counts["instant"]++
			fallthrough
		case d.Result == driver.Refused:
			s.counts["refused"]++
		case item.DryRun:
			s.counts["dry"]++
		case d.Replayed:
			s.counts["replayed"]++
		case d.Result == driver.Conflict:
			s.counts["conflict"]++
		case d.Result == driver.NeverFits:
			s.counts["never fits"]++
		}
	}
	return nil
}

// finishes settles and releases some reservations, each in a goroutine.
func (s *soakLane) finishes() error {
	asks := map[string]driver.Finish{}
	for range s.rng.IntN(16) {
		if len(s.open) == 0 {
			break
		}
		i := s.rng.IntN(len(s.open))
		f := driver.Finish{ID: s.open[i], Release: s.rng.IntN(2) == 0, Units: s.rng.Int64N(4)}
		if s.rng.IntN(6) == 0 {
			f.Units = s.rng.Int64N(2 * s.limits[0].Limit) // a debt, now and then
		}
		if n := len(s.lately); n > 0 && s.rng.IntN(4) == 0 { // the same again
			f = s.lately[s.rng.IntN(n)]
		}
		if s.rng.IntN(8) == 0 { // most of these are not reservations
			f.ID = s.recent[s.rng.IntN(len(s.recent))].ID
		}
		asks[f.ID] = f
		s.lately = append(s.lately[max(0, len(s.lately)-7):], f)
		if s.rng.IntN(3) > 0 { // the others are finished again
			s.open[i] = s.open[len(s.open)-1]
			s.open = s.open[:len(s.open)-1]
		}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	failures := []error{}
	for _, f := range asks {
		s.step++
		all.Go(func() {
			got, err := driver.FinishOne(context.Background(), s.store, s.budget, s.now, f)
			mu.Lock()
			defer mu.Unlock()
			if err == nil { // in any order: the clock stands still, and all ids differ
				err = s.ledger.finish(f, got)
			}
			failures = append(failures, err)
			if got.Replayed {
				s.counts["finished again"]++
			}
			s.counts[map[driver.FinishResult]string{driver.Settled: "settled", driver.Released: "released", driver.FinishExpired: "expired", driver.FinishConflict: "finish conflict"}[got.Result]]++
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// look checks that the totals are the sum of the answers, and sometimes who spent what.
func (s *soakLane) look() error {
	s.step++
	s.counts["looked"]++
	view, err := s.store.Look(context.Background(), driver.Look{Budget: s.budget, Now: s.now, Limits: s.limits})
	if err != nil || len(view.Limits) != len(s.limits) {
		return fmt.Errorf("look: %d limits, %w", len(view.Limits), err)
	}
	s.ledger.advance(s.now)
	for i, limit := range s.ledger.limits {
		if view.Limits[i].Used != limit.used {
			return fmt.Errorf("look: %s has used %d, want %d", limit.Name, view.Limits[i].Used, limit.used)
		}
		if limit.used > limit.Limit.Limit {
			s.counts["debt"]++
		}
	}
	if s.rng.IntN(16) > 0 {
		return nil
	}
	return s.spent(view.Limits[0].Used)
}

// spent compares who spent what with the answers, and its sum with a total.
func (s *soakLane) spent(used int64) error {
	for _, span := range []int64{0, s.limits[0].Window.Length} {
		s.step++
		s.counts["spent"]++
		by := []driver.GroupBy{driver.ByOperation, driver.ByJob}[s.rng.IntN(2)]
		view, err := s.store.Spent(context.Background(), driver.SpentQuery{Budget: s.budget, Now: s.now, By: by, Span: span})
		if err == nil {
			err = s.ledger.matches(view, by, span)
		}
		if err != nil {
			return err
		}
		sum := int64(0)
		for _, row := range view.Rows {
			sum += row.Units
		}
		if span > 0 && sum != used {
			return fmt.Errorf("%d units were spent by all, but the total of the same window is %d", sum, used)
		}
	}
	return nil
}

// idle lets the longest window pass, after which nothing is left. Then the clock advances
// until the store may forget the budget.
func (s *soakLane) idle() error {
	s.now += 30 * hour
	if _, err := s.store.Decide(context.Background(), driver.Batch{Budget: s.budget, Now: s.now, Limits: s.limits}); err != nil {
		return err
	}
	s.ledger.advance(s.now)
	if n := len(s.ledger.held); n > 0 {
		return fmt.Errorf("the soak's own ledger holds %d entries after all windows", n)
	}
	if err := errors.Join(s.look(), s.spent(0)); err != nil {
		return err
	}
	s.counts["emptied"]++
	s.now += 8 * 24 * hour
	return nil
}
