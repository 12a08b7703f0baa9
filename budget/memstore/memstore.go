// Package memstore is the reference model of a store: a plain slice of entries, summed
// by definition on every call. Use it for tests, and for a single process that need not
// remember anything after it ends; [New] makes one. A decision takes time in proportion
// to the entries, so use sqlitestore for large ledgers.
package memstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Store is a driver.Store and keeps the jobs' state, in memory. Use New.
type Store struct {
	clock func() int64

	mu      sync.Mutex // guards all below
	ledgers map[string]*ledger
	// histories are by budget; they outlive their ledgers.
	histories map[string]*history
	jobs      map[string]*job
	closed    bool
}

// New makes an empty store whose clock answers in µs since the Unix epoch; nil is
// time.Now, which is fake within testing/synctest. A clock of your own must advance:
// otherwise no units return, and a wait for them never ends.
func New(clock func() int64) *Store {
	if clock == nil {
		clock = func() int64 { return time.Now().UnixMicro() }
	}
	return &Store{clock: clock, ledgers: map[string]*ledger{}, histories: map[string]*history{}, jobs: map[string]*job{}}
}

// ledger is the state of one budget.
type ledger struct {
	born    int64 // the first decision
	last    int64 // last seen
	gone    int64 // what finished up to here was forgotten
	newest  int64 // the newest entry's time
	merged  int64 // no id with a score up to here is held
	entries []*entry
	windows map[string]*window
	meters  map[string]*meter
	locks   map[string]lock // by the limit's name; empty: the budget
	holds   []*hold         // in the order in which they were taken

	history  *history
	unnoted  int64  // the history may lack charges of up to here
	id       string // random
	rowNo    int64  // the newest merged row's number
	imports  driver.Imports
	changes  int64    // of what was charged before
	newestID string   // of the newest entry; empty: none since the ledger began
	resetAt  int64    // when a reset began it; 0: none did
	notice   int64    // when the last loss was noticed; 0: never
	reported []string // the hosts that have reported that loss
	hosts    []noted  // in the order in which they were noted
	tables   driver.NotedTables
	plans    driver.Plans
}

// noted is when a host was noted as at work.
type noted struct {
	host string
	at   int64
}

// newLedger is an empty ledger, with the budget's history. The store has neither until begun
// adds them.
func (s *Store) newLedger(name string) *ledger {
	past := s.histories[name]
	if past == nil {
		past = newHistory()
	}
	return &ledger{history: past, windows: map[string]*window{}, meters: map[string]*meter{}, locks: map[string]lock{}, id: rand.Text()}
}

// begun adds a new ledger to the store.
func (s *Store) begun(name string, l *ledger) { s.ledgers[name], s.histories[name] = l, l.history }

type state int

const (
	plain state = iota
	open
	settled
	released
)

type entry struct {
	item  driver.Item
	state state
	start int64
	score int64
	units int64
	calls int64
	row   bool // a charge of a pseudo-operation, not of a call
	seen  bool // only observe mode let it through
	noID  bool // merged: only its slot and who spent are known
}

// amount is how much the entry counts in a limit that counts it.
func (e *entry) amount(l limit.Limit) int64 {
	if l.Counts == limit.CountCalls {
		return e.calls
	}
	return e.units
}

// counts reports whether a limit counts the entry, while its score is above the
// limit's cut.
func (e *entry) counts(l limit.Limit) bool {
	if l.Window.Kind == limit.Concurrent && e.state != open {
		return false
	}
	return e.state != released && l.Covers(e.item.Operation)
}

// window is a live window.
type window struct {
	shape  limit.Window
	usedAt int64
	cut    int64 // a calendar's, as of its last use
	floor  int64 // what finished up to here was already forgotten when the window began
}

// lower is the instant up to which finished entries do not count at now.
func (w *window) lower(now int64) int64 {
	if w.shape.Kind == limit.CalendarKind {
		return w.cut
	}
	return w.shape.Cut(now)
}

// horizon is the instant up to which nothing is held at now.
func (l *ledger) horizon(now int64) int64 {
	h := now - driver.MinHeld
	for _, w := range l.windows {
		h = min(h, w.lower(now))
	}
	return h
}

// earliest is the first instant that is neither forgotten at now nor merged.
func (l *ledger) earliest(now int64) int64 { return max(l.gone, l.merged, l.horizon(now)) + 1 }

// find is the held entry with this id, or nil.
func (l *ledger) find(id string, now int64) *entry {
	for _, e := range l.entries {
		if e.item.ID == id && !e.noID && e.score > max(l.horizon(now), l.merged) {
			return e
		}
	}
	return nil
}

// prune forgets what is not held.
func (l *ledger) prune(now int64) {
	l.gone = max(l.gone, l.horizon(now))
	kept := l.entries[:0]
	for _, e := range l.entries {
		if e.score > l.gone {
			kept = append(kept, e)
		}
	}
	clear(l.entries[len(kept):])
	l.entries = kept
}

// moment is the time of a decision, in µs.
type moment struct {
	clock int64 // the earlier of the two clocks, not clamped
	now   int64 // clamped to last seen
	later int64 // the later of the two: charges count from then on
}

// tell compares the clock with its witness, the caller's clock.
func (l *ledger) tell(clock, caller int64) (moment, error) {
	if clock-l.last > driver.ClockTolerance && clock-caller > driver.ClockTolerance {
		return moment{}, fmt.Errorf("memory store: %w: it shows %d µs, the caller %d", driver.ErrClock, clock, caller)
	}
	if caller-clock > driver.MaxLease.Microseconds() {
		return moment{}, fmt.Errorf("memory store: %w: it shows %d µs, the caller %d", driver.ErrClock, clock, caller)
	}
	m := moment{clock: clock, later: max(clock, caller)}
	if clock-caller <= driver.ClockTolerance {
		m.clock = min(clock, caller)
	}
	m.now = max(m.clock, l.last)
	return m, nil
}

