package schedule

import (
	"iter"
	"slices"
	"time"
)

// Between counts the ticks later than after, up to until and including it. It returns the
// first tick and up to most of the newest, the oldest first, all in UTC. If there is no
// tick, first is the zero time. The time it takes grows with the number of days and with
// most, not with the number of ticks.
func (s *Schedule) Between(after, until time.Time, most int) (count int, first time.Time, newest []time.Time) {
	from, to := after.Unix()+1, until.Unix()+1
	if from >= to {
		return 0, time.Time{}, nil
	}
	if s.every > 0 {
		return s.everyBetween(from, to, most)
	}
	var spans []span
	for span := range s.spans(from, to) {
		n := span.count(&s.fields)
		if n == 0 {
			continue
		}
		if count == 0 {
			at, _ := span.first(&s.fields)
			first = time.Unix(at, 0).UTC()
		}
		count += n
		spans = append(spans, span)
	}
	for _, span := range slices.Backward(spans) {
		for at, ok := span.last(&s.fields); ok && len(newest) < most; at, ok = span.last(&s.fields) {
			newest = append(newest, time.Unix(at, 0).UTC())
			span = span.before(at)
		}
	}
	slices.Reverse(newest)
	return count, first, newest
}

// everyBetween is Between for "@every", in the instants [from, to).
func (s *Schedule) everyBetween(from, to int64, most int) (count int, first time.Time, newest []time.Time) {
	every := int64(s.every / time.Second)
	begin, end := ceilDiv(from, every), ceilDiv(to, every)
	if begin >= end {
		return 0, time.Time{}, nil
	}
	for i := end - min(end-begin, int64(max(0, most))); i < end; i++ {
		newest = append(newest, time.Unix(i*every, 0).UTC())
	}
	return int(end - begin), time.Unix(begin*every, 0).UTC(), newest
}

// span is a part of a stretch in which a schedule ticks: at most once at jump, and at its
// wall-clock times in [from, until).
type span struct {
	jump        int64 // a tick in place of times that were skipped, or noJump
	from, until int64
	shift       int64
}

const noJump = -1 << 63

// spans are the parts of the instants [from, until) in which the schedule ticks.
//
// A schedule that names hours ticks at the first instant at which the wall clock has
// reached one of its times: after a gap that may be several, which make one tick. Times
// that are shown again are ignored.
func (s *Schedule) spans(from, until int64) iter.Seq[span] {
	everyHour := s.fields.everyHour()
	return func(yield func(span) bool) {
		for stretch := range stretches(s.zone, from, until) {
			begin := max(stretch.from, from)
			piece := span{jump: noJump, from: begin + stretch.shift, until: stretch.until + stretch.shift, shift: stretch.shift}
			if !everyHour {
				piece.from = max(piece.from, stretch.shown)
				if low, high := stretch.skipped(); stretch.from >= from {
					if _, ok := s.fields.first(low, high); ok {
						piece.jump = begin
						piece.from++
					}
				}
			}
			if !yield(piece) {
				return
			}
		}
	}
}

// first is the span's first tick.
func (p span) first(f *wallFields) (at int64, ok bool) {
	if p.jump != noJump {
		return p.jump, true
	}
	wall, ok := f.first(p.from, p.until)
	return wall - p.shift, ok
}

// last is the span's last tick.
func (p span) last(f *wallFields) (at int64, ok bool) {
	if wall, ok := f.last(p.from, p.until); ok {
		return wall - p.shift, true
	}
	return p.jump, p.jump != noJump
}

// count is the number of ticks in the span.
func (p span) count(f *wallFields) int {
	n := f.count(p.from, p.until)
	if p.jump != noJump {
		n++
	}
	return n
}

// before is the span up to one of its ticks, exclusive.
func (p span) before(at int64) span {
	if at == p.jump {
		p.jump = noJump
	}
	p.until = at + p.shift
	return p
}
