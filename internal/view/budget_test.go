package view

import (
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/headroom"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/screen"
)

// A share's line says what is guaranteed, until when, and what of it there is.
func TestShareText(t *testing.T) {
	at := time.Date(2026, 11, 25, 5, 0, 0, 0, time.UTC)
	share := func(guarantee, inForce, used, kept, borrowed int64, lapses bool) budget.ShareStatus {
		s := budget.ShareStatus{Share: limit.Share{Name: "nightly", Guarantee: guarantee}, InForce: inForce, Used: used, Kept: kept, Borrowed: borrowed}
		if lapses {
			s.Lapse, s.LapsesAt = 1, at
		}
		return s
	}
	for _, c := range []struct {
		share budget.ShareStatus
		left  int64
		want  string
	}{
		{share(60, 60, 10, 50, 0, false), 90, "share nightly is guaranteed 60: 10 used, 50 kept, 0 borrowed"},
		{share(60, 60, 10, 50, 0, true), 90, "share nightly is guaranteed 60: 10 used, 50 kept, 0 borrowed; lapses at 2026-11-25 05:00:00Z"},
		{share(60, 0, 10, 0, 10, true), 90, "share nightly was guaranteed 60 until 2026-11-25 05:00:00Z, when that lapsed: 10 used, 0 kept"},
		{share(60, 60, 0, 60, 0, false), 20, "share nightly is guaranteed 60: 0 used, 60 kept, 0 borrowed; only 20 are left of what is kept"},
		{share(60, 30, 0, 30, 0, false), 50, "share nightly is guaranteed 30: 0 used, 30 kept, 0 borrowed; the limit is too low for its 60"},
	} {
		check.Equal(t, shareText(screen.Pipe(), c.share, c.left), c.want, "text")
	}
}

// A limit that only observes refuses nothing, also above its limit.
func TestNotesOfObservingLimits(t *testing.T) {
	over := budget.LimitStatus{Limit: limit.Limit{Name: "day", Limit: 100, Window: limit.RollingWindow(time.Hour)}, Over: 6}
	check.EqualSlices(t, Notes(screen.Pipe(), over, time.Time{}), []string{"over its limit by 6; calls are refused until that is gone"}, "enforced")
	over.Observe = true
	check.EqualSlices(t, Notes(screen.Pipe(), over, time.Time{}), []string{"over its limit by 6", "only observes: it refuses nothing"}, "observed")
}

// Of the limits of one operation each with nothing used, only locks are shown.
func TestNotesOfHiddenLimits(t *testing.T) {
	one := func(operation string, used int64) budget.LimitStatus {
		return budget.LimitStatus{
			Limit:  limit.Limit{Name: "each:" + operation, Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
			Used:   used,
			Shares: []budget.ShareStatus{{Share: limit.Share{Name: "nightly", Guarantee: 60}, InForce: 60, Kept: 60}},
		}
	}
	text := Budget(screen.Pipe(), budget.Status{
		Budget: "up/key1", Limits: []budget.LimitStatus{one("get", 1), one("list", 0), one("put", 0)},
		Locks: []budget.Lock{{Limit: "each:put", Why: "refused"}},
	}, nil)
	for part, there := range map[string]bool{"each:get: share nightly": true, "each:list": false, "each:put: locked": true, "each:put: share": false, "2 limits of one operation": true} {
		if strings.Contains(text, part) != there {
			t.Errorf("%q is there: %v, want %v:\n%s", part, !there, there, text)
		}
	}
}

// Within the guard after a reset, what is shown is about the period before, and says so.
func TestNotesWithinGuard(t *testing.T) {
	day := limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t))
	day.Guard = (5 * time.Minute).Microseconds()
	l := budget.LimitStatus{Limit: limit.Limit{Name: "day", Limit: 100, Counts: limit.CountUnits, Window: day}}
	reset := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]string{
		-time.Microsecond:               "",
		0:                               "was reset at 2026-11-25 00:00:00Z, but until 2026-11-25 00:05:00Z, because of its guard, the period before still counts, and these numbers are that period's",
		5*time.Minute - time.Nanosecond: "was reset at 2026-11-25 00:00:00Z, but until 2026-11-25 00:05:00Z, because of its guard, the period before still counts, and these numbers are that period's",
		5 * time.Minute:                 "",
	} {
		check.Equal(t, strings.Join(Notes(screen.Pipe(), l, reset.Add(after)), "; "), want, "notes", after)
		why := strings.Join(strings.Fields(whyLimitText(screen.Pipe(), budget.WhyLimit{LimitStatus: l}, budget.Why{At: reset.Add(after)})), " ")
		check.Equal(t, strings.Contains(why, "the period before still counts"), want != "", "why says", why)
	}
}

// An automatic headroom says what it is made of, in status and in why.
func TestNotesOfAutomaticHeadroom(t *testing.T) {
	l := budget.LimitStatus{
		Limit: limit.Limit{Name: "day", Quota: 1000, Auto: 50, Headroom: 41, Limit: 959, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
		Parts: &headroom.Parts{Known: true, Periods: 3, Drift: 30, InFlight: 11, Least: 2, Most: 50},
	}
	check.EqualSlices(t, Notes(screen.Pipe(), l, time.Time{}), []string{"headroom 41: 30 drift, 11 in flight"}, "status")
	check.Contains(t, whyLimitText(screen.Pipe(), budget.WhyLimit{LimitStatus: l}, budget.Why{}), "\n  headroom 41: 30 drift, 11 in flight\n", "why")
}
