package redisstore

import (
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/limit"
)

// shapes are the windows and meters of a batch's limits as charge.lua takes
// them, each once, and which of them each limit has.
type shapes struct {
	windows, meters []any
	places          []string // "3": the third window, "b1": the first meter
}

// How many arguments charge.lua takes for each.
const (
	windowArgs = 7
	meterArgs  = 4
)

// shapesOf takes calendars as they are around an instant.
func shapesOf(limits []limit.Limit, around int64) shapes {
	var s shapes
	seen := map[string]string{}
	for _, l := range limits {
		key := l.Window.Key()
		if l.Window.Kind == limit.Bucket {
			key = l.Meter()
		}
		place, known := seen[key]
		switch {
		case known:
		case l.Window.Kind == limit.Bucket:
			patterns := strings.Join(l.Operations, ",")
			if patterns == "" {
				patterns = "-"
			}
			s.meters = append(s.meters, key, patterns, l.Longest(), l.Limit)
			place = "b" + strconv.Itoa(len(s.meters)/meterArgs)
		default:
			var p0, p1, p2, c0, c1 int64
			if w := l.Window; w.Kind == limit.CalendarKind {
				p0, p1 = w.Span(around)
				_, p2 = w.Span(p1)
				c0, c1 = w.Cut(p0), w.Cut(p1)
			}
			s.windows = append(s.windows, key, l.Window.Longest(), p0, p1, p2, c0, c1)
			place = strconv.Itoa(len(s.windows) / windowArgs)
		}
		seen[key] = place
		s.places = append(s.places, place)
	}
	return s
}
