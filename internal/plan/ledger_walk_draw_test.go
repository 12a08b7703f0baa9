package plan

import (
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// limit draws a limit of any kind; the first covers every operation.
func (w *walker) limit(place int) limit.Limit {
	l := limit.Limit{Name: fmt.Sprint("l", place), Counts: limit.CountUnits, Limit: 10 + w.Int64N(60), Window: w.window()}
	if place > 0 {
		l.Operations = [][]string{nil, nil, {"search.list"}, {"videos.*"}, {"!videos.list"}, {"videos.*", "!videos.rate"}}[w.IntN(6)]
		l.PerOperation = w.IntN(8) == 0
		if w.IntN(3) == 0 {
			l.Counts, l.Limit = limit.CountCalls, 1+w.Int64N(12)
		}
	}
	if l.Window.Kind == limit.Concurrent {
		l.Counts, l.Limit = limit.CountCalls, 1+w.Int64N(4)
	}
	l.Observe = w.IntN(12) == 0
	if l.CanDivide() && !l.PerOperation && w.IntN(2) == 0 {
		l.Shares = w.shares(l)
	}
	return l
}

func (w *walker) shares(l limit.Limit) (list []limit.Share) {
	for _, s := range []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}}, {Name: "feeds", Jobs: []string{"feeds.*"}}} {
		if w.IntN(4) == 0 {
			continue
		}
		s.Guarantee = w.Int64N(1 + l.Limit*2/3)
		if l.Window.Kind == limit.CalendarKind && w.IntN(2) == 0 {
			s.Lapse = 1 + w.Int64N([]int64{1e6, 9 * 60e6}[w.IntN(2)])
			if length := l.Window.Calendar.Length(); length == limit.Day || length == limit.Month {
				s.Lapse *= 90
			}
			w.spans = append(w.spans, s.Lapse)
		}
		list = append(list, s)
	}
	return list
}

func (w *walker) window() limit.Window {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	switch n := w.IntN(20); {
	case n < 3:
		rate := []struct {
			amount int64
			period time.Duration
		}{{50, time.Second}, {7, 3 * time.Second}, {1000, time.Hour}, {11, 24 * time.Hour}}[w.IntN(4)]
		w.spans = append(w.spans, rate.period.Microseconds()/rate.amount+1, 10*rate.period.Microseconds())
		return limit.BucketWindow(must.Get(limit.NewRefill(rate.amount, rate.period))(w.t))
	case n < 5:
		return limit.ConcurrentWindow()
	case n < 8:
		shape := [][2]int64{{60e6, 10e6}, {61 * 60e6, 7 * 60e6}, {24 * 3600e6, 5 * 3600e6}}[w.IntN(3)]
		w.spans = append(w.spans, shape[:]...)
		return limit.CoarseWindow(us(shape[0]), us(shape[1]))
	case n < 13:
		length := []int64{5000, 60e6, 61 * 60e6, 24 * 3600e6}[w.IntN(4)]
		w.spans = append(w.spans, length)
		return limit.RollingWindow(us(length))
	}
	zone := []string{"UTC", "America/Los_Angeles", "Australia/Lord_Howe", "Asia/Kolkata", "Europe/Berlin"}[w.IntN(5)]
	length := []string{limit.Quarter, limit.Hour, limit.Day, limit.Day, limit.Month}[w.IntN(5)]
	starts := time.Duration(0)
	if length == limit.Day || length == limit.Month {
		starts = time.Duration(w.IntN(24)) * time.Hour
	}
	window := limit.CalendarWindow(must.Get(limit.NewCalendar(length, zone, starts))(w.t))
	window.Guard = []int64{0, 0, 1, 1e6, 5 * 60e6}[w.IntN(5)]
	return window
}
