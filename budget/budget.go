package budget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/suggest"
)

// Budget spends the units of one credential at one upstream. It is safe for concurrent
// use; charges that arrive together are decided in one step of the store.
//
// Which verb to use:
//
//   - Charge before a call whose cost is known. It is charged, or refused at once.
//     Most jobs need nothing else.
//   - Reserve before a call whose cost is known only afterwards, or that may never
//     be sent. It counts in full until it is settled or released; if neither happens,
//     like a charge made when its lease ends.
//   - Wait when the call is worth waiting for. It is charged as soon as the units fit,
//     first come first served within the process and within a share, and fails at once
//     when the context's deadline comes before they can.
//   - WaitReserve does both: it is how to wait for a limit on open reservations.
//   - Lease for an operation that is called thousands of times a second: it charges
//     units ahead, and hands them out without asking the store.
//   - Status to see what is left without spending, Spent to see who spent it, and
//     Would to see what a call would get now.
//
// A refusal is a [*RefusedError]. A call that is wrong in itself is ErrInvalid or
// ErrTooManyUnits, and an id that was used for another call ErrConflict. After
// ErrFenced another daemon has taken over the pass: stop. If the context ends, the
// error wraps the context's.
type Budget struct {
	spec    Spec
	store   driver.Store
	batcher *batcher[driver.Item, verdicts]
	ender   *batcher[driver.Finish, []driver.Finished]
	waits   *waitQueue
	laters  *laters
	silents *silents
	tallies *tally
	closers []io.Closer
	now     func() time.Time

	perOperation bool // at least one limit has per = "operation"
	table        driver.ShareTable
	auto         *autos // nil: every headroom is fixed
	jobs         driver.JobStore
	run          *running // nil: calls are charged as they are
	log          *slog.Logger
}

// New opens a budget on a store. Wrap the store with outage.New if charges must survive
// its outages and losses. The error says what is wrong with the spec.
func New(store driver.Store, spec Spec, options ...Option) (*Budget, error) {
	if !driver.ValidBudget(spec.Name) {
		return nil, fmt.Errorf("open budget %q: %w: a budget is named upstream/credential", spec.Name, ErrInvalid)
	}
	if err := spec.validate(); err != nil {
		return nil, fmt.Errorf("open budget %s: %w: %w", spec.Name, ErrInvalid, err)
	}
	if spec.Timeout == 0 {
		spec.Timeout = DefaultTimeout
	}
	if host, ok := store.(interface{ Patience() time.Duration }); ok { // it bounds each try by the store's timeout
		spec.Timeout = max(spec.Timeout, host.Patience())
	}
	if spec.Observe {
		spec.Limits = slices.Clone(spec.Limits)
		for i := range spec.Limits {
			spec.Limits[i].Observe = true
		}
	}
	b := &Budget{spec: spec, store: store, now: time.Now, log: slog.New(slog.DiscardHandler)}
	b.jobs, _ = store.(driver.JobStore)
	for _, option := range options {
		option(b)
	}
	for _, l := range spec.Limits {
		b.perOperation = b.perOperation || l.PerOperation
	}
	b.table = shareTable(spec.Limits)
	b.batcher = &batcher[driver.Item, verdicts]{
		decide: b.decideBatch, timeout: spec.Timeout, now: b.now, due: func(item *driver.Item, at time.Time) { item.Deadline = at },
	}
	b.ender = &batcher[driver.Finish, []driver.Finished]{
		decide: b.finishBatch, timeout: spec.Timeout, now: b.now, due: func(f *driver.Finish, at time.Time) { f.Deadline = at },
	}
	b.waits = newWaitQueue(b.askTogether, newHostLine(spec.WaitDir, spec.Name))
	b.laters, b.silents, b.tallies = &laters{}, &silents{}, &tally{}
	if b.auto = newAutos(b, b.jobs, b.log); b.auto != nil && b.jobs == nil {
		return nil, fmt.Errorf("open budget %s: %w: a limit has an automatic headroom, and the store keeps no documents in which hosts could share the evidence: use the option WithJobStore", spec.Name, ErrInvalid)
	}
	return b, nil
}

