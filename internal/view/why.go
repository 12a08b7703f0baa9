package view

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/internal/screen"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
)

// fewShown is how many reservations and instants the text shows for a limit, usersShown how
// many lines of who used it.
const fewShown, usersShown = 5, 20

// Why is what a call would get, and the numbers behind it; on a terminal without all only of the
// limits with least left that it has lines for.
func Why(on screen.Screen, why budget.Why, all bool) string {
	would := "it would be charged"
	if why.Refused != nil {
		asked := fmt.Sprintf("charge %s %s (%s): ", why.Budget, why.Call.Operation, Plural(int(why.Units), "unit"))
		would = strings.TrimPrefix(why.Refused.Error(), asked) // the line begins with that
	}
	locks := slices.Clone(why.Locks)
	if at := slices.IndexFunc(locks, lockOf(why.Refused)); at >= 0 {
		would = Closed(on, locks[at]) + ", since " + on.Time(locks[at].Since)
		if !why.Refused.Ends.IsZero() {
			would += "; the call fits at " + on.Time(why.Refused.RetryAt)
		}
		locks = slices.Delete(locks, at, at+1)
	}
	job := ""
	if why.Call.Labels.Job != "" {
		job = ", job " + why.Call.Labels.Job
	}
	out := on.Wrap("", fmt.Sprintf("%s %s%s, %s: %s", why.Budget, why.Call.Operation, job, Plural(int(why.Units), "unit"), would))
	for _, lock := range locks {
		out += on.Wrap("  ", Closed(on, lock)+", since "+on.Time(lock.Since))
	}
	if !why.Recovering.IsZero() {
		out += on.Wrap("  ", "recovering until "+on.Time(why.Recovering)+": until then a host may spend only its part")
	}
	for _, o := range why.OtherShares {
		out += on.Wrap("  ", Others(on, o))
	}
	if why.Meanwhile {
		out += on.Wrap("  ", "the ledger changed faster than it could be read: these numbers may be of different instants; ask again")
	}
	var list []block
	for _, l := range why.Limits {
		rank := float64(l.Available) / float64(max(1, l.Limit.Limit))
		if l.Short > 0 && !l.Observe {
			rank = -1
		}
		list = append(list, block{"", "\n" + whyLimitText(on, l, why), rank})
	}
	shown, left := fit(on, all, out, list, 1)
	if out += shown; left > 0 {
		out += "\n" + on.Wrap("", on.Faint(Plural(left, "more limit")+", less used; -v shows all"))
	}
	return out
}

// lockOf finds the lock by which a call was refused.
func lockOf(refused *budget.RefusedError) func(budget.Lock) bool {
	return func(l budget.Lock) bool {
		return refused != nil && errors.Is(refused, budget.ErrLocked) && l.Limit == refused.Limit
	}
}

