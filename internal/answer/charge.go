package answer

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// Asked is a charge as the caller asked for it.
type Asked struct {
	Call budget.Call
	// Lease above 0 makes it a reservation.
	Lease time.Duration
	// DryRun: decide, but charge nothing.
	DryRun bool
}

// Charge is the answer to a charge: granted or refused, and why.
type Charge struct {
	Budget    string
	Operation string
	ID        string
	Units     *int64 // nil when the operation has no price
	Allowed   bool
	Replayed  bool
	// Warning says that a replay is probably another call; see [budget.Receipt].
	Warning string
	// Charged is nil when unknown: sending the same id again finds out.
	Charged    *bool
	Remaining  *int64 // of the limit; nil when no limit decided
	Limit      string
	Reason     string // empty when it was charged
	RetryAfter time.Duration
	RetryAt    time.Time // zero when waiting does not help or the wait is unknown
	At         time.Time // on the store's clock; zero when unknown
	Source     string    // empty when nobody decided
	// Observed is what would have refused the call without observe mode; empty:
	// nothing.
	Observed string
	Why      string        // a lock's reason
	Floor    int64         // what had to remain of the limit that refused; 0: nothing
	Kept     []budget.Kept // what that limit keeps for shares other than the call's
	DryRun   bool
	// Remembered: the process gave an earlier refusal again; see [budget.RefusedError].
	Remembered bool
	// Lease and LeaseUntil are set for a new reservation, not for a replay, which keeps
	// its first lease.
	Lease      time.Duration
	LeaseUntil time.Time
}

// NewCharge makes the answer from a receipt, or from the error of a refused call.
func NewCharge(spec *budget.Spec, asked Asked, r budget.Receipt, err error) Charge {
	answer := Charge{Budget: spec.Name, Operation: asked.Call.Operation, ID: asked.Call.ID, DryRun: asked.DryRun}
	if err == nil {
		charged := !asked.DryRun && r.Ended != driver.EndedReleased
		if asked.Lease > 0 && !asked.DryRun && !r.Replayed {
			answer.Lease, answer.LeaseUntil = asked.Lease, r.At.Add(asked.Lease)
		}
		answer.Units, answer.Allowed, answer.Replayed, answer.Charged = &r.Units, true, r.Replayed, &charged
		answer.Remaining, answer.Limit = &r.Remaining, r.Limit
		answer.At, answer.Source = r.At, r.Source
		answer.Observed, answer.Warning = r.Observed, r.Warning
		if r.Source == budget.SourceNone && !asked.DryRun { // the store did not say
			answer.Charged = nil
		}
		return answer
	}
	answer.Units, answer.Reason, answer.Charged = price(spec, asked.Call), Reason(err), charged(asked, err)
	var refused *budget.RefusedError
	if !errors.As(err, &refused) {
		return answer
	}
	answer.Why, answer.Floor, answer.Kept, answer.Remembered = refused.Why, refused.Floor, refused.Kept, refused.Remembered
	if refused.Limit != "" {
		answer.Remaining, answer.Limit, answer.Source = &refused.Remaining, refused.Limit, refused.Source
	}
	if !refused.RetryAt.IsZero() {
		answer.RetryAfter, answer.RetryAt = refused.RetryAfter, refused.RetryAt
		answer.At = refused.RetryAt.Add(-refused.RetryAfter)
	}
	return answer
}

// MarshalJSON implements json.Marshaler.
func (a Charge) MarshalJSON() ([]byte, error) {
	return append(a.AppendMembers([]byte{'{'}), '}'), nil
}

