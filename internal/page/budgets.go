package page

import (
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
)

// The levels of a budget, of a limit and of a job: how much they ask for attention.
const (
	levelGood  = "good"
	levelLow   = "low"
	levelOut   = "out"
	levelQuiet = "quiet"
)

// budgetCard is a budget in short.
type budgetCard struct {
	Name, Level     string
	Figure, Caption string   // how much is left, and of what
	FigureLevel     string   // of the limit that this is about
	Alarm           string   // what the plan finds to lack units; empty: nothing
	Facts           []string // sentences, the most important first
	Limits          []limitRow
	More            int // limits that are left out
}

// limitRow is a limit's numbers.
type limitRow struct {
	Name, Kind, Counts, Level string
	Used, Held, Kept          int64
	Left, Limit, Over         int64
	Observed                  bool
	Bar                       bar
	Return                    string
	Notes                     []string
}

// bar is how a limit is divided: what is used, held and kept, in percent of the limit.
type bar struct {
	Used, Held, Kept string // widths
	HeldAt, KeptAt   string // where these begin
	Level, Label     string
}

// newCard is a budget in short; the forecast may be nil.
func newCard(b budget.Status, ahead *answer.BudgetForecast) budgetCard {
	card := budgetCard{Name: b.Budget, Level: levelGood}
	tightest := b.Tightest()
	switch {
	case tightest == nil:
		card.Level, card.Figure = levelQuiet, "No limits"
	case tightest.Lock != nil:
		card.Level, card.FigureLevel, card.Figure, card.Caption = levelOut, levelOut, "Locked", "no call is allowed"
		if tightest.Lock.Limit != "" && !tightest.CoversAll() {
			card.Caption = "no call that limit " + tightest.Name + " covers is allowed"
		}
		card.Facts = append(card.Facts, sentence(closedText(*tightest.Lock)))
	default:
		card.Level = levelOf(tightest.LimitStatus)
		card.FigureLevel = card.Level
		card.Figure = count(tightest.Left)
		card.Caption = fmt.Sprintf("of %s %s, limit %s", countOf(tightest.Limit.Limit, tightest.Counts), freeOf(tightest.LimitStatus), tightest.Name)
		if text := keptText(tightest.LimitStatus); text != "" {
			card.Caption += ", " + text
		}
		if tightest.Observe {
			card.Caption += ", which only observes"
		}
		if text := returns(tightest.LimitStatus, b.At); text != "" {
			card.Facts = append(card.Facts, sentence(text))
		}
	}
	for _, lock := range b.Locks {
		if tightest == nil || tightest.Lock == nil || *tightest.Lock != lock {
			card.Facts = append(card.Facts, sentence(closedText(lock)))
		}
	}
	for _, l := range b.Limits {
		if card.Level == levelGood && levelOf(l) == levelOut {
			card.Level = levelLow
		}
		if l.Remaining == 0 && !l.Observe && tightest != nil && l.Name != tightest.Name && !hidden(l) {
			text := "limit " + l.Name + " is empty"
			if back := returns(l, b.At); back != "" {
				text += ": " + back
			}
			card.Facts = append(card.Facts, sentence(text))
		}
	}
	if !b.Recovering.IsZero() {
		card.Facts = append(card.Facts, "The store has lost data: until "+shown(b.Recovering)+" each host may spend only its part of the headroom.")
	}
	planned := byPlanText(ahead)
	if ahead != nil && ahead.FirstCut != nil { // what needs attention comes first
		card.Alarm, planned = sentence(planned), ""
	}
	for _, text := range []string{planned, aheadText(b), refusedText(b)} {
		if text != "" {
			card.Facts = append(card.Facts, sentence(text))
		}
	}
	for _, o := range b.OtherShares {
		card.Facts = append(card.Facts, sentence(othersText(o)))
	}
	for _, l := range b.Limits {
		if hidden(l) {
			if _, locked := b.LockOf(l.Name); !locked {
				card.More++
				continue
			}
		}
		card.Limits = append(card.Limits, newLimitRow(l, b))
	}
	return card
}

// levelOf is how much a limit asks for attention.
func levelOf(l budget.LimitStatus) string {
	switch {
	case l.Observe:
		return levelQuiet
	case l.Remaining == 0:
		return levelOut
	case float64(l.Remaining-l.Kept()) < lowPart*float64(l.Limit.Limit):
		return levelLow
	}
	return levelGood
}

// newLimitRow is a limit of a budget.
func newLimitRow(l budget.LimitStatus, b budget.Status) limitRow {
	row := limitRow{
		Name: l.Name, Kind: kind(l.Window), Counts: string(l.Counts), Level: levelOf(l), Used: l.Used, Left: l.Remaining, Limit: l.Limit.Limit, Over: l.Over,
		Observed: l.Observe, Return: returns(l, b.At), Notes: limitNotes(l, b.At),
	}
	for _, h := range l.Held {
		row.Held += h.Amount
	}
	if lock, locked := b.LockOf(l.Name); locked {
		row.Level, row.Notes = levelOut, append([]string{lockText(lock)}, row.Notes...)
	}
	row.Kept = l.Kept()
	whole := float64(l.Limit.Limit)
	row.Bar = bar{
		Used: percent(float64(l.Used), whole), HeldAt: percent(float64(l.Used), whole), Held: percent(float64(min(row.Held, max(0, l.Limit.Limit-l.Used))), whole),
		KeptAt: percent(whole-float64(row.Kept), whole), Kept: percent(float64(row.Kept), whole), Level: row.Level,
		Label: fmt.Sprintf("%s of %s used", count(l.Used), countOf(l.Limit.Limit, l.Counts)),
	}
	if row.Held > 0 {
		row.Bar.Label += fmt.Sprintf(", %s held", count(row.Held))
	}
	if row.Kept > 0 {
		row.Bar.Label += fmt.Sprintf(", %s kept for shares", count(row.Kept))
	}
	return row
}

// returns says when what is used of a limit comes back; empty: nothing is used.
func returns(l budget.LimitStatus, at time.Time) string {
	switch {
	case l.Window.Kind == limit.CalendarKind:
		_, next := l.Window.Calendar.Period(at.UnixMicro())
		reset := time.UnixMicro(next).UTC()
		return "resets at " + shown(reset)
	case l.NextReturn.IsZero() || l.Used == 0:
		return ""
	case l.Window.Kind == limit.Bucket:
		return fmt.Sprintf("refills by %s", l.Window.Refill.String())
	case l.NextAmount >= l.Used:
		return "all that is used comes back at " + shown(l.NextReturn)
	}
	comes := "come"
	if l.NextAmount == 1 {
		comes = "comes"
	}
	return fmt.Sprintf("the next %s %s back at %s", countOf(l.NextAmount, l.Counts), comes, shown(l.NextReturn))
}