// whyLimitText is a limit, who used it, and what comes back when.
func whyLimitText(on screen.Screen, l budget.WhyLimit, why budget.Why) string {
	fits := "it fits"
	if len(why.Locks) > 0 {
		fits = "enough but for the lock"
	}
	words := []string{fmt.Sprintf("%d of %d %s used", l.Used, l.Limit.Limit, l.Counts), fmt.Sprintf("the call needs %d", l.Needs)}
	byJob := map[string]int64{}
	for _, h := range l.Held {
		byJob[h.Job] += h.Amount
	}
	for _, job := range slices.Sorted(maps.Keys(byJob)) {
		words = append(words, fmt.Sprintf("%d held for job %s", byJob[job], job))
	}
	for _, kept := range l.Kept {
		words = append(words, fmt.Sprintf("%d kept for %s", kept.Units, kept.Share))
	}
	if l.Floor > 0 {
		words = append(words, fmt.Sprintf("%d must remain", l.Floor))
		if l.FloorJob != "" {
			words[len(words)-1] += " (the floor of job " + l.FloorJob + ")"
		}
	}
	switch {
	case l.Short > 0 && l.Observe:
		words = append(words, fmt.Sprintf("%d available, %d too few, but the limit only observes", l.Available, l.Short))
	case l.Short > 0:
		words = append(words, fmt.Sprintf("%d available, %d too few", l.Available, l.Short))
	case len(l.KeptAfterReset) > 0:
		var kept []string
		for _, k := range l.KeptAfterReset {
			kept = append(kept, fmt.Sprintf("%d are kept for %s", k.Units, k.Share))
		}
		words = append(words, "it also counts after the reset, where it does not fit: "+strings.Join(kept, ", "))
	case l.Window.Kind == limit.Concurrent:
		words = append(words, fits)
	default:
		words = append(words, fmt.Sprintf("%d available, %s", l.Available, fits))
	}
	out := on.Wrap("", l.Name+": "+strings.Join(words, ", "))
	if text := guardText(on, l.Window, why.At); text != "" {
		out += on.Wrap("  ", text)
	}
	for _, h := range l.Held {
		out += on.Wrap("  ", heldText(on, h))
	}
	if l.Parts != nil {
		out += on.Wrap("  ", "headroom "+l.Parts.String())
	}
	for _, s := range l.Shares {
		switch {
		case s.Name == l.Share:
			out += on.Wrap("  ", "of the call's own "+shareText(on, s, l.Remaining))
		case s.Kept > 0:
			out += on.Wrap("  ", shareText(on, s, l.Remaining))
		}
	}
	out += usedByTable(on, l) + openText(on, l)
	if list := returnsText(on, l); list != "" {
		out += on.Wrap("  ", "comes back: "+list)
	}
	return out
}

func usedByTable(on screen.Screen, l budget.WhyLimit) string {
	if len(l.By) == 0 {
		return ""
	}
	t := on.Table("  USED BY", "SHARE", ">"+strings.ToUpper(string(l.Counts)))
	more, used := l.ByRest.Count, l.ByRest.Amount
	for i, by := range l.By {
		if i >= usersShown && by.Kind != "meanwhile" {
			more, used = more+1, used+by.Used
			continue
		}
		name, share := by.Kind, by.Share
		if by.Job != "" {
			name = "job " + by.Job
		}
		if share == "" {
			share = "-"
		}
		t.Add("  "+name, share, on.Number(by.Used))
	}
	if more > 0 {
		t.Add(fmt.Sprintf("  and %d more", more), "-", on.Number(used))
	}
	return t.String()
}

func openText(on screen.Screen, l budget.WhyLimit) (out string) {
	more, held := l.OpenRest.Count, l.OpenRest.Amount
	for i, o := range l.Open {
		if i >= fewShown {
			more, held = more+1, held+o.Held
			continue
		}
		out += on.Wrap("  ", fmt.Sprintf("open: %s %s holds %d until %s", o.Operation, Shown(o.ID), o.Held, on.Time(o.Until)))
	}
	if more > 0 {
		out += on.Wrap("  ", fmt.Sprintf("and %s more that are open, which hold %d", Plural(int(more), "reservation"), held))
	}
	return out
}

// returnsText is when how much comes back: what comes back within a second, as it is shown,
// is one sum.
func returnsText(on screen.Screen, l budget.WhyLimit) string {
	if len(l.Returns) == 0 && !l.NextReturn.IsZero() {
		return fmt.Sprintf("%d at %s, and more after it", l.NextAmount, on.Time(l.NextReturn))
	}
	var words []string
	amount, rest := int64(0), l.ReturnsRest.Amount
	for i, r := range l.Returns {
		if len(words) == fewShown {
			rest += r.Amount
			continue
		}
		if amount += r.Amount; i+1 == len(l.Returns) || on.Time(r.At) != on.Time(l.Returns[i+1].At) {
			words, amount = append(words, fmt.Sprintf("%d at %s", amount, on.Time(r.At))), 0
		}
	}
	if rest > 0 {
		last := l.ReturnsRest.Last
		if last.IsZero() {
			last = l.Returns[len(l.Returns)-1].At
		}
		words = append(words, fmt.Sprintf("%d more up to %s", rest, on.Time(last)))
	}
	return strings.Join(words, ", ")
}