// Name is upstream/credential.
func (b *Budget) Name() string { return b.spec.Name }

// Spec is what the budget was opened with: an automatic headroom is the most that it may be.
func (b *Budget) Spec() Spec { return b.spec }

// Close waits, for up to the spec's timeout, until the cost of responses whose bodies
// were closed is recorded, after the span of each [Reservation.SettleAfter]; those left
// then count as charged. It writes refusals that are not in the history yet, within the same
// time. It closes what the Budget owns. Charges under way may fail.
func (b *Budget) Close() error {
	var errs []error
	go b.sendSilent(b.takeSilent(nil))
	if left := b.laters.close(b.spec.Timeout); left > 0 {
		errs = append(errs, fmt.Errorf("close %s: %w: the cost of %d responses was not recorded; they count as charged", b.spec.Name, ErrUnavailable, left))
	}
	b.auto.close()
	b.closeTally()
	for _, c := range b.closers {
		errs = append(errs, c.Close())
	}
	b.closers = nil
	return errors.Join(errs...)
}

// Charge takes the call's units or refuses with a [*RefusedError]; it waits for the
// store only, at most the spec's timeout. If the context ends, or the store does not
// answer, while the charge is under way, it is unknown whether it was recorded: send
// the same id again.
func (b *Budget) Charge(ctx context.Context, call Call) (Receipt, error) {
	return b.tallied(b.observing(b.charge(ctx, call, 0)))
}

// charge validates, prices and decides one call.
func (b *Budget) charge(ctx context.Context, call Call, lease int64) (Receipt, error) {
	call = b.inRun(ctx, call)
	call.fillID()
	units, err := b.check(call)
	if err != nil {
		return Receipt{}, err
	}
	item := b.item(call, units, lease)
	item.Deadline = b.deadline(ctx)
	done, err := decidedBy(b.batcher.do(ctx, &item))
	return b.answer(ctx, call, units, done, err)
}

// deadline is when a decision that begins now is given up, by the budget's clock.
func (b *Budget) deadline(ctx context.Context) time.Time {
	timeout := b.spec.Timeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end))
	}
	return b.now().Add(timeout)
}

// item is the call as the store decides it, without the deadline.
func (b *Budget) item(call Call, units, lease int64) driver.Item {
	floor, _ := b.spec.floor(call)
	return driver.Item{
		ID: call.ID, NewID: call.NewID && !call.exact, Operation: call.Operation, Units: units, Lease: lease, Floor: floor,
		UseHeadroom: call.UseHeadroom, Labels: call.Labels, Fence: driver.FenceName(call.Labels.Job, call.Fence), OnStoreError: b.spec.policy(call),
	}
}

// answer turns a decision, or the error instead of one, into the caller's result.
func (b *Budget) answer(ctx context.Context, call Call, units int64, done decided, err error) (Receipt, error) {
	if err != nil {
		return Receipt{}, b.storeError(ctx, call, units, err)
	}
	return b.receipt(call, units, done)
}

// check validates a call before the store is asked, and returns its price.
func (b *Budget) check(call Call) (units int64, err error) {
	if err := call.Validate(0); err != nil {
		return 0, fmt.Errorf("charge %s: %w", b.spec.Name, err)
	}
	units, err = b.spec.price(call)
	advice := b.adviseCost
	if err == nil && !b.covers(call.Operation) {
		err, advice = ErrUnknownOperation, adviseLimit
	}
	if err != nil {
		refused := b.refuse(call, units, err, advice(call.Operation))
		refused.NotCharged = call.NewID
		return 0, refused
	}
	return units, nil
}

func (b *Budget) adviseCost(operation string) error {
	return fmt.Errorf("give %q a cost in costs.toml, or set unknown_operation%s",
		operation, suggest.DidYouMean(operation, slices.Collect(maps.Keys(b.spec.Costs))))
}

