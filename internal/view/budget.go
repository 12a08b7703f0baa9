package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/table"
)

// Budget is a budget's name, its limits, and what is to be said of them; the forecast may be
// nil.
func Budget(on screen.Screen, b budget.Status, ahead *answer.BudgetForecast) string {
	shown := slices.DeleteFunc(slices.Clone(b.Limits), Hidden)
	out := on.Wrap("", b.Budget+": "+Left(on, b)) + Ahead(on, b, 0) + ByPlan(on, ahead)
	for _, text := range wholeLock(on, b) {
		out += on.Wrap("  ", text)
	}
	if !b.Recovering.IsZero() {
		out += on.Wrap("  ", "recovering until "+on.Time(b.Recovering)+": the store has lost data; until all hosts have reported, each may spend only its part of the headroom")
	}
	for _, o := range b.OtherShares {
		out += on.Wrap("  ", Others(on, o))
	}
	if text := Refused(on, b); text != "" {
		out += on.Wrap("  ", text)
	}
	out += limitTable(on, shown).String()
	if left := len(b.Limits) - len(shown); left > 0 {
		out += on.Wrap("  ", fmt.Sprintf("%s of one operation each with nothing used", Plural(left, "limit")))
	}
	for _, l := range b.Limits {
		var list []string
		if !Hidden(l) {
			list = Notes(on, l, b.At)
		}
		if lock, locked := b.LockOf(l.Name); locked {
			list = append([]string{Lock(on, lock)}, list...)
		}
		for _, note := range list {
			out += on.Wrap("  ", l.Name+": "+note)
		}
	}
	return out
}

// Used is a line for each limit of a budget: what is used of it, by whomever.
func Used(on screen.Screen, b budget.Status) string {
	out := ""
	for _, l := range b.Limits {
		out += on.Wrap("", fmt.Sprintf("%s, limit %s: %d of %d %s used", b.Budget, l.Name, l.Used, l.Limit.Limit, l.Counts))
	}
	return out
}

// Hidden reports whether a limit is that of one operation with nothing used, which is only
// counted.
func Hidden(l budget.LimitStatus) bool { return strings.Contains(l.Name, ":") && l.Used == 0 }

// Refused says what was refused of a budget lately; empty: nothing.
func Refused(on screen.Screen, b budget.Status) string {
	d := b.Denied
	if d.Refused == 0 {
		return ""
	}
	text := Plural(int(d.Refused), "call") + " refused in the last 24h"
	switch {
	case d.Job != "" && d.Limit != "":
		text += fmt.Sprintf(", most of %s (%s)", d.Job, d.Limit)
	case d.Job+d.Limit != "":
		text += ", most of " + cmp.Or(d.Job, "limit "+d.Limit)
	}
	if d.Waited > 0 {
		text += fmt.Sprintf("; %s waited", on.Number(d.Waited))
	}
	return text
}

// Others describes a host with other shares.
func Others(on screen.Screen, o budget.OtherShares) string {
	by := "by other shares than these"
	if o.None {
		by = "without shares"
	}
	return fmt.Sprintf("host %s charged at %s %s: what is guaranteed holds only where all hosts have the same shares", o.Host, on.Time(o.Last), by)
}

// Lock describes a lock.
func Lock(on screen.Screen, l budget.Lock) string {
	text := "locked until " + on.Time(l.Until)
	if l.Why != "" {
		text += ": " + l.Why
	}
	return text
}

// Closed describes a lock with what it closes.
func Closed(on screen.Screen, l budget.Lock) string {
	what := "the whole budget"
	if l.Limit != "" {
		what = "limit " + l.Limit
	}
	text := "locked until " + on.Time(l.Until) + ": " + what
	if l.Why != "" {
		text += " (" + l.Why + ")"
	}
	return text
}

// wholeLock is what is to be said of the lock of the whole budget, unless the headline does.
func wholeLock(on screen.Screen, b budget.Status) []string {
	lock, locked := b.LockOf("")
	switch t := b.Tightest(); {
	case !locked, t != nil && t.Lock != nil && *t.Lock == lock:
		return nil
	case b.Observe:
		return []string{Closed(on, lock) + "; but the upstream's mode is observe, so no call is refused"}
	}
	return []string{Closed(on, lock)}
}

// limitTable has a column for debt only if there is any, and one for what is counted only
// if some limit counts calls.
func limitTable(on screen.Screen, limits []budget.LimitStatus) *table.Table {
	indebted, callsToo := false, false
	for _, l := range limits {
		indebted = indebted || l.Over > 0
		callsToo = callsToo || l.Counts == limit.CountCalls
	}
	heads := []string{"LIMIT", "KIND"}
	if callsToo {
		heads = append(heads, "COUNTS")
	}
	heads = append(heads, ">USED", ">LIMIT", ">LEFT")
	if indebted {
		heads = append(heads, ">OVER")
	}
	t := on.Table(append(heads, "NEXT RETURN")...)
	for _, l := range limits {
		row := []string{l.Name, Kind(on, l.Window)}
		if callsToo {
			row = append(row, string(l.Counts))
		}
		row = append(row, on.Number(l.Used), on.Number(l.Limit.Limit), on.Number(l.Remaining))
		if indebted {
			row = append(row, on.Number(l.Over))
		}
		t.Add(append(row, returnText(on, l))...)
	}
	return t
}

