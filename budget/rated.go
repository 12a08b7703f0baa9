package budget

import (
	"context"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/rate"
)

// mostRead is how many charges are read one by one at most, for windows shorter than an hour.
// Where there may be more, the history's whole hours are precise enough.
const mostRead = 10_000

// Rated is [Budget.Status] with the rate of each limit, as package rate defines it. Besides
// Status it reads at most two days of the history, hour by hour, whose cost does not grow with
// the number of charges; and for windows shorter than an hour that span of the ledger, if it
// has at most 10,000 charges. It reads what was refused in the last day, too. If these cannot be
// read, they are left out, and a warning is logged.
func (b *Budget) Rated(ctx context.Context) (Status, error) {
	status, err := b.Status(ctx)
	if err != nil {
		return status, err
	}
	if status.Denied, err = b.denied(ctx); err != nil {
		b.log.WarnContext(ctx, "what was refused lately is not known", "budget", b.spec.Name, "error", err)
	}
	rates, err := b.rates(ctx, status)
	if err != nil {
		b.log.WarnContext(ctx, "the rates at which limits are spent are not known", "budget", b.spec.Name, "error", err)
		return status, nil
	}
	for i := range rates {
		status.Limits[i].Rate = rates[i]
	}
	return status, nil
}

// rates are those of a status, limit by limit.
func (b *Budget) rates(ctx context.Context, status Status) ([]*rate.Rate, error) {
	now := status.At.UnixMicro()
	var lookback int64
	for _, l := range status.Limits {
		lookback = max(lookback, rate.Lookback(l.Window, now))
	}
	rates := make([]*rate.Rate, len(status.Limits))
	if lookback == 0 {
		return rates, nil
	}
	past, err := ask(ctx, b, b.store.History, driver.HistoryQuery{
		Budget: b.spec.Name, Now: b.now().UnixMicro(), Since: driver.HourOf(max(0, now-lookback)), Hours: true, Operations: true,
	})
	if err != nil {
		return nil, err
	}
	read := map[int64][]SpentRow{}
	for i, l := range status.Limits {
		use := useOf(l, now, past)
		span := rate.Span(l.Window, now)
		if span < driver.HistoryHour && use.Charges >= rate.FewestCharges && callsSince(past, use.Since) <= mostRead {
			if _, known := read[span]; !known {
				spent, err := b.Spent(ctx, ByOperation, time.Duration(span)*time.Microsecond)
				if err != nil {
					return nil, err
				}
				read[span] = spent.Rows
			}
			use.Since, use.Amount, use.Charges = now-span, 0, 0
			for _, row := range read[span] {
				if !limit.IsPseudo(row.Name) && l.Covers(row.Name) {
					use.Amount += counted(l.Limit, row.Units, row.Calls)
					use.Charges += row.Calls
				}
			}
		}
		rates[i] = rate.Of(use)
	}
	return rates, nil
}

// useOf is what the status and the history know of a limit.
func useOf(l LimitStatus, now int64, past driver.History) rate.Use {
	use := rate.Use{Limit: l.Limit, Now: now, Used: l.Used, Left: l.Remaining, First: past.Since}
	if !l.NextReturn.IsZero() {
		use.NextReturn = l.NextReturn.UnixMicro()
	}
	span := max(rate.Span(l.Window, now), driver.HistoryHour)
	use.Since = max(driver.HourOf(max(0, now-span)), past.Since)
	hours := map[int64]int64{}
	for _, row := range past.Rows {
		if !l.Covers(row.Operation) {
			continue
		}
		amount := counted(l.Limit, row.Units, row.Calls)
		hours[row.Hour] += amount
		if row.Hour >= use.Since && !row.Pseudo() {
			use.Amount += amount
			use.Charges += row.Calls
		}
	}
	if l.Window.Length >= driver.HistoryHour { // shorter ones return sooner than hours tell
		for begin, amount := range hours {
			use.Hours = append(use.Hours, rate.Hour{Begin: begin, Amount: amount})
		}
	}
	return use
}

// callsSince is how many calls of any operation the history has since an hour.
func callsSince(past driver.History, since int64) (calls int64) {
	for _, row := range past.Rows {
		if row.Hour >= since && !row.Pseudo() {
			calls += row.Calls
		}
	}
	return calls
}

// counted is what a limit counts of these.
func counted(l limit.Limit, units, calls int64) int64 {
	if l.Counts == limit.CountCalls {
		return calls
	}
	return units
}
