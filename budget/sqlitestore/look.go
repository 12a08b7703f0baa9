package sqlitestore

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// errUnsplit: charges of the shares' jobs are not in lanes of their own yet.
var errUnsplit = errors.New("the ledger counts no shares yet")

// Look implements driver.Store. It waits for no writer, and writes only where shares are new
// to the ledger: see splitForLook. It sums a window that no decision has used from the
// entries, in time proportional to them.
func (s *Store) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	var view driver.View
	read := func(unsplit bool) error {
		return s.read(bounded, func(c *conn) (err error) {
			view, err = s.look(bounded, c, look, unsplit)
			return err
		})
	}
	err := read(false)
	if errors.Is(err, errUnsplit) {
		s.splitForLook(bounded, look)
		err = read(true)
	}
	if err != nil {
		return driver.View{}, s.explain(ctx, "look at "+look.Budget, err)
	}
	return view, nil
}

// splitForLook moves the charges of the shares' jobs to lanes of their own, as the first
// charge with these shares would: else every look would read all entries until then. It takes
// at most half of the look's time. What it does not get done, or may not do, the look sums
// itself, and the next one continues.
func (s *Store) splitForLook(ctx context.Context, look driver.Look) {
	end, _ := ctx.Deadline() // Store.bound has set it
	ctx, cancel := context.WithTimeout(ctx, time.Until(end)/2)
	defer cancel()
	for done := false; !done; {
		err := s.write(ctx, func(c *conn) error {
			l, err := s.ledger(c, look.Budget)
			if err != nil {
				return err
			}
			steps := s.steps
			if done, err = l.splitFor(look.Limits, &steps); err != nil || l.b == 0 {
				return err
			}
			return l.write()
		})
		if err != nil || !done && s.pause(ctx) != nil {
			return
		}
	}
}

// look is Look within a transaction. It brings a copy of the totals up to date. With unsplit
// it sums the shares' charges that are not in their lanes; else that is errUnsplit.
func (s *Store) look(ctx context.Context, c *conn, look driver.Look, unsplit bool) (view driver.View, err error) {
	l, when, err := s.entered(c, look.Budget, look.Now)
	if err != nil {
		return view, err
	}
	if !unsplit && !l.splits(look.Limits) {
		return view, errUnsplit
	}
	now := when.now
	view.Now, view.Entries = when.clock, l.n
	view.Locks = l.standing(now)
	l.last = now // of this copy
	l.holds.end(now)
	view.Holds = l.holds.shown()
	view.Mark, view.AtWork, view.Tables = l.mark(now), l.hosts.atWork(now), l.tables.Within(now)
	view.Plans = l.plans.Within(now)
	if until := l.loss.until(look.Hosts); until > now {
		view.Recovering = until
	}
	if lost, err := l.lost(look.Mark, look.Limits, now); err != nil || lost {
		return view, errors.Join(err, errLost(lost))
	}
	if view.Missing, err = l.missing(look.Others, look.Limits, now); err != nil {
		return view, err
	}
	for _, limit := range look.Limits {
		if err := ctx.Err(); err != nil {
			return view, err
		}
		seen, err := l.lookAt(ctx, limit, now)
		if err != nil {
			return view, err
		}
		view.Limits = append(view.Limits, seen)
	}
	return view, nil
}

// entered reads a budget's ledger, and returns the time of the look.
func (s *Store) entered(c *conn, name string, caller int64) (*ledger, moment, error) {
	l, err := readLedger(c, name, nil)
	if err == nil {
		err = l.checkNewest()
	}
	if err != nil {
		return nil, moment{}, err
	}
	l.perSum = s.perSum
	clock, _, err := s.clocks.read(l.anchor)
	if err != nil {
		return nil, moment{}, err
	}
	when, err := l.enter(clock, caller, s.clocks.oneBoot(l.anchor))
	return l, when, err
}

// lookAt reads one limit's use.
func (l *ledger) lookAt(ctx context.Context, lim limit.Limit, now int64) (seen driver.LimitView, err error) {
	if lim.Window.Kind == limit.Bucket {
		return l.lookAtMeter(lim, now)
	}
	key := lim.Window.Key()
	w, live := l.windows[key]
	if !live {
		if w, err = l.begin(lim.Window, now); err != nil {
			return seen, err
		}
	}
	v := newCounting(l, lim)
	if !live {
		delete(l.windows, key)
	}
	w.shape = lim.Window
	for done := false; !done; {
		steps := math.MaxInt
		if done, err = l.advance(w, now, &steps); err != nil {
			return seen, err
		}
	}
	seen.Used = v.used()
	if seen.Shares, err = v.lookAtShares(ctx, now); err != nil {
		return seen, err
	}
	seen.Recovered, seen.Drift = v.pseudo(limit.RecoveredOperation(lim.Name)), v.pseudo(limit.DriftOperation(lim.Name))
	if w.floor > w.cutAt(now) && l.born > 0 && l.born <= w.floor {
		seen.Since = w.floor + 1
	}
	if seen.Used == 0 {
		return seen, nil
	}
	first, err := v.lowest(now)
	if err != nil {
		return seen, err
	}
	seen.NextAt = lim.Window.Returns(first)
	seen.NextAmount, err = v.upTo(max(lim.Window.Cut(seen.NextAt), w.floor))
	return seen, err
}

// lowest is the lowest score that the limit counts.
func (v *counting) lowest(now int64) (int64, error) {
	score := none
	for lane, t := range v.w.lanes {
		if t.calls == 0 || !v.sees(lane) {
			continue
		}
		rows, _, err := v.l.rowsOf(v.w, lane, max(t.cut, v.w.cutAt(now)), 1)
		if err != nil {
			return 0, err
		}
		if len(rows) > 0 {
			score = min(score, rows[0].score)
		}
	}
	return score, nil
}

// upTo sums what the limit counts of scores up to score.
func (v *counting) upTo(score int64) (int64, error) {
	sum := int64(0)
	for lane, t := range v.w.lanes {
		if t.calls == 0 || !v.sees(lane) {
			continue
		}
		// A rolling window has fewer entries below the score to read, others above it.
		query, from := "SELECT score, units, calls FROM entry WHERE b = ? AND lane = ? AND score > ? AND score <= ?", t.cut
		to, sign := score, int64(1)
		if v.w.kind != limit.Rolling {
			from, to, sign = max(score, t.cut), toTheEnd, -1
			sum += v.of(t.units, t.calls)
		}
		var r row
		err := v.l.c.each(query+v.w.counted(), []any{v.l.b, lane, from, to}, func() { sum += sign * v.of(r.units, r.calls) }, &r.score, &r.units, &r.calls)
		if err != nil {
			return 0, err
		}
	}
	return sum, nil
}
