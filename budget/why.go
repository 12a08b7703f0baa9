package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// Why is what a call would get now, and the numbers behind that.
type Why struct {
	Call   Call
	Budget string
	// At is the instant of the numbers, on the store's clock.
	At    time.Time
	Units int64
	// Refused is nil if the call would be charged, and then Receipt is what it would get.
	Refused *RefusedError
	Receipt Receipt
	// Recovering is as in [Status].
	Recovering time.Time
	// OtherShares is as in [Status].
	OtherShares []OtherShares
	// Locks are those that close the budget or one of Limits.
	Locks []Lock
	// Limits are those that cover the operation.
	Limits []WhyLimit
	// Meanwhile: the ledger changed faster than it could be read, so that what Charge would
	// answer, what is used and who used it may be of different instants.
	Meanwhile bool
}

// WhyListed is the most lines that a list of a WhyLimit has.
const WhyListed = 100

// Rest sums up what a list leaves out after its first WhyListed lines; zero: nothing.
type Rest struct {
	// Count is how many lines, or of what comes back charges, are left out.
	Count  int64
	Amount int64     // in what the limit counts
	Last   time.Time // the latest instant, if the list has instants
}

// add adds count lines of an amount.
func (r *Rest) add(count, amount, at int64) {
	r.Count, r.Amount = r.Count+count, r.Amount+amount
	if last := time.UnixMicro(at).UTC(); at > 0 && last.After(r.Last) {
		r.Last = last
	}
}

// WhyLimit is what one limit has for a call, in what the limit counts.
type WhyLimit struct {
	LimitStatus
	// Needs is how much the call would count: 0 in a limit of open reservations, because
	// the call is none.
	Needs int64
	// Floor is how much must remain after the call; FloorJob is the job that says so,
	// empty if the call did.
	Floor    int64
	FloorJob string
	// Share is the name of the call's own share, empty without one.
	Share string
	// Kept is what is guaranteed to other shares and not used.
	Kept []Kept
	// Available is how much the call's job may take now: the limit less what is used, held and
	// kept, or less what is used, held and the floor. It is at least 0.
	Available int64
	// Short is how much too little there is for the call, 0 if it fits.
	Short int64
	// KeptAfterReset is what keeps a call out that counts in the next period too: what is
	// guaranteed to other shares there. It is empty if the call fits there or does not
	// count there.
	KeptAfterReset []Kept
	// By says who used it, the greatest first. With ByRest it sums up to Used, but is empty
	// for a bucket, whose level says nothing of who filled it.
	By     []UsedBy
	ByRest Rest
	// Open are the reservations that hold a part of the limit, neither settled nor released;
	// those that end first before others.
	Open     []OpenReservation
	OpenRest Rest
	// Returns are the instants at which Used falls if nothing else happens, in their
	// order. With ReturnsRest they sum up to Used, but are empty for a bucket.
	Returns     []Return
	ReturnsRest Rest
}

// UsedBy is what one job, or what is no job, used of a limit.
type UsedBy struct {
	// Kind is "job", "unlabelled", "drift", "recovered", or "meanwhile" for what was
	// charged or came back while the ledger was read.
	Kind  string
	Job   string // with the kind job
	Share string // the job's share, if it has one
	// Used is above 0, except for the kind meanwhile.
	Used int64
}

// OpenReservation is a reservation that holds a part of a limit.
type OpenReservation struct {
	ID        string
	Operation string
	Labels    Labels
	Held      int64
	Until     time.Time // the end of its lease
}

// Return is how much of a limit comes back at an instant.
type Return struct {
	At     time.Time
	Amount int64
}

// whyTries is how often Why looks again for a decision and numbers of one state of the
// ledger, and whyReads how often it reads the ledger for that.
const whyTries, whyReads = 10, 3

// Why says what Charge would answer now to a call, and why. It spends nothing. Because it
// says who used what, it reads all charges that the limits of the operation count: its cost
// grows with these, and only the context bounds its time. Errors are those of Charge before
// it asks a limit, and of the store.
func (b *Budget) Why(ctx context.Context, call Call) (Why, error) {
	call = b.inRun(ctx, call)
	why := Why{Call: call, Budget: b.spec.Name}
	var err error
	if why.Units, err = b.check(call); err != nil {
		return why, err
	}
	for try, reads := 1, 0; ; try++ {
		view, agree, err := b.explain(ctx, &why)
		if err != nil {
			return why, err
		}
		if !agree && try < whyTries {
			continue
		}
		reads++
		addsUp, unchanged, err := b.readWhy(ctx, &why, view)
		switch last := reads == whyReads || try >= whyTries; {
		case err != nil:
			return why, err
		case agree && addsUp && (unchanged || last):
			return why, nil
		case last:
			why.Meanwhile = true
			return why, nil
		}
	}
}