func adviseLimit(operation string) error {
	return fmt.Errorf("no limit covers %q: widen a limit's operations", operation)
}

// covers reports whether any limit covers an operation.
func (b *Budget) covers(operation string) bool {
	for i := range b.spec.Limits {
		if b.spec.Limits[i].Covers(operation) {
			return true
		}
	}
	return false
}

// Limits lists the limits that cover an operation, with their present headroom, which
// changes if it is automatic. One with per = "operation" is that of the operation.
func (b *Budget) Limits(operation string) []limit.Limit {
	var list []limit.Limit
	for _, l := range b.spec.Limits {
		if l.Covers(operation) {
			list = append(list, b.auto.at(l.For(operation)))
		}
	}
	return list
}

// limits lists the budget's limits in the order of the spec, with their present headroom. A limit with
// per = "operation" becomes one limit for each given operation that it covers.
func (b *Budget) limits(operations []string) []limit.Limit {
	var list []limit.Limit
	for _, l := range b.spec.Limits {
		if !l.PerOperation {
			list = append(list, b.auto.at(l))
			continue
		}
		for _, operation := range operations {
			if l.Covers(operation) {
				list = append(list, b.auto.at(l.For(operation)))
			}
		}
	}
	return list
}

// ask sends a question to the store, bounded by the budget's timeout.
func ask[Q, A any](ctx context.Context, b *Budget, do func(context.Context, Q) (A, error), question Q) (A, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, b.spec.Timeout, errTimeout)
	defer cancel()
	answer, err := do(bounded, question)
	if err != nil {
		err = outOfReach(ctx, err)
	}
	return answer, err
}

// apply makes a change in the store, with the same bound.
func apply[A driver.Changed](ctx context.Context, b *Budget, change driver.ChangeTo[A]) (A, error) {
	do := func(ctx context.Context, change driver.ChangeTo[A]) (A, error) {
		return driver.Apply(ctx, b.store, change)
	}
	return ask(ctx, b, do, change)
}

// decideBatch has the store decide until ctx ends.
func (b *Budget) decideBatch(ctx context.Context, items []driver.Item) (verdicts, error) {
	b.auto.ready(ctx)
	limits := b.spec.Limits
	if b.auto != nil {
		limits = b.auto.present.Load().limits
	}
	if b.perOperation {
		var operations []string
		for _, item := range items {
			operations = append(operations, item.Operations()...)
		}
		slices.Sort(operations) // the same limits, whatever the order of the items
		limits = b.limits(slices.Compact(operations))
	}
	batch := driver.Batch{Budget: b.spec.Name, Now: b.now().UnixMicro(), Limits: limits, Items: items, Observe: b.spec.Observe, Table: b.table}
	var decisions driver.Decisions
	silent := b.takeSilent(nil)
	defer func() { b.silentDecided(silent, decisions.Finished) }() // even if the store panics
	if silent != nil {
		batch.Finishes = silent.items
	}
	decisions, err := b.store.Decide(ctx, batch)
	if err == nil {
		b.auto.charged(limits, items, decisions)
	}
	return verdicts{decisions, limits, &seen{limits, decisions.Used}}, err
}

