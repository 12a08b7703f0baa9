package budget

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// reader is a driver.LedgerWriter that sums the entries that limits count. It holds a
// line for each job, and of what is open or comes back at most twice as many lines as it
// lists, whatever the ledger holds.
type reader struct {
	why      *Why
	counting driver.Counting
	newest   int64 // µs: what was charged after it came meanwhile
	heads    int   // how often Head was called
	sums     []sums
}

// sums are those of one limit.
type sums struct {
	by      map[UsedBy]int64   // by UsedBy without Used
	returns map[int64]*charges // by the instant, µs
	last    int64              // µs: what returns later is in the rest
	cut     int64              // µs: what finished up to there does not count
}

// charges are so many that count so much together.
type charges struct{ count, amount int64 }

// newReader reads for the limits of an answer, at the instant of the look that the answer is
// from: the store's own, which may be ahead of the earlier clock.
func newReader(why *Why, view driver.View) *reader {
	at := max(view.Now, view.Mark.Seen)
	r := &reader{why: why, newest: max(at, view.Mark.At), counting: driver.Counting{At: at}, sums: make([]sums, len(why.Limits))}
	for i, l := range why.Limits {
		r.sums[i] = sums{by: map[UsedBy]int64{}, returns: map[int64]*charges{}, last: limit.Never}
		if l.Window.Kind == limit.Bucket {
			continue
		}
		r.counting.Limits = append(r.counting.Limits, l.Limit)
		r.sums[i].cut = l.Window.Cut(at)
		if !l.Since.IsZero() {
			r.sums[i].cut = max(r.sums[i].cut, l.Since.UnixMicro()-1)
		}
	}
	return r
}

// Head implements driver.LedgerWriter.
func (r *reader) Head(driver.LedgerHead) error {
	r.heads++
	return nil
}

// Row implements driver.LedgerWriter.
func (r *reader) Row(row driver.Row) error {
	if row.State == driver.RowReleased || row.State != driver.RowMerged && row.Start > r.newest {
		return nil
	}
	for i := range r.why.Limits {
		r.add(&r.why.Limits[i], &r.sums[i], row)
	}
	return nil
}

// add adds a row to a limit that counts it.
func (r *reader) add(l *WhyLimit, s *sums, row driver.Row) {
	kind, amount := l.Window.Kind, row.Units
	if l.Counts == limit.CountCalls {
		amount = row.Calls
	}
	if kind == limit.Bucket || amount == 0 || row.Score <= s.cut || !l.Covers(row.Operation) || kind == limit.Concurrent && row.State != driver.RowOpen {
		return
	}
	s.by[whose(l, row)] += amount
	s.comesBack(l, l.Window.Returns(row.Score), charges{row.Calls, amount})
	if row.State == driver.RowOpen && row.Score > r.counting.At {
		l.Open = append(l.Open, OpenReservation{row.ID, row.Operation, row.Labels, amount, time.UnixMicro(row.Score).UTC()})
		if len(l.Open) >= 2*WhyListed {
			l.firstOpen()
		}
	}
}

// comesBack adds what returns at an instant.
func (s *sums) comesBack(l *WhyLimit, at int64, c charges) {
	if at > s.last {
		l.ReturnsRest.add(c.count, c.amount, at)
		return
	}
	sum := s.returns[at]
	if sum == nil {
		sum = &charges{}
		s.returns[at] = sum
	}
	sum.count, sum.amount = sum.count+c.count, sum.amount+c.amount
	if len(s.returns) >= 2*WhyListed {
		s.firstReturns(l)
	}
}

// firstReturns leaves the first WhyListed instants, in order, and adds the others to the rest.
func (s *sums) firstReturns(l *WhyLimit) []int64 {
	instants := slices.Sorted(maps.Keys(s.returns))
	if len(instants) <= WhyListed {
		return instants
	}
	for _, at := range instants[WhyListed:] {
		l.ReturnsRest.add(s.returns[at].count, s.returns[at].amount, at)
		delete(s.returns, at)
	}
	s.last = instants[WhyListed-1]
	return instants[:WhyListed]
}

// firstOpen leaves the WhyListed reservations that end first, in order, and adds the others
// to the rest.
func (l *WhyLimit) firstOpen() {
	slices.SortFunc(l.Open, func(a, b OpenReservation) int { return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.ID, b.ID)) })
	if len(l.Open) <= WhyListed {
		return
	}
	for _, o := range l.Open[WhyListed:] {
		l.OpenRest.add(1, o.Held, o.Until.UnixMicro())
	}
	l.Open = l.Open[:WhyListed]
}

// whose says who used what a row counts.
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

// finish puts the sums in order. It reports whether they add up to what is used.
func (r *reader) finish() (addsUp bool) {
	addsUp = true
	for i := range r.why.Limits {
		l, s := &r.why.Limits[i], &r.sums[i]
		if l.Window.Kind == limit.Bucket {
			continue
		}
		rest := l.Used
		for by, used := range s.by {
			by.Used = used
			l.By = append(l.By, by)
			rest -= used
		}
		slices.SortFunc(l.By, func(a, b UsedBy) int {
			return cmp.Or(cmp.Compare(b.Used, a.Used), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Job, b.Job))
		})
		for n := len(l.By); n > WhyListed; n-- {
			l.ByRest.add(1, l.By[n-1].Used, 0)
			l.By = l.By[:n-1]
		}
		if rest != 0 {
			addsUp = false
			l.By = append(l.By, UsedBy{Kind: "meanwhile", Used: rest})
		}
		for _, at := range s.firstReturns(l) {
			l.Returns = append(l.Returns, Return{time.UnixMicro(at).UTC(), s.returns[at].amount})
		}
		l.firstOpen()
	}
	return addsUp
}
