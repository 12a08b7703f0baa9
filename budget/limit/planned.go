package limit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"
)

// Planned is what a daemon wrote of a share whose guarantee lapses by plan: until an instant
// (µs) the guarantee in force is at most this, in what the limit counts.
//
// It is absolute: what the share had used plus what its jobs may still need. So what they
// charge meanwhile comes off what is kept, and is not kept twice. Where units of the share
// return meanwhile, as much more is kept until the next record: too much, never too little.
type Planned struct{ Guarantee, Until int64 }

// MaxPlanned is how far ahead, in µs, a record may end.
const MaxPlanned = 10 * int64(time.Minute/time.Microsecond)

// planned is what records say of a guarantee at an instant: of those that have not ended the
// largest counts; false if there is none.
func (s Share) planned(at int64) (most int64, ok bool) {
	for _, p := range s.Planned {
		if at < p.Until {
			most, ok = max(most, p.Guarantee), true
		}
	}
	return most, ok
}

// ByPlan reports whether a guarantee of the limit lapses by plan, ByRecords whether there are
// records of one, and RecordedAfter whether one of these ends after an instant, in µs.
func (l Limit) ByPlan() bool {
	return slices.ContainsFunc(l.Shares, func(s Share) bool { return s.Plan })
}
func (l Limit) ByRecords() bool {
	return slices.ContainsFunc(l.Shares, func(s Share) bool { return len(s.Planned) > 0 })
}
func (l Limit) RecordedAfter(at int64) bool {
	return slices.ContainsFunc(l.Shares, func(s Share) bool {
		_, ok := s.planned(at)
		return ok
	})
}

// PlanKey names a share of a limit in records, by all that says what the share's jobs may
// need of it: two limits whose records may stand for each other have the same.
func (l Limit) PlanKey(share int) string {
	s := l.Shares[share]
	of := struct {
		Limit, Window, Share string
		Counts               Counts
		Operations, Jobs     []string
	}{l.Name, l.Window.Key(), s.Name, l.Counts, l.Operations, slices.Sorted(slices.Values(s.Jobs))}
	text, err := json.Marshal(of)
	if err != nil { // these types always can be
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// PlanEnds is when records of the limit end at the latest; false if there are none.
func (l Limit) PlanEnds() (end int64, ok bool) {
	for _, s := range l.Shares {
		for _, p := range s.Planned {
			end, ok = max(end, p.Until), true
		}
	}
	return end, ok
}

// Spell is a time in which the same guarantees are in force, up to an instant (µs).
type Spell struct {
	Until      int64
	Guarantees []int64
}

// Spells are the spells of [Limit.InForce] until the last record of the limit ends. The first
// begins at the earliest at which there can be these records, each other one where the one
// before ends.
func (l Limit) Spells() (list []Spell) {
	end, ok := l.PlanEnds()
	if !ok {
		return nil
	}
	begin := end - MaxPlanned
	var ends []int64
	add := func(at int64) {
		if at > begin && at <= end {
			ends = append(ends, at)
		}
	}
	for i, s := range l.Shares {
		for _, p := range s.Planned {
			add(p.Until)
		}
		for _, at := range []int64{begin, end} {
			if lapses, ok := l.LapsesAt(i, at); ok {
				add(lapses)
			}
		}
	}
	if l.Window.Kind == CalendarKind {
		for _, at := range []int64{begin, end} {
			from, until := l.Window.Span(at)
			add(from)
			add(until)
		}
	}
	slices.Sort(ends)
	for _, until := range slices.Compact(ends) {
		list = append(list, Spell{until, l.InForce(begin)})
		begin = until
	}
	return list
}

// SpellWait is when an item fits a limit under the guarantees of a spell, by use alone: from
// Start on, or Never. That counts until the spell ends.
type SpellWait struct{ Until, Start int64 }

// whilePlanned is From while there are records; false if the item does not fit until their
// last end.
func (w Wait) whilePlanned(from int64) (at int64, ok bool) {
	begin := from
	for _, s := range w.Spells {
		at, begin = max(begin, s.Start), max(begin, s.Until)
		if w.Refused && at <= w.Now { // then because of the next period
			at = w.Now + 1
			if w.Starts != nil {
				_, at = w.Limit.Window.Span(w.Now)
			}
		}
		if at < s.Until && w.Starts != nil {
			at = w.throughReset(at)
		}
		if at < s.Until {
			return at, true
		}
	}
	return 0, false
}

// throughReset is the first instant from one on at which the item, if it then counts in the
// next period too, fits there under all guarantees.
func (w Wait) throughReset(at int64) int64 {
	_, until := w.Limit.Window.Span(at)
	if until < w.Starts[0] && at >= until-2*w.Limit.Window.Guard-w.Lease {
		return until
	}
	return at
}