// AppendMembers appends the members of the JSON object. It is the only place that
// names them.
func (a *Charge) AppendMembers(b []byte) []byte {
	b = AppendText(append(b, `"budget":`...), a.Budget)
	b = AppendText(append(b, `,"operation":`...), a.Operation)
	b = AppendText(append(b, `,"id":`...), a.ID)
	b = appendNumberOrNull(append(b, `,"units":`...), a.Units)
	b = strconv.AppendBool(append(b, `,"allowed":`...), a.Allowed)
	b = strconv.AppendBool(append(b, `,"replayed":`...), a.Replayed)
	b = append(b, `,"charged":`...)
	if a.Charged == nil {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendBool(b, *a.Charged)
	}
	b = appendNumberOrNull(append(b, `,"remaining":`...), a.Remaining)
	b = appendTextOrNull(append(b, `,"limit_name":`...), a.Limit)
	b = AppendText(append(b, `,"reason":`...), a.Reason)
	b = append(b, `,"retry_after_seconds":`...)
	if a.RetryAt.IsZero() {
		b = append(b, "null"...)
	} else {
		b = appendSeconds(b, a.RetryAfter)
	}
	b = appendInstant(append(b, `,"retry_at":`...), a.RetryAt)
	b = appendInstant(append(b, `,"at":`...), a.At)
	b = appendTextOrNull(append(b, `,"source":`...), a.Source)
	b = AppendText(append(b, `,"observed":`...), a.Observed)
	if a.Why != "" {
		b = AppendText(append(b, `,"why":`...), a.Why)
	}
	if a.Warning != "" {
		b = AppendText(append(b, `,"warning":`...), a.Warning)
	}
	if a.Floor > 0 {
		b = strconv.AppendInt(append(b, `,"floor":`...), a.Floor, 10)
	}
	for i, k := range a.Kept {
		if i == 0 {
			b = append(b, `,"kept":[`...)
		} else {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(AppendText(append(b, `{"share":`...), k.Share), `,"units":`...), k.Units, 10)
		b = append(b, '}')
	}
	if len(a.Kept) > 0 {
		b = append(b, ']')
	}
	if a.DryRun {
		b = append(b, `,"dry_run":true`...)
	}
	if a.Remembered {
		b = append(b, `,"remembered":true`...)
	}
	if !a.LeaseUntil.IsZero() {
		b = appendSeconds(append(b, `,"lease_seconds":`...), a.Lease)
		b = appendInstant(append(b, `,"lease_until":`...), a.LeaseUntil)
	}
	return b
}

// price is what a call costs; nil when its operation has no price.
func price(spec *budget.Spec, call budget.Call) *int64 {
	cost, known := spec.Costs[call.Operation]
	switch {
	case call.Units != nil:
		return call.Units
	case known:
		return &cost.Units
	case spec.Unknown.Allowed:
		units := spec.Unknown.Units
		return &units
	}
	return nil
}

// charged is false for a call that was certainly not charged, nil when that is
// unknown.
func charged(asked Asked, err error) *bool {
	var refused *budget.RefusedError
	no := false
	switch {
	case asked.DryRun, errors.Is(err, budget.ErrConflict): // the id belongs to another call
		return &no
	case errors.As(err, &refused):
		if refused.NotCharged {
			return &no
		}
	case asked.Call.NewID && (errors.Is(err, budget.ErrInvalid) || errors.Is(err, budget.ErrTooManyUnits)):
		return &no
	}
	return nil
}

// Reason is the one word that says why a call was not charged.
func Reason(err error) string {
	for _, known := range []struct {
		err  error
		word string
	}{
		{budget.ErrLocked, "locked"},
		{budget.ErrRecovering, "recovering"},
		{budget.ErrExhausted, "exhausted"},
		{budget.ErrFenced, "fenced"},
		{budget.ErrNeverFits, "never_fits"},
		{budget.ErrUnknownOperation, "unknown_operation"},
		{budget.ErrUnknownBudget, "unknown_budget"},
		{budget.ErrTooManyUnits, "too_many_units"},
		{budget.ErrConflict, "conflict"},
		{budget.ErrExpired, "expired"},
		{budget.ErrInvalid, "invalid"},
		{budget.ErrClock, "clock"},
		{budget.ErrDamaged, "damaged"},
		{budget.ErrLost, "lost"},
		{budget.ErrStoreConfig, "store_config"},
		{context.Canceled, "interrupted"},
		{budget.ErrUnavailable, "unavailable"},
	} {
		if errors.Is(err, known.err) {
			return known.word
		}
	}
	return "failed"
}
