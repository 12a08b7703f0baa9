package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/screen"
)

// Glance is a budget on a terminal: what is left, what comes of it, and a bar for each limit. It
// takes no more lines than the screen has, and then shows the tightest limits; with all it shows
// every limit and note. The forecast may be nil.
func Glance(on screen.Screen, b budget.Status, ahead *answer.BudgetForecast, all bool) string {
	out := glanceHead(on, b) + comes(on, b, ahead)
	if lock, locked := b.LockOf(""); locked {
		out += on.Wrap("  "+on.Bad("✗ "), Lock(on, lock))
	}
	if !b.Recovering.IsZero() {
		out += on.Wrap("  "+on.Warn("! "), "recovering until "+on.Time(b.Recovering)+": the store has lost data; each host may spend only its part of the headroom")
	}
	for _, o := range b.OtherShares {
		out += on.Wrap("  "+on.Warn("! "), Others(on, o))
	}
	shown := slices.DeleteFunc(slices.Clone(b.Limits), Hidden)
	idle := len(b.Limits) - len(shown)
	bars, left := fit(on, all, out, glanceBars(on, b, shown, all), 1)
	out += bars
	switch {
	case left > 0:
		out += on.Wrap("  ", on.Faint(Plural(left+idle, "more limit")+", less used; -v shows all"))
	case idle > 0:
		out += on.Wrap("  ", on.Faint(Plural(idle, "limit")+" of one operation each with nothing used"))
	}
	return out
}

// glanceHead says what is left of the limit that has the least.
func glanceHead(on screen.Screen, b budget.Status) string {
	name := on.Strong(b.Budget)
	l := Narrowest(b)
	if l == nil {
		return on.Wrap("", name+"  no limits")
	}
	left := fmt.Sprintf("%s of %s %s %s", on.Number(l.Remaining-Kept(*l)), on.Number(l.Limit.Limit), what(l), Free(*l))
	_, locked := b.LockOf("")
	switch {
	case locked:
		left = on.Bad(on.Strong("locked")) + ", " + left
	case l.Remaining == 0:
		left = on.Bad(on.Strong("empty: ") + left)
	case freePart(*l) < 0.2:
		left = on.Warn(left)
	default:
		left = on.Strong(left)
	}
	text := fmt.Sprintf("%s  %s in limit %s", name, left, l.Name)
	if kept := KeptText(*l); kept != "" {
		text += ", " + kept
	}
	if back := backText(on, *l); back != "" {
		text += "; " + back
	}
	return on.Wrap("", text)
}

func what(l *budget.LimitStatus) string {
	switch {
	case l.Window.Kind == limit.Concurrent:
		return "calls at once"
	case l.Counts == limit.CountCalls:
		return "calls"
	}
	return "units"
}

// backText is when what is used of a limit comes back; empty: nothing is used.
func backText(on screen.Screen, l budget.LimitStatus) string {
	switch {
	case l.NextReturn.IsZero():
		return ""
	case l.Window.Calendar != nil:
		return "resets " + on.Time(l.NextReturn)
	}
	return fmt.Sprintf("%s back %s", on.Number(l.NextAmount), on.Time(l.NextReturn))
}

// backSoon is how long it takes until something comes back.
func backSoon(on screen.Screen, l budget.LimitStatus) string {
	switch {
	case l.NextReturn.IsZero():
		return ""
	case l.Window.Calendar != nil:
		return "resets " + on.Away(l.NextReturn)
	}
	return fmt.Sprintf("+%s %s", on.Number(l.NextAmount), on.Away(l.NextReturn))
}

// comes is what comes of a budget: when it is empty at the present rate, and whether the next
// passes will have their units.
func comes(on screen.Screen, b budget.Status, ahead *answer.BudgetForecast) (out string) {
	if text := byPlan(on, ahead); text != "" {
		mark := on.Good("✓ ")
		switch {
		case ahead.FirstCut != nil:
			mark = on.Bad("✗ ")
		case !ahead.Known():
			mark = "? "
		}
		out += on.Wrap("  "+mark, text)
	}
	if l := firstEmpty(b, time.Hour); l != nil {
		mark := "  "
		if !l.Rate.EmptyAt.IsZero() || l.Remaining == 0 {
			mark = on.Warn("! ")
		}
		out += on.Wrap("  "+mark, rateText(on, *l))
	}
	return out
}

// freePart is the part of a limit that is left and not kept; one that refuses nothing comes last.
func freePart(l budget.LimitStatus) float64 {
	if l.Observe {
		return 2
	}
	return float64(l.Remaining-Kept(l)) / float64(max(1, l.Limit.Limit))
}

// The widths of a bar, in columns.
const leastBar, mostBar = 8, 40

