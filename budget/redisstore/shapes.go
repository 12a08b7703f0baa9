package redisstore

import (
	"strings"

	"github.com/quotactl/quotactl/budget/limit"
)

// shape sets the limits, and their windows and meters, each once. Calendars get their
// periods around an instant.
func (a *chargeArgs) shape(limits []limit.Limit, around int64) {
	a.Windows, a.Meters, a.Limits = []windowArgs{}, []meterArgs{}, make([]limitArgs, len(limits))
	seen := map[string]limitArgs{} // windows and meters by key, with their places
	for i, l := range limits {
		w := l.Window
		key := w.Key()
		if w.Kind == limit.Bucket {
			key = l.Meter()
		}
		place, known := seen[key]
		switch {
		case known:
		case w.Kind == limit.Bucket:
			patterns := strings.Join(l.Operations, ",")
			if patterns == "" {
				patterns = "-"
			}
			a.Meters = append(a.Meters, meterArgs{key, patterns, l.Longest(), l.Limit})
			place.Bucket = len(a.Meters)
		default:
			window := windowArgs{Key: key, Longest: w.Longest()}
			if w.Kind == limit.CalendarKind {
				var p periods
				p.P0, p.P1 = w.Span(around)
				_, p.P2 = w.Span(p.P1)
				p.C0, p.C1 = w.Cut(p.P0), w.Cut(p.P1)
				window.periods = &p
			}
			a.Windows = append(a.Windows, window)
			place.Window = len(a.Windows)
		}
		seen[key] = place
		place.Calls, place.Observe, place.Name = l.Counts == limit.CountCalls, l.Observe, l.Name
		a.Limits[i] = place
	}
}
