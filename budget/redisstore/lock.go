package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// wholeBudget is the scripts' name for the whole budget, where limits have theirs.
const wholeBudget = "*"

// lockName is the scripts' name for a limit, or for the whole budget.
func lockName(limit string) string {
	if limit == "" {
		return wholeBudget
	}
	return limit
}

func (s *Store) lock(ctx context.Context, l driver.Lock) (driver.Locked, error) {
	args := lockArgs{ledgerArgs: ledgerArgs{Now: l.Now}, Name: lockName(l.Limit), Till: l.Until, After: l.After, Most: l.Most, Force: l.Force}
	a, err := s.relock(ctx, "lock", l.Budget, args, oneLine(l.Why))
	if err != nil {
		return driver.Locked{}, err
	}
	return driver.Locked{
		Now: earlierClock(a.now, l.Now), Until: numberAt(a.rest, 0), Since: numberAt(a.rest, 1), Why: text(a.rest, 2), Stood: numberAt(a.rest, 3) == 1,
	}, nil
}

func (s *Store) unlock(ctx context.Context, u driver.Unlock) (driver.Unlocked, error) {
	a, err := s.relock(ctx, "unlock", u.Budget, lockArgs{ledgerArgs: ledgerArgs{Now: u.Now}, Name: lockName(u.Limit), Unlock: true}, "")
	return driver.Unlocked{Stood: err == nil && numberAt(a.rest, 3) == 1}, err
}

// relock runs lock.lua until it has decided. It sets args.Sig.
func (s *Store) relock(ctx context.Context, doing, name string, args lockArgs, why string) (answer, error) {
	for {
		r := s.registry(name)
		a, err := s.ask(ctx, doing, name, s.scripts.Lock, s.keys(name, r), func(time.Time) []any {
			args.Sig = r.sig
			return arguments(args, why)
		})
		switch {
		case err != nil:
			return answer{}, err
		case a.status == statusDone && !lockRest(any(a.rest)):
			return answer{}, s.strange(doing+" "+name, a.rest)
		case a.status == statusDone:
			return a, nil
		case ctx.Err() != nil:
			return answer{}, fmt.Errorf("%s %s in Redis: %w: out of time", doing, name, driver.ErrUnavailable)
		}
	}
}

// oneLine keeps a reason from ending its line.
func oneLine(why string) string { return strings.ReplaceAll(why, "\n", " ") }

// isLocks checks the form of the locks that m keeps.
func isLocks(v any) bool {
	all, ok := v.(string)
	for line := range strings.SplitSeq(all, "\n") {
		_, fine := readLock(line)
		ok = ok && (fine || line == "")
	}
	return ok
}

// readLock reads a line "limit until since why".
func readLock(line string) (driver.LockView, bool) {
	f := strings.SplitN(line, " ", 4)
	if len(f) != 4 || f[0] == "" || !count(f[1]) || !count(f[2]) {
		return driver.LockView{}, false
	}
	view := driver.LockView{Limit: f[0], Until: number(f[1]), Since: number(f[2]), Why: f[3]}
	if view.Limit == wholeBudget {
		view.Limit = ""
	}
	return view, true
}

// standing returns the locks in effect at an instant.
func standing(locks string, now int64) (views []driver.LockView) {
	for line := range strings.SplitSeq(locks, "\n") {
		if view, ok := readLock(line); ok && view.Until > now {
			views = append(views, view)
		}
	}
	slices.SortFunc(views, func(a, b driver.LockView) int { return strings.Compare(a.Limit, b.Limit) })
	return views
}

// binding is a lock, or a loss, that refused an item.
type binding struct {
	limit int // −1: the whole budget; aLoss: a loss
	until int64
	why   string
}

// aLoss is a binding's limit if a loss holds the budget's charges back.
const aLoss = -2

// readBinding reads lines "place until why". Place is a limit's from 1, 0 for the budget,
// -1 for a loss.
func readBinding(lines string, limits int) (list []binding, ok bool) {
	if lines == "" {
		return nil, true
	}
	for line := range strings.SplitSeq(lines, "\n") {
		f := strings.SplitN(line, " ", 3)
		if len(f) != 3 || !within(-1, int64(limits))(f[0]) || !count(f[1]) {
			return nil, false
		}
		place, _ := strconv.Atoi(f[0])
		list = append(list, binding{place - 1, number(f[1]), f[2]})
	}
	return list, true
}

// bindLocks attributes a refusal to the lock that ends last, unless the limits refuse the
// item for longer.
func (b *batch) bindLocks(d *driver.Decision, lines string, used func(i int) int64) {
	list, _ := readBinding(lines, len(b.Limits)) // checked with the reply
	for _, lock := range list {
		first := d.Limit < 0 && !d.Locked
		if !first && lock.until <= d.RetryAt && (d.Locked || lock.until < d.RetryAt) {
			continue
		}
		d.Limit, d.RetryAt, d.Remaining, d.Kept, d.Locked, d.Why = lock.limit, lock.until, 0, nil, true, lock.why
		if lock.limit == aLoss {
			d.Limit, d.Locked, d.Recovering = -1, false, true
		}
		if lock.limit >= 0 {
			d.Remaining = b.Limits[lock.limit].Remaining(used(lock.limit))
		}
	}
}

// observed names the limit at a place from 1; one past the last is a lock on the budget, 0
// is "".
func (b *batch) observed(place int) string {
	switch {
	case place == 0:
		return ""
	case place > len(b.Limits):
		return driver.ObservedLock
	}
	return b.Limits[place-1].Name
}
