package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// limits makes 1 to 4 limits of all kinds; the first covers everything.
func (w *walker) limits() (limits []limit.Limit) {
	defer func() {
		for _, l := range limits {
			w.longest = max(w.longest, l.Longest())
		}
	}()
	for i := range 1 + w.rng.IntN(4) {
		l := limit.Limit{Name: fmt.Sprint("l", i), Counts: limit.CountUnits, Limit: 1 + w.rng.Int64N(60)}
		if w.rng.IntN(3) == 0 {
			l.Quota = l.Limit + w.rng.Int64N(10)
			l.Headroom = l.Quota - l.Limit
			l.OutagePart = w.rng.Int64N(l.Headroom + 1)
		}
		if more := 200 + w.rng.Int64N(2000); w.calm {
			l.Limit += more
			l.Quota += more * min(l.Quota, 1)
		}
		if i > 0 {
			if w.rng.IntN(3) == 0 {
				l.Counts = limit.CountCalls
			}
			l.Operations = [][]string{nil, {"search.list"}, {"videos.*"}, {"!videos.list"}, {"search.list", "captions.list"}, {"videos.*", "!videos.rate"}}[w.rng.IntN(6)]
		}
		l.Window = w.window()
		if l.Window.Kind == limit.Concurrent {
			l.Counts, l.Limit = limit.CountCalls, 1+w.rng.Int64N(4)
			l.Quota, l.Headroom, l.OutagePart = 0, 0, 0
			if w.calm {
				l.Limit *= 10
			}
		}
		l.Observe = w.rng.IntN(8) == 0
		if w.rng.IntN(2) == 0 {
			l.Shares = w.shares(l)
		}
		limits = append(limits, l)
	}
	if last := limits[len(limits)-1]; (len(last.Lapses()) > 0 || last.ByPlan()) && w.rng.IntN(2) == 0 { // a wait for both together
		last.Name, last.Window = "together", w.calendar()
		last.Shares = w.shares(last)
		limits = append(limits, last)
	}
	return limits
}

// walkShares are shares, no two of them with a job in common.
var walkShares = []limit.Share{
	{Name: "nightly", Jobs: []string{"nightly"}}, {Name: "feeds", Jobs: []string{"feeds.*"}}, {Name: "some", Jobs: []string{"job", "backfill.*"}},
}

// shares divide a limit into 1 to 3, some of which lapse. Their sum may be above the limit.
func (w *walker) shares(l limit.Limit) (list []limit.Share) {
	if l.Window.Kind == limit.Bucket || l.Window.Kind == limit.Concurrent {
		return nil
	}
	for _, i := range w.rng.Perm(len(walkShares))[:1+w.rng.IntN(len(walkShares))] {
		s := walkShares[i]
		if s.Name == "feeds" && w.rng.IntN(3) == 0 { // narrower than in another limit, or than before
			s.Jobs = []string{"feeds.us"}
		}
		s.Guarantee = w.rng.Int64N(1 + l.Limit/[]int64{1, 2, 3}[w.rng.IntN(3)])
		if w.rng.IntN(4) == 0 {
			s.Plan = true
		} else if l.Window.Kind == limit.CalendarKind && w.rng.IntN(2) == 0 {
			s.Lapse = 1 + w.rng.Int64N([]int64{second, 14 * minute}[w.rng.IntN(2)])
			if length := l.Window.Calendar.Length(); length == limit.Day || length == limit.Month {
				s.Lapse *= 90
			}
			w.lengths = append(w.lengths, s.Lapse)
			if _, until := l.Window.Span(w.now); w.rng.IntN(3) == 0 { // a step to where it has lapsed
				w.now = until - l.Window.Guard - 1 - w.rng.Int64N(s.Lapse)
			}
		}
		list = append(list, s)
	}
	return list
}

// window is a random window of any kind.
func (w *walker) window() limit.Window {
	switch n := w.rng.IntN(20); {
	case n < 3 && !w.calm:
		return w.bucket()
	case n < 5:
		return limit.ConcurrentWindow()
	case n < 9, w.coarse && n < 17:
		return w.coarseWindow()
	case n < 15 || w.coarse:
		return w.rollingWindow()
	}
	return w.calendar()
}

func (w *walker) rollingWindow() limit.Window {
	lengths := []int64{100, 5000, second, minute, 61 * minute, 24 * hour}
	if w.coarse {
		lengths = lengths[:4]
	}
	length := lengths[w.rng.IntN(len(lengths))]
	w.lengths = append(w.lengths, length)
	return limit.RollingWindow(time.Duration(length) * time.Microsecond)
}

