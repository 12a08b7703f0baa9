package driver

import (
	"context"
	"fmt"
)

// Change is a rare change of a ledger: a [Recovery], [Report], [Lock], [Unlock],
// [Reset], [AcceptClock], [HoldChange], [PlanChange], [Import] or [Refusals].
type Change interface {
	// Doing says what it does to which budget, for messages: "lock up/key1".
	Doing() string
}

// Changed is the answer to a change: [Recovered], [Drift], [Locked], [Unlocked],
// [HoldLeft], [Planned], [Imported] or [Done]. With an error it holds nothing, and may be nil.
type Changed interface{ changed() }

// ChangeTo is a change whose answer is an A.
type ChangeTo[A Changed] interface {
	Change
	answer(A)
}

// Apply has a store make a change and returns the answer in its own type: a Locked for
// a Lock. Errors are those of [Store].
func Apply[A Changed](ctx context.Context, store Store, change ChangeTo[A]) (A, error) {
	changed, err := store.Change(ctx, change)
	answer, ok := changed.(A)
	if err == nil && !ok {
		err = fmt.Errorf("%s: the store answers with %T, want %T", change.Doing(), changed, answer)
	}
	return answer, err
}

// Unknown is a store's error for a change that it does not know. It wraps ErrInvalid.
func Unknown(change Change) error {
	return fmt.Errorf("%w: the store knows no change of type %T", ErrInvalid, change)
}

// Reset forgets a budget's ledger on purpose: charges acknowledged before do not count as
// lost.
type Reset struct{ Budget string }

// AcceptClock makes the store's clock the budget's last seen instant, after a person
// found the clock right. What ErrClock held back then expires.
type AcceptClock struct{ Budget string }

// Done is the answer to a Reset, an AcceptClock and Refusals.
type Done struct{}

func (c Recovery) Doing() string    { return "recover " + c.Budget }
func (c Report) Doing() string      { return "report on " + c.Budget }
func (c Lock) Doing() string        { return "lock " + c.Budget }
func (c Unlock) Doing() string      { return "unlock " + c.Budget }
func (c Reset) Doing() string       { return "reset " + c.Budget }
func (c AcceptClock) Doing() string { return "accept the clock for " + c.Budget }

func (Recovery) answer(Recovered) {}
func (Report) answer(Drift)       {}
func (Lock) answer(Locked)        {}
func (Unlock) answer(Unlocked)    {}
func (Reset) answer(Done)         {}
func (AcceptClock) answer(Done)   {}

func (Recovered) changed() {}
func (Drift) changed()     {}
func (Locked) changed()    {}
func (Unlocked) changed()  {}
func (Done) changed()      {}
