package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

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
	for _, text := range wholeLock(on, b) {
		out += on.Wrap("  "+on.Bad("✗ "), text)
	}
	if !b.Recovering.IsZero() {
		out += on.Wrap("  "+on.Warn("! "), "recovering until "+on.Time(b.Recovering)+": the store has lost data; each host may spend only its part of the headroom")
	}
	for _, o := range b.OtherShares {
		out += on.Wrap("  "+on.Warn("! "), Others(on, o))
	}
	if text := Refused(on, b); text != "" {
		out += on.Wrap("  "+on.Warn("! "), text)
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

// glanceHead says what is left of the tightest limit.
func glanceHead(on screen.Screen, b budget.Status) string {
	text := on.Strong(b.Budget) + "  " + Left(on, b)
	if t := b.Tightest(); t != nil && t.Lock == nil {
		if back := backText(on, t.LimitStatus); back != "" {
			text += "; " + back
		}
	}
	return on.Wrap("", text)
}

// Left is what is left of a budget's tightest limit, as "6,500 of 9,000 units left in limit daily",
// or until when it is locked, and by what.
func Left(on screen.Screen, b budget.Status) string {
	t := b.Tightest()
	switch {
	case t == nil:
		return "no limits"
	case t.Lock != nil:
		return on.Bad(on.Strong(Closed(on, *t.Lock)))
	}
	left := fmt.Sprintf("%s of %s %s %s", on.Number(t.Left), on.Number(t.Limit.Limit), what(&t.LimitStatus), Free(t.LimitStatus))
	switch {
	case t.Observe:
	case t.Empty() && on.Terminal:
		left = on.Bad(on.Strong("empty: " + left))
	case t.Part() < screen.LowPart:
		left = on.Warn(left)
	default:
		left = on.Strong(left)
	}
	text := left + " in limit " + t.Name
	if t.Observe {
		text += ", which only observes"
	}
	if kept := KeptText(on.Number, t.LimitStatus); kept != "" {
		text += ", " + kept
	}
	return text
}

// IfClosed is ": " and what locks a budget, if the budget or its tightest limit is locked; else
// empty.
func IfClosed(on screen.Screen, b budget.Status) string {
	if t := b.Tightest(); t != nil && t.Lock != nil {
		return ": " + on.Bad(Closed(on, *t.Lock))
	}
	return ""
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

// The widths of a bar, in columns.
const leastBar, mostBar = 8, 40

// glanceBars is a line for each limit, with its bar, and below it what needs attention; with all,
// every note.
func glanceBars(on screen.Screen, b budget.Status, rows []budget.LimitStatus, all bool) (list []block) {
	names, counts, backs := make([]string, len(rows)), make([]string, len(rows)), make([]string, len(rows))
	wide, tightest := [3]int{}, b.Tightest()
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
		line := fmt.Sprintf("  %-*s  %s  %*s", wide[0], names[i], on.Bar(bar, l.Used+held(l), l.Kept(), l.Limit.Limit), wide[1], counts[i])
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
		rank := float64(l.Remaining-l.Kept()) / float64(max(1, l.Limit.Limit))
		switch _, locked := b.LockOf(l.Name); {
		case tightest != nil && l.Name == tightest.Name:
			rank = -1
		case l.Observe:
			rank = 2
		case locked:
			rank = 0
		}
		list = append(list, block{"", out, rank})
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
	if n := l.Kept(); n > 0 {
		list = append(list, on.Faint(fmt.Sprintf("▒ %s kept for %s", on.Number(n), keptFor(l))))
	}
	if n := held(l); n > 0 {
		list = append(list, on.Faint(fmt.Sprintf("%s held for passes under way", on.Number(n))))
	}
	return list
}

// KeptText says how much of what is left of a limit is kept for its shares, as "2,000 more kept for
// nightly"; empty: nothing.
func KeptText(number func(int64) string, l budget.LimitStatus) string {
	n := l.Kept()
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s more kept for %s", number(n), keptFor(l))
}

// Free is what the number of units beside it are: left, or free if others are kept.
func Free(l budget.LimitStatus) string {
	if l.Kept() > 0 {
		return "free"
	}
	return "left"
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

// AsOf says when numbers were read.
func AsOf(on screen.Screen, at time.Time, store string) string {
	return on.Wrap("", on.Faint(fmt.Sprintf("as of %s %s, %s", at.In(on.Zone).Format("15:04:05"), at.In(on.Zone).Format("MST"), store)))
}
