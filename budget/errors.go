package budget

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Sentinels to test with errors.Is. Every refusal of a charge is also a
// [*RefusedError].
var (
	// ErrExhausted: the units do not fit now; RetryAfter says when they will.
	ErrExhausted = errors.New("exhausted")
	// ErrLocked: the budget or the limit is closed until RetryAt, by an upstream's
	// response or by a person. It is an ErrExhausted too.
	ErrLocked = fmt.Errorf("locked: %w", ErrExhausted)
	// ErrRecovering: the store has lost data. Until RetryAt, or until all hosts have
	// reported, this host may spend only its own part. It is an ErrExhausted too.
	ErrRecovering = fmt.Errorf("recovering: %w", ErrExhausted)
	// ErrFenced: the call is for a pass that another daemon considers dead. Waiting
	// does not help.
	ErrFenced = errors.New("fenced off")
	// ErrNeverFits: units, with the floor or with what is guaranteed to other shares, exceed
	// a limit. Waiting does not help.
	ErrNeverFits = errors.New("can never fit")
	// ErrUnknownOperation: the operation has no price and the upstream's
	// unknown_operation is "refuse".
	ErrUnknownOperation = errors.New("unknown operation")
	// ErrConflict: the id was used for something else, or the reservation is
	// already finished in another way.
	ErrConflict = errors.New("conflict")
	// ErrExpired: the reservation's lease has ended, or its id is no longer kept.
	ErrExpired = errors.New("expired")
	// ErrUnknownBudget: no such upstream or credential in the configuration.
	ErrUnknownBudget = errors.New("unknown budget")
)

// RefusedError says that a call may not be made, and why. NotCharged says whether it is
// known that nothing was charged. Err is one of the sentinels above, so errors.Is(err,
// ErrExhausted) works.
type RefusedError struct {
	Budget    string
	Operation string // empty: Room asked about more than one call of one operation
	// ID is the call's, or the one made for it: after ErrUnavailable, the same id sent
	// again is charged once.
	ID    string
	Units int64
	// Limit is the name of the limit that binds: of those that refuse, the one that
	// fits last. Empty if no limit decided.
	Limit string
	// Remaining is what that limit has left, in what it counts, 0 or more.
	Remaining int64
	// Floor is how many units of that limit had to remain, 0 for none. FloorJob is the
	// job that says so; empty if the call did.
	Floor    int64
	FloorJob string
	// Kept is what the call may not take of that limit because it is guaranteed to shares
	// other than its own, in what the limit counts; without shares that nothing is kept
	// for.
	Kept []Kept
	// Held is what passes hold of that limit, which the call may not take; 0 if that is not
	// known.
	Held int64
	// RetryAfter is sufficient and minimal: the same call fits then if nothing else
	// happens, and one microsecond earlier it does not. 0 if waiting does not help, or
	// if it is unknown.
	RetryAfter time.Duration
	// RetryAt is that instant on the store's clock; zero if no time is known.
	RetryAt time.Time
	// Ends is set if what refused the call, a lock or the Limit, ends before RetryAt: then
	// units that are guaranteed to others in another limit keep the call out.
	Ends time.Time
	// Apart, with ErrNeverFits: the call fits each limit, but never all together, because
	// their guarantees to others lapse at different times.
	Apart bool
	// Why is a lock's reason, with ErrLocked.
	Why string
	// Source is who decided, SourceStore or SourceAllowance; empty if nobody did.
	Source string
	// Remembered: the process gave an earlier refusal again, and the store was not asked; see
	// package refusals. Limit, Remaining and Kept are of then. RetryAt is the earliest at which
	// the call may fit; if the earlier call was for fewer units, it may be too early.
	Remembered bool
	// NotCharged: nothing is charged under the ID. False if that is unknown: the store
	// was asked and did not answer, or it was not asked and may have the ID that the
	// caller gave.
	NotCharged bool
	// OnStoreError is the policy that was asked for when Err is ErrUnavailable.
	OnStoreError Policy
	Err          error
	// Cause is the error of the store or the context, if any.
	Cause error

	job   string // the call's
	holds bool   // the call asked for a hold
}

// fitsText says when the call fits.
func (e *RefusedError) fitsText() string {
	said := fmt.Sprintf("; fits in %s, at %s", e.RetryAfter, e.RetryAt.UTC().Format(timeFormat))
	if e.Held > 0 {
		said += " if they neither spend nor renew it"
	}
	if !e.Ends.IsZero() {
		said += ", when no limit's guarantees to others keep it out"
	}
	return said
}