// Notes is what the table has no room for.
func Notes(on screen.Screen, l budget.LimitStatus, at time.Time) []string {
	var list []string
	if text := guardText(on, l.Window, at); text != "" {
		list = append(list, text)
	}
	if l.Over > 0 && l.Observe {
		list = append(list, fmt.Sprintf("over its limit by %d", l.Over))
	} else if l.Over > 0 {
		list = append(list, fmt.Sprintf("over its limit by %d; calls are refused until that is gone", l.Over))
	}
	if l.Recovered > 0 {
		list = append(list, fmt.Sprintf("the store lost charges; %s of what is used stand for them", on.Number(l.Recovered)))
	}
	if l.Drift > 0 {
		list = append(list, fmt.Sprintf("the upstream counts %s more than was charged", on.Number(l.Drift)))
	}
	if l.Parts != nil {
		list = append(list, "headroom "+l.Parts.String())
	}
	if l.Observe {
		list = append(list, "only observes: it refuses nothing")
	}
	for _, h := range l.Held {
		list = append(list, heldText(on, h))
	}
	for _, s := range l.Shares {
		list = append(list, shareText(on, s, l.Remaining))
	}
	if !l.Since.IsZero() {
		list = append(list, "knows what was charged since "+on.Time(l.Since))
	}
	return list
}

// heldText is what a pass holds.
func heldText(on screen.Screen, h budget.Held) string {
	who := "the pass of job " + h.Job
	if h.Region != "" {
		who = fmt.Sprintf("the run of job %s, region %s", h.Job, h.Region)
	}
	return fmt.Sprintf("%s are held for %s, whose charges draw from them; what it does not spend is back when it ends, at %s at the latest unless it renews them", on.Number(h.Amount), who, on.Time(h.Until))
}

// guardText says, within the guard after a calendar's reset, which period counts.
func guardText(on screen.Screen, w limit.Window, at time.Time) string {
	began, until, guarded := w.InGuard(at.UnixMicro())
	if !guarded {
		return ""
	}
	return fmt.Sprintf("was reset at %s, but until %s, because of its guard, the period before still counts, and these numbers are that period's", on.Time(time.UnixMicro(began)), on.Time(time.UnixMicro(until)))
}

// shareText is what a share is guaranteed and has used, and what is kept for it of what is
// left.
func shareText(on screen.Screen, s budget.ShareStatus, left int64) string {
	if s.Lapse > 0 && s.InForce == 0 && s.Guarantee > 0 {
		return fmt.Sprintf("share %s was guaranteed %d until %s, when that lapsed: %d used, 0 kept", s.Name, s.Guarantee, on.Time(s.LapsesAt), s.Used)
	}
	text := fmt.Sprintf("share %s is guaranteed %d: %d used, %d kept, %d borrowed", s.Name, s.InForce, s.Used, s.Kept, s.Borrowed)
	switch {
	case s.Plan && s.InForce < s.Guarantee:
		text += fmt.Sprintf("; by plan, its jobs need no more of its %d", s.Guarantee)
	case s.InForce < s.Guarantee:
		text += fmt.Sprintf("; the limit is too low for its %d", s.Guarantee)
	}
	if s.Kept > left {
		text += fmt.Sprintf("; only %d are left of what is kept", left)
	}
	if !s.LapsesAt.IsZero() {
		text += "; lapses at " + on.Time(s.LapsesAt)
	}
	return text
}

// Kind is "rolling 24h" or "calendar day".
func Kind(on screen.Screen, w limit.Window) string {
	text := func(us int64) string {
		const day = 24 * time.Hour
		if d := time.Duration(us) * time.Microsecond; !on.Terminal || d < 2*day || d%day != 0 {
			return limit.SpanText(d)
		}
		return fmt.Sprintf("%dd", time.Duration(us)*time.Microsecond/day)
	}
	switch {
	case w.Kind == limit.Bucket:
		return "bucket " + w.Refill.String()
	case w.Kind == limit.Concurrent:
		return "open at once"
	case w.Guard > 0:
		return "calendar " + w.Calendar.Length() + " + " + text(w.Guard)
	case w.Calendar != nil:
		return "calendar " + w.Calendar.Length()
	case w.Precision > 0:
		return "rolling " + text(w.Length) + " in " + text(w.Precision)
	}
	return "rolling " + text(w.Length)
}

func returnText(on screen.Screen, l budget.LimitStatus) string {
	if l.NextReturn.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%d at %s", l.NextAmount, on.Time(l.NextReturn))
}