func (w *walker) coarseWindow() limit.Window {
	shape := [][2]int64{
		{5000, 1000}, {second, 7000}, {minute, 10 * second}, {61 * minute, 7 * minute}, {3 * hour, minute}, {3 * hour, 25 * minute}, {24 * hour, hour}, {24 * hour, 5 * hour},
	}[w.rng.IntN(8)]
	w.lengths = append(w.lengths, shape[:]...)
	if w.coarse {
		w.lengths = append(w.lengths, 20*minute) // most entries are in windows longer than ids are kept
	}
	return limit.CoarseWindow(time.Duration(shape[0])*time.Microsecond, time.Duration(shape[1])*time.Microsecond)
}

func (w *walker) bucket() limit.Window {
	rate := []struct {
		amount int64
		period time.Duration
	}{{1, 7 * time.Microsecond}, {3, 10 * time.Millisecond}, {50, time.Second}, {7, 3 * time.Second}, {1000, time.Hour}, {11, 24 * time.Hour}}[w.rng.IntN(6)]
	refill := must.Get(limit.NewRefill(rate.amount, rate.period))(w.t)
	w.lengths = append(w.lengths, rate.period.Microseconds()/rate.amount+1)
	return limit.BucketWindow(refill)
}

func (w *walker) calendar() limit.Window {
	zone := []string{"UTC", "America/Los_Angeles", "Australia/Lord_Howe", "Asia/Kolkata"}[w.rng.IntN(4)]
	length := []string{limit.Quarter, limit.Hour, limit.Day, limit.Month}[w.rng.IntN(4)]
	starts := time.Duration(0)
	if length == limit.Day || length == limit.Month {
		starts = time.Duration(w.rng.IntN(24)) * time.Hour
	}
	c := must.Get(limit.NewCalendar(length, zone, starts))(w.t)
	window := limit.CalendarWindow(c)
	if w.rng.IntN(2) == 0 {
		window.Guard = []int64{1, second, 5 * minute}[w.rng.IntN(3)]
		if w.rng.IntN(2) == 0 { // a step to the next reset, give or take the guard
			_, next := c.Period(w.now)
			w.now = next + w.rng.Int64N(4*window.Guard) - 2*window.Guard
		}
	}
	return window
}

// kindOf distinguishes the kinds that the walk must include.
func kindOf(window limit.Window) string {
	switch {
	case window.Precision > 0:
		return "coarse"
	case window.Guard > 0:
		return "guarded calendar"
	}
	return string(window.Kind)
}

// spent compares who spent what.
func (w *walker) spent() {
	by := []driver.GroupBy{driver.ByOperation, driver.ByJob, driver.ByRegion, driver.ByRun}[w.rng.IntN(4)]
	ask := driver.SpentQuery{Budget: w.budget, Now: w.now, By: by}
	if w.rng.IntN(2) == 0 {
		ask.Span = 1 + w.rng.Int64N(2*hour)
	}
	if w.rng.IntN(4) == 0 {
		ask.Run = fmt.Sprint("run-", w.rng.IntN(7))
	}
	want, wantErr := w.model.Spent(context.Background(), ask)
	got, gotErr := w.store.Spent(context.Background(), ask)
	for _, view := range []*driver.Spent{&want, &got} {
		slices.SortFunc(view.Rows, func(a, b driver.SpentRow) int { return cmp.Compare(a.Name, b.Name) })
	}
	// The model forgets at each decision. usual.lua leaves that to charge.lua, which may use a
	// longer window by then: the store has forgotten less, and the rows show that it has the rest.
	if w.calm && w.now-w.longest <= got.Since && got.Since < want.Since {
		got.Since = want.Since
	}
	w.same("spent", ask, got, gotErr, want, wantErr)
}

// countKept counts the refusals because of what is kept for other shares.
func (w *walker) countKept(l limit.Limit, i driver.Item, d driver.Decision, at int64) {
	sum, later := int64(0), int64(0)
	for _, kept := range d.Kept {
		sum += kept
	}
	for _, g := range l.InForce(at) {
		later += g
	}
	if i.Floor == 0 && d.Remaining >= l.Amount(i.Units) && sum > 0 {
		w.counts["kept"]++
		if sum > later {
			w.counts["kept in the next period"]++
		}
	}
	if len(l.Shares) > 0 && slices.ContainsFunc(w.planned, func(end int64) bool { return end == d.RetryAt }) {
		w.counts["fits as records end"]++
	}
	if len(l.Shares) > 0 && l.Window.Kind == limit.CalendarKind {
		if from, _ := l.Window.Span(d.RetryAt); from != d.RetryAt {
			w.counts["fits by a lapse"]++
		}
	}
}