// receipt turns a decision into a receipt or an error.
func (b *Budget) receipt(call Call, units int64, done decided) (Receipt, error) {
	d, named := done.Decision, done.limit
	switch d.Result {
	case driver.Granted:
		return Receipt{
			Budget: b.spec.Name, Operation: call.Operation, ID: call.ID, Units: d.Units,
			At: time.UnixMicro(d.At).UTC(), Limit: named, Remaining: d.Remaining,
			Replayed: d.Replayed, Ended: d.Ended, Warning: replayWarning(call, d),
			Source: source(d), Observed: d.Observed, seen: done.seen,
		}, nil
	case driver.Refused, driver.NeverFits:
		refused := b.refuse(call, units, ErrExhausted, nil)
		refused.Limit, refused.Remaining, refused.Source, refused.Remembered = named, d.Remaining, source(d), d.Remembered
		refused.NotCharged = !d.Allowance || call.NewID && !d.Unsure // the store looks for the id first
		if l, known := b.limitNamed(named); known && !d.Locked && !d.Allowance {
			b.nameFloor(refused, call, l)
			refused.Kept, refused.Held = keptOf(l, d.Kept), done.held
		}
		if d.Result == driver.NeverFits {
			refused.Err = ErrNeverFits
			b.nameGuarantees(refused, call)
			return Receipt{}, refused
		}
		if d.Locked {
			refused.Err, refused.Why = ErrLocked, d.Why
		}
		if d.Recovering {
			refused.Err = ErrRecovering
		}
		refused.RetryAt = time.UnixMicro(d.RetryAt).UTC()
		if d.Ends > 0 {
			refused.Ends = time.UnixMicro(d.Ends).UTC()
		}
		refused.RetryAfter = time.Duration(d.RetryAt-done.storeNow) * time.Microsecond
		return Receipt{}, refused
	case driver.Fenced:
		refused := b.refuse(call, units, ErrFenced, errFence)
		refused.NotCharged = call.NewID && !d.Unsure
		return Receipt{}, refused
	case driver.Conflict:
		return Receipt{}, fmt.Errorf("charge %s %s: %w: id %q was used for another call; use a new id", b.spec.Name, call.Operation, ErrConflict, call.ID)
	case driver.Overflow:
		cause := fmt.Errorf("the ledger's sum would exceed %d units", limit.MaxUnits)
		refused := b.refuse(call, units, ErrTooManyUnits, cause)
		if call.holds { // its own sum was checked
			refused = b.refuse(call, units, ErrTooManyHolds, nil)
		}
		refused.NotCharged = true
		return Receipt{}, refused
	case driver.OutcomeUnknown:
		if sentinel := notServing(d.Err); sentinel != nil {
			return Receipt{}, b.refuse(call, units, sentinel, trimSentinel(d.Err, sentinel))
		}
		refused := b.refuse(call, units, ErrUnavailable, fmt.Errorf("the store failed during the decision: %w", d.Err))
		b.nameFloorOf(refused, call, named)
		return Receipt{}, refused
	case driver.Unreached:
		refused := b.refuse(call, units, ErrUnavailable, d.Err)
		b.nameFloorOf(refused, call, named)
		refused.NotCharged = call.NewID
		return Receipt{}, refused
	case driver.Late, driver.Interrupted:
		refused := b.refuse(call, units, ErrUnavailable, errors.New("the store handled it after the deadline; this attempt charged nothing"))
		refused.NotCharged = call.NewID
		return Receipt{}, refused
	}
	return Receipt{}, fmt.Errorf("charge %s %s: the store answered with unknown result %d; do all programs run the same version?", b.spec.Name, call.Operation, d.Result)
}

// errTimeout is the cause when a decision exceeds the budget's own timeout. Unlike the
// end of the caller's context, it means that the store is out of reach.
var errTimeout = fmt.Errorf("%w: it did not answer in time", ErrUnavailable)

// replayWarning is Receipt.Warning: why a replay is probably not a retry.
func replayWarning(call Call, d *driver.Decision) string {
	if !d.Replayed {
		return ""
	}
	const advice = "nothing is charged for this call; use a new id for each call"
	switch d.Ended {
	case driver.EndedSettled:
		return fmt.Sprintf("id %q was charged before and is settled: %s", call.ID, advice)
	case driver.EndedReleased:
		return fmt.Sprintf("id %q was charged before and was released, so nothing counts under it: %s", call.ID, advice)
	case driver.EndedLease:
		return fmt.Sprintf("id %q was charged before and its lease has ended: %s", call.ID, advice)
	}
	if d.First != call.Labels {
		return fmt.Sprintf("id %q was charged before with other labels (%s): %s", call.ID, labelsText(d.First), advice)
	}
	return ""
}

// source reports who made a decision.
func source(d *driver.Decision) string {
	if d.Allowance {
		return SourceAllowance
	}
	return SourceStore
}