// drains is the instant from which a bucket that changes now drains again. If the clocks
// are far apart, it drains only once the earlier one has caught up.
func (m moment) drains() int64 {
	if m.later-m.now > driver.ClockTolerance {
		return m.later
	}
	return m.now
}

// use makes the windows of the limits live.
func (l *ledger) use(limits []limit.Limit, now int64) {
	for key, w := range l.windows {
		if now > w.usedAt+w.shape.Longest()+driver.WindowIdle {
			delete(l.windows, key)
		}
	}
	for _, shape := range limit.Windows(limits) {
		key := shape.Key()
		w := l.windows[key]
		if w == nil {
			w = &window{shape: shape, usedAt: now, floor: l.gone}
			l.windows[key] = w
		}
		if now-w.usedAt >= driver.WindowUseNoted {
			w.usedAt = now
		}
		w.cut = shape.Cut(now)
	}
}

// used sums what the limit counts at the instant at, over all entries.
func (l *ledger) used(lim limit.Limit, at int64) (units int64) {
	if lim.Window.Kind == limit.Bucket {
		return l.meter(lim, at).used(at)
	}
	cut := max(lim.Window.Cut(at), l.floor(lim))
	for _, e := range l.entries {
		if e.score > cut && e.counts(lim) {
			units += e.amount(lim)
		}
	}
	return units
}

// floor is the instant up to which a window knows nothing.
func (l *ledger) floor(limit limit.Limit) int64 {
	if w := l.windows[limit.Window.Key()]; w != nil {
		return w.floor
	}
	return l.gone
}

// fitsAt is the first instant after now at which use falls to room or below.
func (l *ledger) fitsAt(lim limit.Limit, now, room int64) int64 {
	if lim.Window.Kind == limit.Bucket {
		return l.meter(lim, now).reaches(now, room)
	}
	used, cut := l.used(lim, now), max(lim.Window.Cut(now), l.floor(lim))
	var counted []*entry
	for _, e := range l.entries {
		if e.score > cut && e.counts(lim) {
			counted = append(counted, e)
		}
	}
	slices.SortFunc(counted, func(a, b *entry) int { return cmp.Compare(a.score, b.score) })
	for _, e := range counted {
		if used -= e.amount(lim); used <= room {
			return lim.Window.Returns(e.score)
		}
	}
	return 0
}

// enter checks the store and opens the budget's ledger, at the decision's time.
func (s *Store) enter(ctx context.Context, name string, caller int64) (*ledger, moment, error) {
	if err := ctx.Err(); err != nil {
		return nil, moment{}, err
	}
	if s.closed {
		return nil, moment{}, fmt.Errorf("memory store: %w", driver.ErrClosed)
	}
	l := s.ledgers[name]
	if l == nil {
		l = s.newLedger(name)
	}
	m, err := l.tell(s.clock(), caller)
	return l, m, err
}

// begin returns a budget's ledger and the decision's time, and notes that time as last
// seen. It creates the ledger if there is none.
func (s *Store) begin(ctx context.Context, name string, caller int64) (*ledger, moment, error) {
	l, when, err := s.enter(ctx, name, caller)
	if err != nil {
		return nil, moment{}, err
	}
	if s.ledgers[name] == nil {
		l.born = when.now
		s.begun(name, l)
	}
	l.last = when.now
	return l, when, nil
}

// bring does the same, and then brings the ledger up to now for the limits.
func (s *Store) bring(ctx context.Context, name string, caller int64, limits []limit.Limit) (*ledger, moment, error) {
	l, when, err := s.begin(ctx, name, caller)
	if err != nil {
		return nil, moment{}, err
	}
	l.use(limits, when.now)
	l.prune(when.now)
	l.history.drop(when.now)
	l.merge(when.now)
	l.useMeters(limits, when.now)
	return l, when, nil
}

func (s *Store) acceptClock(name string) {
	l := s.ledgers[name]
	if l == nil {
		l = s.newLedger(name)
		l.born = s.clock()
		s.begun(name, l)
	}
	l.last = max(l.last, s.clock())
}

// Change implements driver.Store.
func (s *Store) Change(ctx context.Context, change driver.Change) (driver.Changed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c := change.(type) {
	case driver.Recovery:
		return s.recover(ctx, c)
	case driver.Report:
		return s.report(ctx, c)
	case driver.Lock:
		return s.lock(ctx, c)
	case driver.Unlock:
		return s.unlock(ctx, c)
	case driver.HoldChange:
		return s.changeHold(ctx, c)
	case driver.PlanChange:
		return s.changePlan(ctx, c)
	case driver.Import:
		return s.importRows(ctx, c)
	case driver.Reset:
		return driver.Done{}, s.reset(ctx, c.Budget)
	case driver.AcceptClock:
		s.acceptClock(c.Budget)
		return driver.Done{}, nil
	case driver.Refusals:
		return driver.Done{}, s.countRefusals(ctx, c)
	}
	return nil, driver.Unknown(change)
}

// Budgets implements driver.Store.
func (s *Store) Budgets(ctx context.Context, upstream string, most int) (names []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.ledgers {
		if strings.HasPrefix(name, upstream+"/") && len(names) < most {
			names = append(names, name)
		}
	}
	return names, ctx.Err()
}

// Close implements driver.Store; nothing is kept.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
