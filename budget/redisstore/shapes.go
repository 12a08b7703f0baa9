package redisstore

import (
	"cmp"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/limit"
)

// shape sets the limits, and their windows and meters, each once. Calendars get their
// periods around an instant.
func (a *chargeArgs) shape(limits []limit.Limit, around int64) {
	a.Windows, a.Meters, a.Limits = []windowArgs{}, []meterArgs{}, make([]limitArgs, len(limits))
	places := map[string]int{} // of windows and meters, by key
	for _, w := range limit.Windows(limits) {
		window := windowArgs{Key: w.Key(), Longest: w.Longest()}
		if w.Kind == limit.CalendarKind {
			var p periods
			p.P0, p.P1 = w.Span(around)
			_, p.P2 = w.Span(p.P1)
			p.C0, p.C1 = w.Cut(p.P0), w.Cut(p.P1)
			window.periods = &p
		}
		a.Windows = append(a.Windows, window)
		places[window.Key] = len(a.Windows)
	}
	for i, l := range limits {
		args := &a.Limits[i]
		args.Calls, args.Observe, args.Name, args.Shortest = l.Counts == limit.CountCalls, l.Observe, l.Name, l.Window.Shortest()
		if l.Window.Kind != limit.Bucket {
			args.Window = places[l.Window.Key()]
			continue
		}
		key := l.Meter()
		if places[key] == 0 {
			a.Meters = append(a.Meters, meterArgs{key, cmp.Or(strings.Join(l.Operations, ","), "-"), l.Longest(), l.Limit})
			places[key] = len(a.Meters)
		}
		args.Bucket = places[key]
	}
}

// divide sets the shares of the limits that have some.
func (a *chargeArgs) divide(limits []limit.Limit, known registry) {
	for i, l := range limits {
		if len(l.Shares) == 0 {
			continue
		}
		args := &a.Limits[i]
		a.Divided = true
		args.Lapses, args.Guard = l.Lapses(), l.Window.Guard
		for j, units := range l.Guarantees() {
			args.Shares = append(args.Shares, shareArgs{units, l.Shares[j].Lapse, known.shared(l.Shares[j], args.Covered), append([]string{}, l.Shares[j].Jobs...)})
		}
		for _, spell := range l.Spells() {
			args.Spells = append(args.Spells, spellArgs{spell.Until, spell.Guarantees})
		}
		if l.ChecksNext() {
			key := l.Window.AfterReset().Key()
			args.Next = 1 + slices.IndexFunc(a.Windows, func(w windowArgs) bool { return w.Key == key })
		}
	}
}
