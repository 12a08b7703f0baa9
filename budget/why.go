package budget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	// Available is how much the call's job may take now: the limit less what is used and
	// kept, or less what is used and the floor. It is at least 0.
	Available int64
	// Short is how much too little there is for the call, 0 if it fits.
	Short int64
	// KeptAfterReset is what keeps a call out that counts in the next period too: what is
	// guaranteed to other shares there. It is empty if the call fits there or does not
	// count there.
	KeptAfterReset []Kept
	// By says who used it, the greatest first. It sums up to Used, but is empty for a
	// bucket, whose level says nothing of who filled it.
	By []UsedBy
	// Open are the reservations that are neither settled nor released, those that end
	// first before others.
	Open []OpenReservation
	// Returns are the instants at which Used falls if nothing else happens, in their
	// order. They sum up to Used, but are empty for a bucket.
	Returns []Return
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

// Why says what Charge would answer now to a call, and why. It spends nothing. Because it
// says who used what, it reads the whole ledger: its cost grows with the charges that the
// ledger holds, and only the context bounds its time. Errors are those of Charge before it
// asks a limit, and of the store.
func (b *Budget) Why(ctx context.Context, call Call) (Why, error) {
	why := Why{Call: call, Budget: b.spec.Name}
	var err error
	if why.Units, err = b.check(call); err != nil {
		return why, err
	}
	// What is charged between the two looks at the ledger makes them differ; charges that
	// come faster than it can be read are shown as such. A store may give a row twice, which
	// only costs memory to find out.
	for try := range 3 {
		if err := b.explain(ctx, &why, try > 0); err != nil {
			return why, err
		}
		if !slices.ContainsFunc(why.Limits, func(l WhyLimit) bool {
			return slices.ContainsFunc(l.By, func(u UsedBy) bool { return u.Kind == "meanwhile" })
		}) {
			break
		}
	}
	return why, nil
}

// explain fills in all that the store says.
func (b *Budget) explain(ctx context.Context, why *Why, once bool) error {
	receipt, err := b.Would(ctx, why.Call, 0)
	why.Receipt, why.Refused = receipt, nil
	if err != nil && (!errors.As(err, &why.Refused) || why.Refused.Cause != nil) {
		return err
	}
	status, err := b.Status(ctx)
	if err != nil {
		return err
	}
	why.At, why.Recovering, why.OtherShares, why.Locks, why.Limits = status.At, status.Recovering, status.OtherShares, nil, nil
	covering := map[string]bool{"": true}
	for _, l := range b.covering(why.Call.Operation) {
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
	r := newReader(why, once)
	if err := b.store.Export(ctx, driver.Export{Budget: b.spec.Name, Now: b.now().UnixMicro()}, r); err != nil {
		return fmt.Errorf("read the ledger of %s: %w", b.spec.Name, outOfReach(ctx, err))
	}
	r.finish()
	return nil
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
	left := min(l.Bound(w.Floor, why.Call.UseHeadroom), l.Bound(0, why.Call.UseHeadroom)-kept) - l.Used
	w.Available, w.Short = max(0, left), max(0, w.Needs-left)
	after, at := l.Window.AfterReset(), why.At.UnixMicro()
	if r := why.Refused; r != nil && r.Limit == l.Name && errors.Is(r, ErrExhausted) && w.Short == 0 && l.ChecksNext() && at > after.Cut(at) {
		w.KeptAfterReset = r.Kept
	}
	return w
}

// reader is a driver.LedgerWriter that sums the rows of limits.
type reader struct {
	why  *Why
	at   int64           // µs
	seen map[string]bool // nil: rows that come twice are not looked for
	sums []sums
}

// sums are those of one limit.
type sums struct {
	by      map[UsedBy]int64 // by UsedBy without Used
	returns map[int64]int64  // by the instant, µs
	cut     int64            // µs: what finished up to there does not count
}

// newReader reads for the limits of an answer; with once it leaves out rows that a store gives
// again.
func newReader(why *Why, once bool) *reader {
	r := &reader{why: why, at: why.At.UnixMicro(), sums: make([]sums, len(why.Limits))}
	if once {
		r.seen = map[string]bool{}
	}
	for i, l := range why.Limits {
		r.sums[i] = sums{by: map[UsedBy]int64{}, returns: map[int64]int64{}}
		if l.Window.Kind != limit.Bucket {
			r.sums[i].cut = l.Window.Cut(r.at)
		}
		if !l.Since.IsZero() {
			r.sums[i].cut = max(r.sums[i].cut, l.Since.UnixMicro()-1)
		}
	}
	return r
}

// Head implements driver.LedgerWriter.
func (r *reader) Head(driver.LedgerHead) error { return nil }

// Row implements driver.LedgerWriter.
func (r *reader) Row(row driver.Row) error {
	if row.State == driver.RowHistory || row.State == driver.RowReleased || row.State != driver.RowMerged && row.Start > r.at {
		return nil
	}
	if r.seen != nil {
		if r.seen[row.ID] {
			return nil
		}
		r.seen[row.ID] = true
	}
	for i := range r.why.Limits {
		r.add(&r.why.Limits[i], r.sums[i], row)
	}
	return nil
}

// add adds a row to a limit that counts it.
func (r *reader) add(l *WhyLimit, s sums, row driver.Row) {
	kind := l.Window.Kind
	if kind == limit.Bucket || row.Score <= s.cut || !l.Covers(row.Operation) || kind == limit.Concurrent && row.State != driver.RowOpen {
		return
	}
	amount := row.Units
	if l.Counts == limit.CountCalls {
		amount = row.Calls
	}
	s.by[whose(l, row)] += amount
	s.returns[l.Window.Returns(row.Score)] += amount
	if row.State == driver.RowOpen && row.Score > r.at {
		l.Open = append(l.Open, OpenReservation{row.ID, row.Operation, row.Labels, amount, time.UnixMicro(row.Score).UTC()})
	}
}

// whose is who used what a row counts.
func whose(l *WhyLimit, row driver.Row) UsedBy {
	switch {
	case row.Operation == limit.DriftOperation(l.Name):
		return UsedBy{Kind: "drift"}
	case row.Pseudo():
		return UsedBy{Kind: "recovered"}
	case row.Labels.Job == "":
		return UsedBy{Kind: "unlabelled"}
	}
	by := UsedBy{Kind: "job", Job: row.Labels.Job}
	if i := l.ShareOf(by.Job); i >= 0 {
		by.Share = l.Shares[i].Name
	}
	return by
}

// finish puts the sums in order.
func (r *reader) finish() {
	for i := range r.why.Limits {
		l, s := &r.why.Limits[i], r.sums[i]
		if l.Window.Kind == limit.Bucket {
			continue
		}
		rest := l.Used
		for by, used := range s.by {
			if by.Used = used; used != 0 {
				l.By = append(l.By, by)
			}
			rest -= used
		}
		if rest != 0 {
			l.By = append(l.By, UsedBy{Kind: "meanwhile", Used: rest})
		}
		slices.SortFunc(l.By, func(a, b UsedBy) int {
			return cmp.Or(cmp.Compare(b.Used, a.Used), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Job, b.Job))
		})
		for at, amount := range s.returns {
			if amount != 0 {
				l.Returns = append(l.Returns, Return{time.UnixMicro(at).UTC(), amount})
			}
		}
		slices.SortFunc(l.Returns, func(a, b Return) int { return a.At.Compare(b.At) })
		slices.SortFunc(l.Open, func(a, b OpenReservation) int { return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.ID, b.ID)) })
	}
}
