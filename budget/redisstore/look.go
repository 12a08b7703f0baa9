package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Look implements driver.Store. It brings the totals up to date, like a decision without
// items.
func (s *Store) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return driver.View{}, err
	}
	defer cancel()
	run := s.newBatch(ctx, driver.Batch{Budget: look.Budget, Now: look.Now, Limits: look.Limits, Mark: look.Mark, Others: look.Others, Hosts: look.Hosts}, time.Now())
	run.mode, run.sums = looking, make([]sum, len(look.Limits))
	for {
		done, err := run.step(ctx)
		if err != nil {
			return driver.View{}, err
		}
		if done && run.summed() {
			return run.view(), nil
		}
		if ctx.Err() != nil {
			return driver.View{}, fmt.Errorf("look at %s in Redis: %w: its totals could not be brought up to date in time; look again", look.Budget, driver.ErrUnavailable)
		}
	}
}

// sum adds up a limit's entries with scores above from and up to to, in as many script
// runs as that takes.
type sum struct {
	least    int64 // the score that leaves the window first; 0: not known yet
	from, to int64
	came     string // where the run before ended
	done     bool
	value    int64 // once it is done
}

// args are the script's arguments for the rest of the sum; nil if there is nothing to sum.
func (s sum) args() any {
	if s.least == 0 || s.done {
		return nil
	}
	return sumArgs{s.from, s.to, s.came}
}

// toTheEnd is above every score.
const toTheEnd int64 = 1 << 53

// summed takes in the sums of a run, and reports whether all are complete. If not, the next
// run continues.
func (b *batch) summed() bool {
	done := true
	for i, seen := range b.looks {
		l, s := b.Limits[i], &b.sums[i]
		least := numberAt(seen, 2)
		if least == 0 || l.Window.Kind == limit.Bucket {
			continue
		}
		if least != s.least { // not asked yet, or entries have left the window since
			at := l.Window.Returns(least)
			*s = sum{least: least, from: -1, to: l.Window.Cut(at)}
			if l.Window.Kind == limit.CalendarKind { // the rest, above the cut, has fewer entries
				s.from, s.to = s.to, toTheEnd
			}
			done = false
			continue
		}
		if !s.done {
			s.came, s.value = text(seen, 4), numberAt(seen, 3)
			s.done = s.came == ""
		}
		done = done && s.done
	}
	return done
}

// view converts the script's looks to a driver.View.
func (b *batch) view() driver.View {
	view := driver.View{Now: b.decided.Now, Limits: make([]driver.LimitView, len(b.Limits)), Locks: standing(b.locks, b.seen), Mark: b.told.mark, AtWork: b.told.atWork(b.seen), Tables: b.told.tables.Within(b.seen), Plans: b.told.plans.Within(b.seen), Recovering: b.told.until}
	view.Holds, view.Entries = holdsOf(b.holds), b.entries
	for i := range b.lacks {
		view.Missing = append(view.Missing, b.Others[numberAt(b.lacks, i)-1].ID)
	}
	for i, l := range b.Limits {
		if len(l.Shares) > 0 {
			view.Limits[i].Shares = make([]int64, len(l.Shares)) // also without a ledger, which has no looks
		}
	}
	for i, seen := range b.looks {
		v, l := &view.Limits[i], b.Limits[i]
		v.Used = numberAt(seen, 0)
		if l.Window.Kind == limit.Bucket {
			if level := (limit.Level{Used: v.Used, Part: numberAt(seen, 1), At: numberAt(seen, 2)}); v.Used > 0 {
				v.NextAt = l.Window.Refill.Reaches(level, v.Used-1)
				v.NextAmount = v.Used - l.Window.Refill.Drain(level, v.NextAt).Used
			}
			continue
		}
		v.Recovered, v.Drift = numberAt(seen, 5), numberAt(seen, 6)
		for j := range l.Shares {
			v.Shares[j] = numberAt(list(seen, 7), j)
		}
		floor, least, some := numberAt(seen, 1), numberAt(seen, 2), b.sums[i].value
		if least != 0 {
			v.NextAt, v.NextAmount = l.Window.Returns(least), some
			if l.Window.Kind == limit.CalendarKind {
				v.NextAmount = v.Used - some
			}
		}
		if floor > l.Window.Cut(b.seen) && b.born <= floor {
			v.Since = floor + 1
		}
	}
	return view
}
