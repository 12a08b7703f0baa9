package budget

import (
	"context"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// UpstreamReport is what an upstream says about one of its limits, in what the limit
// counts: what remains, or what is used.
type UpstreamReport struct {
	// Limit is the name of the limit, which has a quota.
	Limit string
	// Operation is the request's, for a limit with per = "operation".
	Operation string
	// Remaining is compared with the limit's quota; Used is taken unchanged. Both are 0
	// or more.
	Remaining *int64
	Used      *int64
	// Reset is when the used amount returns; zero: with the limit's window.
	Reset Until
	// Receipt is the receipt of the request's reservation or charge; the upstream did
	// not count the request earlier. Zero: it counted just now.
	Receipt Receipt
	// Released: that reservation was released, and the upstream does not count the
	// request either.
	Released bool
}

// Drift is spending in a limit that an upstream reported and no charge explains.
type Drift struct {
	Limit string
	// Added is what was recorded now; 0 if the ledger explains the report, or the
	// report is too old.
	Added int64
	// Total is all drift that counts in the limit now; of a bucket, Added.
	Total int64
	// Until is when the drift returns; zero if Total is 0, and for a bucket, which
	// drains.
	Until time.Time
}

// Report records what an upstream says about a limit. Use above the ledger's own count,
// open reservations included, is recorded as drift in that limit alone, until the
// reported reset. So remaining falls to what was reported and never rises. Reports of a
// past period, or past their reset, do nothing. The error is ErrInvalid for an unknown
// limit, one without a quota, or an amount below 0.
func (b *Budget) Report(ctx context.Context, r UpstreamReport) (Drift, error) {
	fail := func(err error) (Drift, error) {
		return Drift{}, fmt.Errorf("report on %s: %w", b.lockName(r.Limit), err)
	}
	l, err := b.reported(r)
	if err != nil {
		return fail(err)
	}
	limits := b.limits([]string{r.Operation})
	report := driver.Report{Budget: b.spec.Name, Limits: limits, Limit: l.Name, At: r.Receipt.At.UnixMicro()}
	if r.Receipt.At.IsZero() {
		report.At = 0
	}
	switch {
	case (r.Remaining == nil) == (r.Used == nil):
		return fail(fmt.Errorf("%w: give either what remains or what is used", ErrInvalid))
	case r.Used != nil && *r.Used < 0 || r.Remaining != nil && *r.Remaining < 0:
		return fail(fmt.Errorf("%w: what is used or remains is below 0, which cannot be a count: leave out the report", ErrInvalid))
	case r.Reset.At.IsZero() && r.Reset.After < 0: // it has passed
		return Drift{Limit: l.Name}, nil
	case r.Used != nil:
		report.Used = *r.Used
	default:
		report.Used = l.Quota - *r.Remaining
	}
	report.Used = min(max(report.Used, 0), mostReported(l))
	report.Seen = r.Receipt.seen.of(l.Name)
	if r.Released { // the store's count still included the request
		report.Seen = max(0, report.Seen-l.Amount(r.Receipt.Units))
	}
	report.Now = b.now().UnixMicro()
	report.Reset, report.After = r.Reset.micros()
	switch {
	case !r.Reset.At.IsZero():
		report.Reset = resetOf(l.Window, report.Reset, report.Now)
	case report.After > 0 && l.Window.Kind == limit.CalendarKind:
		if reset := resetOf(l.Window, report.Now+report.After, report.Now); reset != report.Now+report.After {
			report.Reset, report.After = reset, 0
		}
	}
	done, err := apply(ctx, b, report)
	if err != nil {
		return fail(err)
	}
	b.auto.reported(ctx, l, report, done)
	drift := Drift{Limit: l.Name, Added: done.Added, Total: done.Total}
	if done.Until > 0 {
		drift.Until = time.UnixMicro(done.Until).UTC()
	}
	return drift, nil
}

// mostReported caps what an upstream may report as used: twice the quota for a bucket,
// 1000 times otherwise, and at most MaxUnits. A bucket filled without bound would not
// drain in a lifetime. A sum above MaxUnits would refuse calls that other limits of the
// same window cover.
func mostReported(l limit.Limit) int64 {
	times := int64(1000)
	if l.Window.Kind == limit.Bucket {
		times = 2
	}
	return min(l.Quota, limit.MaxUnits/times) * times
}

// resetOf corrects a reported reset, in µs, by the limit's calendar: if it is less than
// ClockTolerance after a reset of the calendar, it is that reset, from a clock that is
// off. Otherwise the drift would count in the whole next period.
func resetOf(w limit.Window, reset, now int64) int64 {
	if w.Kind != limit.CalendarKind || reset < now-driver.MaxLock || reset > now+driver.MaxLock { // no calendar's reset is that far away
		return reset
	}
	if start, _ := w.Calendar.Period(reset); reset-start < driver.ClockTolerance {
		return start
	}
	return reset
}

// reported returns the limit that a report is about, or why it cannot be reported on.
func (b *Budget) reported(r UpstreamReport) (limit.Limit, error) {
	for _, l := range b.spec.Limits {
		if l.Name != r.Limit {
			continue
		}
		switch {
		case l.Quota == 0:
			return l, fmt.Errorf("%w: it has no quota to compare the report with", ErrInvalid)
		case l.Window.Kind == limit.Concurrent:
			return l, fmt.Errorf("%w: it counts open reservations, which an upstream does not report", ErrInvalid)
		case l.PerOperation && (!driver.ValidName(r.Operation) || !l.Covers(r.Operation)):
			return l, fmt.Errorf("%w: it counts each operation on its own, and %q is not one of its operations", ErrInvalid, r.Operation)
		}
		return l.For(r.Operation), nil
	}
	return limit.Limit{}, b.checkLimitName(r.Limit)
}
