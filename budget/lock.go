package budget

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/suggest"
)

// Until is an instant: At, or After from now if At is zero. The zero value means no
// instant.
type Until struct {
	At    time.Time
	After time.Duration
}

// IsZero reports whether u is no instant.
func (u Until) IsZero() bool { return u.At.IsZero() && u.After == 0 }

// micros is u in µs, rounded up so that nobody comes back too early: an instant, or if that
// is 0 a span.
func (u Until) micros() (at, after int64) {
	if u.At.IsZero() {
		return 0, int64((u.After + time.Microsecond - 1) / time.Microsecond)
	}
	return u.At.Add(time.Microsecond - 1).UnixMicro(), 0
}

// maxWhy is how much of a lock's reason is kept, in bytes.
const maxWhy = 200

// leastLockCap is the longest lock that an upstream's response can set where all windows
// concerned are shorter, and no LockOrder.Longest allows more.
const leastLockCap = time.Hour

// LockOrder says what to lock and until when.
type LockOrder struct {
	// Limit is a limit's name, as in Status; empty: the whole budget.
	Limit string
	// Operation is the request's, for a limit with per = "operation": only that
	// operation is locked. Not needed if Limit names it already.
	Operation string
	// Until is an instant, or a span from the store's now.
	Until Until
	// Why is shown with every refusal; 200 bytes of printable text are kept. It must
	// not contain secrets.
	Why string
	// ByHand: a person locks. The lock then replaces an existing one. Otherwise an
	// existing lock is extended, or stays unchanged if it ends no earlier, and the lock is
	// cut to Longest, because a response may name any reset.
	ByHand bool
	// Longest is how long the lock may last from now; 0: LongestLock.
	Longest time.Duration
}

// Lock is a lock that holds.
type Lock struct {
	Limit string // empty: the whole budget
	Until time.Time
	Since time.Time
	Why   string
	// Stood: it existed before and was left unchanged.
	Stood bool
	// Asked is the end that the order asked for, if the lock ends earlier: it was cut. Else
	// it is zero.
	Asked time.Time
}

// Lock closes the budget, or one of its limits, for everybody, until an instant. Calls
// are then refused with ErrLocked, which is an ErrExhausted too. The error is
// ErrInvalid for an unknown limit or a missing end.
func (b *Budget) Lock(ctx context.Context, order LockOrder) (Lock, error) {
	order.Limit = b.limitFor(order.Limit, order.Operation)
	fail := func(err error) (Lock, error) { return Lock{}, fmt.Errorf("lock %s: %w", b.lockName(order.Limit), err) }
	if err := b.checkLimitName(order.Limit); err != nil {
		return fail(err)
	}
	l := driver.Lock{Budget: b.spec.Name, Limit: order.Limit, Why: printable(order.Why), Force: order.ByHand, Most: driver.MaxLock}
	switch u := order.Until; {
	case u.IsZero():
		return fail(fmt.Errorf("%w: it has no end; give an instant or a span", ErrInvalid))
	case u.At.IsZero() && u.After < 0:
		return fail(fmt.Errorf("%w: a span of %s: use 1µs to %s", ErrInvalid, u.After, limit.SpanText(time.Duration(driver.MaxLock)*time.Microsecond)))
	}
	l.Until, l.After = order.Until.micros()
	switch {
	case order.ByHand:
	case order.Longest > 0:
		l.Most = min(order.Longest.Microseconds(), driver.MaxLock)
	default:
		l.Most = LongestLock(b.spec.Limits, order.Limit).Microseconds()
	}
	l.Now = b.now().UnixMicro()
	if asked := max(l.Until, l.Now+l.After); asked > l.Now+l.Most && !order.ByHand { // every screen shows it
		beside := "; the upstream asked for it until " + time.UnixMicro(asked).UTC().Format(time.RFC3339)
		l.Why = l.Why[:min(len(l.Why), maxWhy-len(beside))] + beside
	}
	done, err := apply(ctx, b, l)
	if err != nil {
		return fail(err)
	}
	if done.Until == 0 {
		return fail(fmt.Errorf("%w: its end, %s, has passed", ErrInvalid, order.Until.At.UTC().Format(timeFormat)))
	}
	lock := Lock{Limit: order.Limit, Until: time.UnixMicro(done.Until).UTC(), Since: time.UnixMicro(done.Since).UTC(), Why: done.Why, Stood: done.Stood}
	if asked := max(l.Until, done.Now+l.After); asked > done.Until && !order.ByHand {
		lock.Asked = time.UnixMicro(asked).UTC()
	}
	return lock, nil
}

