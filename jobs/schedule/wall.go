package schedule

import (
	"math"
	"math/bits"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	dayMinutes = 24 * 60
	daySeconds = 24 * 60 * 60
)

// wallFields is a cron line as sets of bits, in wall-clock time: the seconds that a clock
// shows, counted as if it showed UTC. Its times are whole minutes.
type wallFields struct {
	minute, hour, dom, month, dow uint64
	either                        bool // one of dom and dow is enough
}

// newWallFields converts what the parser read.
func newWallFields(spec *cron.SpecSchedule) wallFields {
	const star = 1 << 63 // the parser's mark of a field that was left open
	return wallFields{
		minute: spec.Minute &^ star,
		hour:   spec.Hour &^ star,
		dom:    spec.Dom &^ star,
		month:  spec.Month &^ star,
		dow:    spec.Dow &^ star,
		either: spec.Dom&star == 0 && spec.Dow&star == 0,
	}
}

// everyHour reports whether the line includes every hour.
func (f *wallFields) everyHour() bool { return f.hour == 1<<24-1 }

// everyDay reports whether the line includes every day.
func (f *wallFields) everyDay() bool {
	const days, months, weekdays = 1<<32 - 2, 1<<13 - 2, 1<<7 - 1
	dom, dow := f.dom == days, f.dow == weekdays
	return f.month == months && (dom && dow || f.either && (dom || dow))
}

// inDay is how many times one of its days has.
func (f *wallFields) inDay() int { return bits.OnesCount64(f.hour) * bits.OnesCount64(f.minute) }

// isDay reports whether the line includes a day, counted from the epoch. skip is the next
// day to examine: the first of the next month if the line excludes this one, else the day
// after.
func (f *wallFields) isDay(day int64) (is bool, skip int64) {
	year, month, dom := time.Unix(day*daySeconds, 0).UTC().Date()
	if f.month>>uint(month)&1 == 0 {
		return false, time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).Unix() / daySeconds
	}
	byDom := f.dom>>uint(dom)&1 == 1
	byDow := f.dow>>uint(floorMod(day+4, 7))&1 == 1 // the epoch was a Thursday
	if f.either {
		return byDom || byDow, day + 1
	}
	return byDom && byDow, day + 1
}

// first is the first of its times in [from, until).
func (f *wallFields) first(from, until int64) (wall int64, ok bool) {
	minute := ceilDiv(from, 60)
	day := floorDiv(minute, dayMinutes)
	rest := int(minute - day*dayMinutes)
	for day*daySeconds < until {
		is, next := f.isDay(day)
		if is {
			if m, ok := f.firstMinute(rest); ok {
				wall = day*daySeconds + int64(m)*60
				return wall, wall < until
			}
		}
		day, rest = next, 0
	}
	return 0, false
}

// last is the last of its times in [from, until).
func (f *wallFields) last(from, until int64) (wall int64, ok bool) {
	minute := ceilDiv(until, 60) - 1
	day := floorDiv(minute, dayMinutes)
	rest := int(minute - day*dayMinutes)
	for ; (day+1)*daySeconds > from; day, rest = day-1, dayMinutes-1 {
		if is, _ := f.isDay(day); !is {
			continue
		}
		if m, ok := f.lastMinute(rest); ok {
			wall = day*daySeconds + int64(m)*60
			return wall, wall >= from
		}
	}
	return 0, false
}

// count is how many of its times are in [from, until).
func (f *wallFields) count(from, until int64) int {
	begin, end := ceilDiv(from, 60), ceilDiv(until, 60)
	if begin >= end {
		return 0
	}
	firstDay, lastDay := floorDiv(begin, dayMinutes), floorDiv(end, dayMinutes)
	n := 0
	if is, _ := f.isDay(lastDay); is {
		n += f.before(int(end - lastDay*dayMinutes))
	}
	if is, _ := f.isDay(firstDay); is {
		n -= f.before(int(begin - firstDay*dayMinutes))
	}
	if f.everyDay() {
		return n + int(lastDay-firstDay)*f.inDay()
	}
	for day := firstDay; day < lastDay; {
		is, next := f.isDay(day)
		if is {
			n += f.inDay()
		}
		day = next
	}
	return n
}

// leastGap is the shortest span between two of its times, in minutes.
func (f *wallFields) leastGap() int {
	begin, _ := f.firstMinute(0)
	end, _ := f.lastMinute(dayMinutes - 1)
	overnight := dayMinutes - end + begin
	least := math.MaxInt
	for at := begin; at < end; {
		next, _ := f.firstMinute(at + 1)
		least = min(least, next-at)
		at = next
	}
	if least <= overnight {
		return least
	}
	return min(least, overnight+(f.leastDays()-1)*dayMinutes)
}

// leastDays is the shortest span between two of its days, in days.
func (f *wallFields) leastDays() int {
	const years = 9 // two leap days at least
	least, last := years*366, int64(0)
	for day := firstDay.Unix() / daySeconds; day < firstDay.Unix()/daySeconds+years*366 && least > 1; {
		is, next := f.isDay(day)
		if is {
			if last != 0 {
				least = min(least, int(day-last))
			}
			last = day
		}
		day = next
	}
	return least
}

// firstMinute is its first minute of a day, from a minute on.
func (f *wallFields) firstMinute(from int) (minute int, ok bool) {
	hour, rest := from/60, from%60
	if later := f.minute >> rest; f.hour>>hour&1 == 1 && later != 0 {
		return from + bits.TrailingZeros64(later), true
	}
	later := f.hour >> (hour + 1)
	if later == 0 {
		return 0, false
	}
	return (hour+1+bits.TrailingZeros64(later))*60 + bits.TrailingZeros64(f.minute), true
}

// lastMinute is its last minute of a day, up to a minute.
func (f *wallFields) lastMinute(to int) (minute int, ok bool) {
	hour, rest := to/60, to%60
	if earlier := f.minute & (2<<rest - 1); f.hour>>hour&1 == 1 && earlier != 0 {
		return hour*60 + bits.Len64(earlier) - 1, true
	}
	earlier := f.hour & (1<<hour - 1)
	if earlier == 0 {
		return 0, false
	}
	return (bits.Len64(earlier)-1)*60 + bits.Len64(f.minute) - 1, true
}

// before is how many of a day's times are before a minute of the day.
func (f *wallFields) before(minute int) int {
	hour, rest := minute/60, minute%60
	n := bits.OnesCount64(f.hour&(1<<hour-1)) * bits.OnesCount64(f.minute)
	if f.hour>>hour&1 == 1 {
		n += bits.OnesCount64(f.minute & (1<<rest - 1))
	}
	return n
}

// floorDiv is a/b rounded down, floorMod the remainder.
func floorDiv(a, b int64) int64 { return (a - floorMod(a, b)) / b }

func floorMod(a, b int64) int64 { return (a%b + b) % b }

// ceilDiv is a/b rounded up.
func ceilDiv(a, b int64) int64 { return -floorDiv(-a, b) }
