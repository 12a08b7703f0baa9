package view

import (
	"fmt"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/internal/screen"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
)

// Ahead says what comes of a budget that was rated: at the present rate, by the limit that is
// empty first, else by the tightest one. It is empty if nothing is spent.
// [ByPlan] is the line below. Rolling windows shorter than least are left out.
func Ahead(on screen.Screen, b budget.Status, least time.Duration) string {
	first := firstEmpty(b, least)
	if first == nil {
		return ""
	}
	return on.Wrap("  ", rateText(on, *first))
}

// firstEmpty is the limit that is empty first at its rate, else the tightest one,
// else the first that has a rate above 0; nil if none has. Rolling windows shorter than least are
// left out: units an hour say little of them.
func firstEmpty(b budget.Status, least time.Duration) (first *budget.LimitStatus) {
	spent := func(l *budget.LimitStatus) bool {
		return l != nil && l.Rate != nil && l.Rate.PerHour > 0 && !l.Observe && (l.Window.Kind != limit.Rolling || l.Window.Length >= least.Microseconds())
	}
	for i := range b.Limits {
		l := &b.Limits[i]
		if spent(l) && !l.Rate.EmptyAt.IsZero() && (first == nil || l.Rate.EmptyAt.Before(first.Rate.EmptyAt)) {
			first = l
		}
	}
	if first != nil {
		return first
	}
	if tightest := b.Tightest(); tightest != nil && spent(&tightest.LimitStatus) {
		return &tightest.LimitStatus
	}
	for i := range b.Limits {
		if l := &b.Limits[i]; spent(l) {
			return l
		}
	}
	return nil
}

// rateText is "limit daily: 120 units an hour since …; at this rate empty at …, resets at …".
func rateText(on screen.Screen, l budget.LimitStatus) string {
	r := l.Rate
	what := "units"
	if l.Counts == limit.CountCalls {
		what = "calls"
	}
	text := fmt.Sprintf("limit %s: %s %s an hour since %s; ", l.Name, perHour(r.PerHour), what, on.Brief(r.Since))
	switch {
	case l.Remaining == 0:
		text += "empty now"
	case !r.EmptyAt.IsZero():
		text += "at this rate empty at " + on.Time(r.EmptyAt)
	case !r.ResetsAt.IsZero():
		return text + "at this rate it lasts until it resets at " + on.Time(r.ResetsAt)
	default:
		return text + "at this rate it does not run out"
	}
	if !r.ResetsAt.IsZero() {
		text += ", resets at " + on.Time(r.ResetsAt)
	}
	return text
}

// perHour is a rate for people: whole from 10 on, else to a tenth, or to a thousandth.
func perHour(rate float64) string {
	digits := 0
	switch {
	case rate < 0.1:
		digits = 3
	case rate < 9.95:
		digits = 1
	}
	return strconv.FormatFloat(rate, 'f', digits, 64)
}