// Error says what was asked, which limit refused, and when to retry.
func (e *RefusedError) Error() string {
	asked := "charge " + e.Budget + " " + e.Operation
	switch {
	case errors.Is(e.Err, ErrUnknownOperation): // it has no price to show
	case e.holds:
		asked = "hold " + countUnits(e.Units) + " of " + e.Budget + " for job " + e.job
	case e.Operation == "" && e.Units == 0:
		asked = "check what " + e.Budget + " has left"
	case e.Operation == "":
		asked = "check whether " + e.Budget + " has " + countUnits(e.Units) + " left"
	default:
		asked += " (" + countUnits(e.Units) + ")"
	}
	said, cause := e.Err.Error(), ""
	if e.Cause != nil {
		cause = e.Cause.Error()
	}
	switch {
	case errors.Is(e.Err, ErrLocked):
		said = "locked"
		if e.Limit != "" {
			said = "limit " + e.Limit + " is locked"
		}
		ends := e.RetryAt
		if !e.Ends.IsZero() {
			ends = e.Ends
		}
		said += fmt.Sprintf(" for %s, until %s", e.RetryAfter-e.RetryAt.Sub(ends), ends.UTC().Format(timeFormat))
		if e.Why != "" {
			said += " (" + e.Why + ")"
		}
		if !e.Ends.IsZero() {
			said += e.fitsText()
		}
	case errors.Is(e.Err, ErrRecovering):
		said = fmt.Sprintf("recovering: the store has lost data and not all hosts have reported what they know; until they have, this host may spend only its part of the headroom; fits in %s at the latest, at %s",
			e.RetryAfter, e.RetryAt.UTC().Format(timeFormat))
	case errors.Is(e.Err, ErrExhausted) && e.Limit != "":
		said += fmt.Sprintf(": limit %s has %d left", e.Limit, e.Remaining)
		if e.Floor > 0 {
			said += fmt.Sprintf(", and %d must remain (%s)", e.Floor, e.floorText())
		}
		if e.Held > 0 {
			said += fmt.Sprintf(" beside %d that running passes hold", e.Held)
		}
		said += e.keptText()
		if !e.RetryAt.IsZero() {
			said += e.fitsText()
		}
	case errors.Is(e.Err, ErrNeverFits):
		if e.Apart {
			said += fmt.Sprintf(": the guarantees of limit %s and of other limits never lapse together; let them lapse at one time, or put the job in a share", e.Limit)
		} else if len(e.Kept) > 0 {
			said += fmt.Sprintf(": units and what is guaranteed to others (%s) exceed limit %s; guarantee less, raise the limit, put the job in a share or ask for fewer units", keptList(e.Kept), e.Limit)
		} else if e.Floor > 0 {
			said += fmt.Sprintf(": units and the %d that must remain (%s) exceed limit %s; raise the limit, lower the floor or ask for fewer units", e.Floor, e.floorText(), e.Limit)
		} else {
			said += ": the units exceed limit " + e.Limit + "; raise the limit or ask for fewer units"
		}
	case errors.Is(e.Err, ErrUnavailable):
		said, cause = join(said, cause), ""
		if e.Floor > 0 { // of the host's allowance, which the cause ends with
			said += fmt.Sprintf(", and %d must remain (%s)", e.Floor, e.floorText())
		}
		if !e.NotCharged && e.ID != "" {
			what := "id"
			if errors.Is(e.Cause, ErrNotCharged) {
				what = "an earlier call with id"
			}
			said += fmt.Sprintf("; whether %s %q is charged is unknown: send the same id again to find out", what, e.ID)
		}
		if e.OnStoreError != Open {
			said += "; refused because its policy is closed"
		}
	case errors.Is(e.Err, ErrClock):
		said, cause = join(said, cause), ""
		said += "; check the store's clock, then accept it: quotactl clock accept " + e.Budget
	case errors.Is(e.Err, ErrDamaged), errors.Is(e.Err, ErrLost):
		said, cause = join(said, cause), ""
		said += "; restore it, or forget it once its longest window has passed: quotactl reset " + e.Budget + " --yes"
	}
	return asked + ": " + join(said, cause)
}

// Kept is what a limit keeps for a share.
type Kept struct {
	Share string
	Units int64 // in what the limit counts, above 0
}

