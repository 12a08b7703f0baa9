package schedule

import (
	"iter"
	"time"
)

// stretch is a span of instants in which a zone keeps one offset. Instants are
// in seconds from the epoch, wall-clock times as [wallFields] has them.
type stretch struct {
	from, until int64 // [from, until)
	shift       int64 // the wall clock is the instant and this
	// shown is the end of the wall-clock times shown before the stretch: later than
	// at from if the clock went back, earlier if it skipped some.
	shown int64
}

// skipped are the times that the clock skips at the start of the stretch.
func (s stretch) skipped() (from, until int64) { return s.shown, s.from + s.shift }

// doubled are the times that the stretch shows a second time.
func (s stretch) doubled() (from, until int64) {
	return s.from + s.shift, min(s.shown, s.until+s.shift)
}

// settled is how far back a zone is examined to know which times its clock has shown:
// more than any clock was ever set back.
const settled = 2 * daySeconds

// stretches are the zone's stretches in the instants [from, until). The first starts
// where it begins, or settled before from; the last is cut at until.
func stretches(zone *time.Location, from, until int64) iter.Seq[stretch] {
	return func(yield func(stretch) bool) {
		begin := from - settled
		shift, end := zoneAt(zone, begin)
		shown := begin + shift
		for {
			s := stretch{from: begin, until: min(end, until), shift: shift, shown: shown}
			if s.until > from && !yield(s) || s.until >= until {
				return
			}
			shown = max(shown, s.until+shift)
			begin = end
			shift, end = zoneAt(zone, begin)
		}
	}
}

// zoneAt is the zone's offset at an instant, and until when it surely applies.
func zoneAt(zone *time.Location, at int64) (shift, until int64) {
	t := time.Unix(at, 0).In(zone)
	_, offset := t.Zone()
	switch _, end := t.ZoneBounds(); {
	case end.IsZero():
		return int64(offset), 1 << 62
	case end.Unix() > at:
		return int64(offset), end.Unix()
	}
	// For a zone that follows a rule, package time ends each year after 365
	// days: on the last day of a leap year that end has passed.
	return int64(offset), time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
}