// glanceBars is a line for each limit, with its bar, and below it what needs attention; with all,
// every note.
func glanceBars(on screen.Screen, b budget.Status, rows []budget.LimitStatus, all bool) (list []block) {
	names, counts, backs := make([]string, len(rows)), make([]string, len(rows)), make([]string, len(rows))
	wide := [3]int{}
	for i, l := range rows {
		names[i], counts[i], backs[i] = l.Name, fmt.Sprintf("%s / %s %s", on.Number(l.Used), on.Number(l.Limit.Limit), what(&l)), backSoon(on, l)
		wide = [3]int{max(wide[0], len([]rune(names[i]))), max(wide[1], len(counts[i])), max(wide[2], len(backs[i]))}
	}
	bar := min(mostBar, on.Width-wide[0]-wide[1]-wide[2]-8)
	beside := bar >= leastBar
	if !beside { // the return goes below
		bar = max(leastBar, min(mostBar, on.Width-wide[0]-wide[1]-6))
	}
	for i, l := range rows {
		line := fmt.Sprintf("  %-*s  %s  %*s", wide[0], names[i], on.Bar(bar, l.Used+held(l), Kept(l), l.Limit.Limit), wide[1], counts[i])
		if beside && backs[i] != "" {
			line += "  " + on.Faint(backs[i])
		}
		out := on.Wrap("", line)
		if !beside && backs[i] != "" {
			out += on.Wrap(strings.Repeat(" ", wide[0]+4), on.Faint(backs[i]))
		}
		for _, note := range glanceNotes(on, b, l, all) {
			out += on.Wrap(strings.Repeat(" ", wide[0]+4), note)
		}
		list = append(list, block{"", out, freePart(l)})
	}
	return list
}

// glanceNotes are what to say of a limit: with all everything, else what needs attention.
func glanceNotes(on screen.Screen, b budget.Status, l budget.LimitStatus, all bool) (list []string) {
	if lock, locked := b.LockOf(l.Name); locked {
		list = append(list, on.Bad("✗ ")+Lock(on, lock))
	}
	if all {
		return append(append(list, on.Faint(Kind(on, l.Window))), Notes(on, l, b.At)...)
	}
	if l.Over > 0 {
		list = append(list, on.Warn("! ")+fmt.Sprintf("over its limit by %s", on.Number(l.Over)))
	}
	if l.Drift > 0 {
		list = append(list, on.Warn("! ")+fmt.Sprintf("the upstream counts %s more than was charged", on.Number(l.Drift)))
	}
	if n := Kept(l); n > 0 {
		list = append(list, on.Faint(fmt.Sprintf("▒ %s kept for %s", on.Number(n), keptFor(l))))
	}
	if n := held(l); n > 0 {
		list = append(list, on.Faint(fmt.Sprintf("%s held for passes under way", on.Number(n))))
	}
	return list
}

// KeptText says how much of what is left of a limit is kept for its shares, as "2,000 more kept for
// nightly"; empty: nothing.
func KeptText(l budget.LimitStatus) string {
	n := Kept(l)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s more kept for %s", humanize.Comma(n), keptFor(l))
}

// Free is what the number of units beside it are: left, or free if others are kept.
func Free(l budget.LimitStatus) string {
	if Kept(l) > 0 {
		return "free"
	}
	return "left"
}

// Kept is how much of what is left of a limit is kept for its shares.
func Kept(l budget.LimitStatus) (sum int64) {
	for _, s := range l.Shares {
		sum += s.Kept
	}
	return min(sum, l.Remaining)
}

func keptFor(l budget.LimitStatus) string {
	var names []string
	for _, s := range l.Shares {
		if s.Kept > 0 {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, ", ")
}

func held(l budget.LimitStatus) (sum int64) {
	for _, h := range l.Held {
		sum += h.Amount
	}
	return sum
}

// Left is what is left of a budget's narrowest limit: "6500 of 9000 units left in limit daily".
func Left(b budget.Status) string {
	l := Narrowest(b)
	if l == nil {
		return "no limits"
	}
	text := fmt.Sprintf("%d of %d %s %s in limit %s", l.Remaining-Kept(*l), l.Limit.Limit, what(l), Free(*l), l.Name)
	if _, locked := b.LockOf(""); locked {
		text = "locked, " + text
	}
	return text
}

// Narrowest is the tightest limit, the one with the smallest part free: of those that count
// units, cover every operation and refuse something, else of all; nil: the budget has none. What
// is kept for shares is not free.
func Narrowest(b budget.Status) (narrowest *budget.LimitStatus) {
	for _, all := range []bool{false, true} {
		for i := range b.Limits {
			l := &b.Limits[i]
			if !all && (l.Counts == limit.CountCalls || !l.CoversAll() || l.Observe) {
				continue
			}
			if narrowest == nil || freePart(*l) < freePart(*narrowest) {
				narrowest = l
			}
		}
		if narrowest != nil {
			return narrowest
		}
	}
	return nil
}

// AsOf says when numbers were read.
func AsOf(on screen.Screen, at time.Time, store string) string {
	return on.Wrap("", on.Faint(fmt.Sprintf("as of %s %s, %s", at.In(on.Zone).Format("15:04:05"), at.In(on.Zone).Format("MST"), store)))
}