// keptText says what is kept for others, unless the floor alone refuses.
func (e *RefusedError) keptText() string {
	sum := int64(0)
	for _, k := range e.Kept {
		sum += k.Units
	}
	switch {
	case sum == 0, e.Floor > 0 && sum <= e.Remaining-e.Units:
		return ""
	case sum > e.Remaining, e.Floor > 0:
		return fmt.Sprintf(", and %s", keptList(e.Kept))
	}
	return fmt.Sprintf(", of which %s", keptList(e.Kept))
}

// keptList lists what is kept: "300 are kept for nightly and 20 for feeds".
func keptList(kept []Kept) string {
	var text strings.Builder
	for i, k := range kept {
		switch {
		case i == 0:
			fmt.Fprintf(&text, "%d are kept for %s", k.Units, k.Share)
		case i == len(kept)-1:
			fmt.Fprintf(&text, " and %d for %s", k.Units, k.Share)
		default:
			fmt.Fprintf(&text, ", %d for %s", k.Units, k.Share)
		}
	}
	return text.String()
}

// floorText says whose floor it is.
func (e *RefusedError) floorText() string {
	if e.FloorJob != "" {
		return "the floor of job " + e.FloorJob
	}
	return "the call's floor"
}

// join appends the cause, or returns the cause alone if it contains the message already.
func join(said, cause string) string {
	switch {
	case cause == "":
		return said
	case strings.Contains(cause, said):
		return cause
	}
	return said + ": " + cause
}

// countUnits formats a number of units: "1 unit", "2 units".
func countUnits(n int64) string {
	if n == 1 {
		return "1 unit"
	}
	return strconv.FormatInt(n, 10) + " units"
}

// Unwrap lets errors.Is and errors.As see the sentinel and the cause.
func (e *RefusedError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// timeFormat is RFC 3339 UTC with microseconds.
const timeFormat = "2006-01-02T15:04:05.000000Z07:00"

// refuse makes a refusal without a limit; the caller adds the rest.
func (b *Budget) refuse(call Call, units int64, err, cause error) *RefusedError {
	return &RefusedError{
		Budget: b.spec.Name, Operation: call.Operation, ID: call.ID, Units: units,
		Err: err, Cause: cause, OnStoreError: b.spec.policy(call), job: call.Labels.Job, holds: call.holds,
	}
}

// uncharged is an error after which it is known that nothing was charged.
type uncharged struct{ error }

// Unwrap makes it ErrNotCharged, too, which says nothing to people.
func (e uncharged) Unwrap() []error { return []error{e.error, ErrNotCharged} }

// storeError turns an error of the store or the context into a refusal.
func (b *Budget) storeError(ctx context.Context, call Call, units int64, err error) error {
	if sentinel := notServing(err); sentinel != nil {
		return b.refuse(call, units, sentinel, trimSentinel(err, sentinel))
	}
	switch {
	case errors.Is(err, ErrNotCharged) && ctx.Err() != nil && call.NewID:
		return uncharged{fmt.Errorf("charge %s %s: %w; nothing was charged", b.spec.Name, call.Operation, context.Cause(ctx))}
	case ctx.Err() != nil && call.Operation == "": // Room
		return fmt.Errorf("check what %s has left: %w", b.spec.Name, context.Cause(ctx))
	case ctx.Err() != nil:
		return fmt.Errorf("charge %s %s: %w; whether id %q was charged is unknown, send the same id again to find out", b.spec.Name, call.Operation, context.Cause(ctx), call.ID)
	}
	refused := b.refuse(call, units, ErrUnavailable, trimSentinel(err, ErrUnavailable))
	refused.NotCharged = call.NewID && errors.Is(err, ErrNotCharged)
	return refused
}

// notServing returns the sentinel if the store answered but would not serve; nil if it
// did not answer.
func notServing(err error) error {
	for _, sentinel := range []error{ErrClock, ErrDamaged, ErrLost, ErrStoreConfig, ErrClosed} {
		if errors.Is(err, sentinel) {
			return sentinel
		}
	}
	return nil
}

// outOfReach adds ErrUnavailable if the store did not answer in time and the caller's
// own context has not ended.
func outOfReach(caller context.Context, err error) error {
	if caller.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// trimSentinel drops a cause that only repeats its sentinel.
func trimSentinel(err, sentinel error) error {
	if err.Error() == sentinel.Error() {
		return nil
	}
	return err
}