// Unlock ends a lock; false if there was no lock.
func (b *Budget) Unlock(ctx context.Context, limit string) (bool, error) {
	if err := b.checkLimitName(limit); err != nil {
		return false, fmt.Errorf("unlock %s: %w", b.lockName(limit), err)
	}
	done, err := apply(ctx, b, driver.Unlock{Budget: b.spec.Name, Now: b.now().UnixMicro(), Limit: limit})
	if err != nil {
		return false, fmt.Errorf("unlock %s: %w", b.lockName(limit), err)
	}
	if done.Stood {
		b.waits.free()
	}
	return done.Stood, nil
}

// NextReset is the first reset of the named limit after an instant, if it is a
// calendar; false if none can be computed.
func (b *Budget) NextReset(named string, after time.Time) (time.Time, bool) {
	l, known := b.limitNamed(named)
	if !known || l.Window.Kind != limit.CalendarKind {
		return time.Time{}, false
	}
	_, next := l.Window.Calendar.Period(after.UnixMicro())
	return time.UnixMicro(next).UTC(), true
}

// limitNamed finds a limit by "name", or by "name:operation" if it has
// per = "operation".
func (b *Budget) limitNamed(name string) (limit.Limit, bool) {
	for _, l := range b.spec.Limits {
		if !l.PerOperation {
			if l.Name == name {
				return b.auto.at(l), true
			}
			continue
		}
		if operation, ok := strings.CutPrefix(name, l.Name+":"); ok && driver.ValidName(operation) && l.Covers(operation) {
			return b.auto.at(l.For(operation)), true
		}
	}
	return limit.Limit{}, false
}

// limitFor is the name of a limit for an operation: "name:operation" if it has
// per = "operation".
func (b *Budget) limitFor(name, operation string) string {
	for _, l := range b.spec.Limits {
		if l.Name == name && l.PerOperation && operation != "" {
			return l.For(operation).Name
		}
	}
	return name
}

// checkLimitName refuses the name of an unknown limit; an empty name is the budget.
func (b *Budget) checkLimitName(name string) error {
	if name == "" {
		return nil
	}
	if _, known := b.limitNamed(name); known {
		return nil
	}
	var names []string
	for _, l := range b.spec.Limits {
		if l.PerOperation {
			names = append(names, l.Name+":OPERATION")
		} else {
			names = append(names, l.Name)
		}
	}
	return fmt.Errorf("%w: no limit %q: %s has %s%s", ErrInvalid, name, b.spec.Name, strings.Join(names, ", "), suggest.DidYouMean(name, slices.Clone(names)))
}

// lockName names the budget or one of its limits in messages.
func (b *Budget) lockName(limit string) string {
	if limit == "" {
		return b.spec.Name
	}
	return b.spec.Name + " limit " + limit
}

// LongestLock is the longest lock that a response may set on one of these limits, or with
// an empty name on the whole budget, unless its rule allows another length: the longest
// window concerned, at least an hour.
func LongestLock(limits []limit.Limit, name string) time.Duration {
	most := leastLockCap.Microseconds()
	for _, l := range limits {
		if name == "" || l.Name == name || l.PerOperation && strings.HasPrefix(name, l.Name+":") {
			most = max(most, l.Window.Longest(), l.Longest())
		}
	}
	return time.Duration(min(most, driver.MaxLock)) * time.Microsecond
}

// printable cuts text to maxWhy bytes and replaces all that is not printable ASCII.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return strings.TrimSpace(text[:min(len(text), maxWhy)])
}
