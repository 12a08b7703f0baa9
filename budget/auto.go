package budget

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/headroom"
	"github.com/quotactl/quotactl/budget/limit"
)

// autoEvery is how often a budget reads the evidence for its automatic headrooms again while
// it is used. autoAgain is how soon after a failure.
const (
	autoEvery = time.Minute
	autoAgain = 5 * time.Second
)

// autos works out the automatic headrooms of a budget. It reads the evidence before the first
// decision, and then beside later ones: no goroutine of it lives longer than one read.
type autos struct {
	name    string
	limits  []limit.Limit   // the budget's, as configured
	own     []limit.Limit   // each that has an automatic headroom; per = "operation" makes several
	follows map[string]bool // by the names of own; others are of operations without a price
	store   driver.Store
	jobs    driver.JobStore
	now     func() time.Time
	timeout time.Duration
	log     *slog.Logger
	lowered func() // a headroom has become less

	present atomic.Pointer[presentLimits]
	turn    chan struct{} // full while evidence is read
	closed  atomic.Bool
	due     atomic.Pointer[time.Time] // when to read again; nil: nothing was read yet

	mu      sync.Mutex // guards all below
	notes   headroom.Notes
	pending headroom.Notes // what this process saw and has not shared yet
	plain   map[string]*plainCharges
	known   map[string]headroom.Evidence // but for Noted
	full    int64                        // the hour in which all of the history was read, µs
	failed  bool                         // the last read
	active  bool                         // this process has charged or reported
}

// presentLimits are the limits with the present headroom, and what that is made of, by the
// limit's name.
type presentLimits struct {
	limits []limit.Limit
	parts  map[string]headroom.Parts
}

// newAutos returns nil if no limit has an automatic headroom.
func newAutos(b *Budget, jobs driver.JobStore, log *slog.Logger) *autos {
	a := &autos{
		name: b.spec.Name, limits: b.spec.Limits, store: b.store, jobs: jobs, now: b.now, timeout: b.spec.Timeout, log: log, lowered: b.waits.free,
		turn: make(chan struct{}, 1), plain: map[string]*plainCharges{}, follows: map[string]bool{}, known: map[string]headroom.Evidence{},
	}
	operations := slices.Sorted(maps.Keys(b.spec.Costs))
	for _, l := range a.limits {
		switch {
		case l.Auto == 0:
		case !l.PerOperation:
			a.own = append(a.own, l)
		default:
			for _, operation := range operations {
				if l.Covers(operation) {
					a.own = append(a.own, l.For(operation))
				}
			}
		}
	}
	for _, l := range a.own {
		a.follows[l.Name] = true
	}
	if len(a.own) == 0 && !slices.ContainsFunc(a.limits, func(l limit.Limit) bool { return l.Auto > 0 }) {
		return nil
	}
	a.present.Store(&presentLimits{limits: a.limits})
	return a
}

// at is the limit with its present headroom.
func (a *autos) at(l limit.Limit) limit.Limit {
	if a == nil || l.Auto == 0 {
		return l
	}
	return l.WithHeadroom(a.parts(l).Units())
}

// parts is what the present headroom of a limit is made of.
func (a *autos) parts(l limit.Limit) headroom.Parts {
	if parts, ok := a.present.Load().parts[l.Name]; ok {
		return parts
	}
	return headroom.Unknown(l)
}

// ready makes sure that evidence was read, and has it read again if it is due. The first read
// is waited for, and so is one that is long due, since meanwhile others may have found drift
// or a period have begun. Such a read takes at most half of the budget's timeout; if the first
// fails, the headrooms are the most, if another does, they stay as they are.
func (a *autos) ready(ctx context.Context) {
	if a == nil || a.closed.Load() {
		return
	}
	if a.old() {
		select {
		case a.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if a.old() {
			a.read(ctx, a.timeout/2)
		}
		<-a.turn
		return
	}
	if due := a.due.Load(); time.Now().Before(*due) {
		return
	}
	select {
	case a.turn <- struct{}{}:
		go func() {
			defer func() { <-a.turn }()
			a.read(context.Background(), a.timeout)
		}()
	default:
	}
}

// old reports whether evidence has not been read yet, or not for so long that the present
// headrooms may be wrong.
func (a *autos) old() bool {
	due := a.due.Load()
	return due == nil || time.Since(*due) > autoEvery
}

// share reads at once what others noted, and notes what this process saw.
func (a *autos) share(ctx context.Context) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
		a.read(ctx, a.timeout)
	case <-ctx.Done():
	}
}

// close shares what is left to share. Later calls do nothing.
func (a *autos) close() {
	if a == nil || a.closed.Swap(true) {
		return
	}
	a.mu.Lock()
	a.leave(a.now().UnixMicro())
	some := len(a.pending.Limits) > 0
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), a.timeout)
	defer cancel()
	if some {
		a.share(ctx)
		return
	}
	select { // a read under way ends first
	case a.turn <- struct{}{}:
		<-a.turn
	case <-ctx.Done():
	}
}

// read reads the evidence within a timeout; a failure leaves the headrooms as they are. The
// turn is held.
func (a *autos) read(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := a.update(ctx)
	next := time.Now().Add(autoEvery)
	if err != nil {
		next = time.Now().Add(autoAgain)
	}
	a.due.Store(&next)
	a.mu.Lock()
	first := err != nil && !a.failed
	a.failed = err != nil
	a.mu.Unlock()
	if first {
		a.log.Warn("the evidence for automatic headroom cannot be read or shared; the headroom stays as it is until it can", "budget", a.name, "error", err)
	}
}

// workAt works out the headroom of some limits at an instant (µs), and puts it in force.
func (a *autos) workAt(limits []limit.Limit, now int64) {
	a.mu.Lock()
	lowered := a.work(limits, now)
	a.mu.Unlock()
	if lowered { // it may ask the store
		a.lowered()
	}
}

// work does workAt, and reports whether a headroom has become less. a.mu is held.
func (a *autos) work(limits []limit.Limit, now int64) (lowered bool) {
	before := a.present.Load()
	after := &presentLimits{parts: map[string]headroom.Parts{}}
	maps.Copy(after.parts, before.parts)
	changed := false
	for _, l := range limits {
		evidence := a.known[l.Name]
		evidence.Noted = a.notes.Limits[l.Name]
		was, is := a.parts(l), headroom.Of(l, evidence, now)
		after.parts[l.Name] = is
		lowered, changed = lowered || is.Units() < was.Units(), changed || is != was
		if is.Capped() && !was.Capped() {
			a.log.Warn("the automatic headroom of a limit should be more than its maximum: calls may be refused by the upstream; raise max, or lower outage_allowance",
				"budget", a.name, "limit", l.Name, "max", is.Most, "drift", is.Drift, "in_flight", is.InFlight, "clock", is.Clock, "outage", is.Outage)
		}
	}
	if !changed && before.parts != nil {
		return false // the same limits, so that stores recognise them
	}
	for _, l := range a.limits {
		if parts, ok := after.parts[l.Name]; ok && l.Auto > 0 {
			l = l.WithHeadroom(parts.Units())
		}
		after.limits = append(after.limits, l)
	}
	a.present.Store(after)
	return lowered
}