// explain fills in what the store answers to the call, and what the limits have used. It
// reports whether both are of one state of the ledger.
func (b *Budget) explain(ctx context.Context, why *Why) (view driver.View, agree bool, err error) {
	receipt, decisions, limits, err := b.dryRun(ctx, why.Call, 0)
	receipt, err = b.observing(receipt, err)
	why.Receipt, why.Refused = receipt, nil
	if err != nil && (!errors.As(err, &why.Refused) || why.Refused.Cause != nil) {
		return view, false, err
	}
	status, view, err := b.look(ctx)
	if err != nil {
		return view, false, err
	}
	why.At, why.Recovering, why.OtherShares, why.Locks, why.Limits = status.At, status.Recovering, status.OtherShares, nil, nil
	covering := map[string]bool{"": true}
	for _, l := range b.Limits(why.Call.Operation) {
		covering[l.Name] = true
	}
	for _, l := range status.Limits {
		if covering[l.Name] {
			why.Limits = append(why.Limits, b.whyLimit(l, why))
		}
	}
	for _, lock := range status.Locks {
		if covering[lock.Limit] {
			why.Locks = append(why.Locks, lock)
		}
	}
	return view, sameState(decisions.Mark, view.Mark) && b.agree(*why, decisions, limits), nil
}

// sameState reports whether nothing was charged, ended or locked between two marks.
func sameState(a, b driver.Mark) bool {
	a.Seen, b.Seen, a.Kept, b.Kept = 0, 0, 0, 0
	return a == b
}

// agree reports whether what the limits of an answer have used and guarantee is what they had
// used and guaranteed when the call was decided. A bucket drains all the time: of that only the answer to the call counts.
func (b *Budget) agree(why Why, decisions driver.Decisions, limits []limit.Limit) bool {
	if len(decisions.Used) != len(limits) {
		return false
	}
	for _, l := range why.Limits {
		at := slices.IndexFunc(limits, func(decided limit.Limit) bool { return decided.Name == l.Name })
		refused := why.Refused != nil && why.Refused.Limit == l.Name
		switch {
		case at < 0:
		case l.Limit.Limit != limits[at].Limit: // an automatic headroom has changed
			return false
		case l.Window.Kind != limit.Bucket:
			if l.Used != decisions.Used[at] || !slices.Equal(l.InForce(why.At.UnixMicro()), l.InForce(decisions.Now)) {
				return false
			}
		case l.Observe || b.spec.Observe:
		case why.Refused == nil && l.Short > 0, refused && errors.Is(why.Refused, ErrExhausted) && l.Short == 0:
			return false
		}
	}
	return true
}

// readWhy fills in who used what and when it comes back, as of a look. It reports whether
// that adds up to what the look says is used, and whether the ledger is still as the look saw
// it.
func (b *Budget) readWhy(ctx context.Context, why *Why, view driver.View) (addsUp, unchanged bool, err error) {
	r := newReader(why, view)
	if len(r.counting.Limits) == 0 {
		return true, true, nil
	}
	export := driver.Export{Budget: b.spec.Name, Now: b.now().UnixMicro(), Counting: r.counting}
	if err := b.store.Export(ctx, export, r); err != nil {
		return false, false, fmt.Errorf("read the ledger of %s: %w", b.spec.Name, outOfReach(ctx, err))
	}
	_, after, err := b.look(ctx)
	return r.finish() && r.heads == 1, sameState(view.Mark, after.Mark), err
}

// whyLimit is what a limit has for the call.
func (b *Budget) whyLimit(l LimitStatus, why *Why) WhyLimit {
	w := WhyLimit{LimitStatus: l}
	if l.Window.Kind == limit.Concurrent {
		return w
	}
	w.Needs = l.Amount(why.Units)
	if l.Counts != limit.CountCalls {
		w.Floor, w.FloorJob = b.spec.floor(why.Call)
	}
	own, kept := l.ShareOf(why.Call.Labels.Job), int64(0)
	for i, share := range l.Shares {
		switch {
		case i == own:
			w.Share = share.Name
		case share.Kept > 0:
			w.Kept = append(w.Kept, Kept{share.Name, share.Kept})
			kept += share.Kept
		}
	}
	left := min(l.Bound(w.Floor, why.Call.UseHeadroom), l.Bound(0, why.Call.UseHeadroom)-kept) - l.Used - l.held()
	w.Available, w.Short = max(0, left), max(0, w.Needs-left)
	if r := why.Refused; r != nil && r.Limit == l.Name && errors.Is(r, ErrExhausted) && w.Short == 0 && l.ChecksNext() {
		w.KeptAfterReset = r.Kept // it fits the present period, so it is the next that refuses it
	}
	return w
}
