package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Odd lists behaviour of the schedule that its author may not have meant, each with what
// to write instead.
func (s *Schedule) Odd() []string {
	var list []string
	note := func(text string) {
		if text != "" {
			list = append(list, text)
		}
	}
	if fields := strings.Fields(s.spec); len(fields) == len(cronFields) {
		note(eitherDay(fields))
		if !s.fields.everyHour() {
			note(everyMinute(fields))
		}
		for i, field := range cronFields {
			note(field.uneven(fields, fields[i]))
		}
		note(lateDay(fields))
	}
	if s.every == 0 && !s.fields.everyHour() {
		note(s.shifted())
	}
	return list
}

// eitherDay reports a line that restricts both day of month and day of week: a day that
// matches either ticks, while some other crons require both.
func eitherDay(fields []string) string {
	if isOpen(fields, 2) || isOpen(fields, 4) {
		return ""
	}
	elsewhere := ""
	if strings.HasPrefix(fields[2], "*") || strings.HasPrefix(fields[4], "*") {
		elsewhere = " (Vixie cron and cronie require both if one begins with *)"
	}
	return "with both day of month and day of week given, either is enough" + elsewhere + "; write * for one of them"
}

// isOpen reports whether a field leaves its value open, as the parser sees it: a part of
// it is '*' or '?' without a step.
func isOpen(fields []string, i int) bool {
	for text := range strings.SplitSeq(fields[i], ",") {
		if part, err := cronFields[i].part(text); err == nil && part.all && part.step == 1 {
			return true
		}
	}
	return false
}

// everyMinute reports a line that leaves the minute open and restricts the hour.
func everyMinute(fields []string) string {
	if fields[0] != "*" && fields[0] != "?" {
		return ""
	}
	return fmt.Sprintf("it ticks in every minute of these hours; write %q for once in each, or */1 if every minute is meant", "0 "+strings.Join(fields[1:], " "))
}

// uneven reports a step over a whole field whose last interval differs, because the field
// starts over before the step is complete.
func (f cronField) uneven(fields []string, text string) string {
	part, err := f.part(text)
	size := f.last - f.first + 1
	fromInside := part.from != f.first && strings.Contains(text, "-")
	if err != nil || part.step == 1 || part.to != f.last || fromInside || f.name != "day of month" && size%part.step == 0 {
		return ""
	}
	last := part.to - (part.to-part.from)%part.step
	if f.name == "day of month" {
		return fmt.Sprintf("%s %q starts over each month: after %d comes %d; list the days that are meant", f.name, text, last, part.from)
	}
	instead := fmt.Sprintf("list the %ss that are meant", f.unit)
	if f.name == "minute" || f.name == "hour" {
		instead = fmt.Sprintf("take a step that divides %d, or %s", size, instead)
		if fields[2] == "*" && fields[3] == "*" && fields[4] == "*" && (f.name == "hour" || fields[1] == "*") {
			instead += fmt.Sprintf("; \"@every %d%c\" keeps the interval constant", part.step, f.unit[0])
		}
	}
	rest := size - last + part.from
	plural := "s"
	if rest == 1 {
		plural = ""
	}
	return fmt.Sprintf("%s %q is uneven: from %d to the next %d it is %d %s%s, not %d; %s", f.name, text, last, part.from, rest, f.unit, plural, part.step, instead)
}

// lateDay reports a day of month that some months do not have.
func lateDay(fields []string) string {
	day := 0
	for text := range strings.SplitSeq(fields[2], ",") {
		if part, err := cronFields[2].part(text); err == nil && !part.all && part.from > 28 {
			day = max(day, part.from)
		}
	}
	if day == 0 || !isOpen(fields, 4) {
		return ""
	}
	var lack []string
	for text := range strings.SplitSeq(fields[3], ",") {
		part, err := cronFields[3].part(text)
		if err != nil {
			return ""
		}
		for month := part.from; month <= part.to; month += part.step {
			name := cronFields[3].names[month-1]
			if end := time.Date(2026, time.Month(month+1), 0, 0, 0, 0, 0, time.UTC).Day(); end < day && !slices.Contains(lack, name) {
				lack = append(lack, name)
			}
		}
	}
	if len(lack) == 0 {
		return ""
	}
	but := ""
	if day == 29 {
		but = " except in leap years"
	}
	return fmt.Sprintf("day of month %d does not exist in %s%s; write one up to 28, or 1 for the day after a month's last", day, strings.Join(lack, ", "), but)
}

// shifted reports times that daylight saving skips or doubles in the years from firstDay
// on.
func (s *Schedule) shifted() string {
	const years = 8 // in this many years, the days of a yearly schedule meet most shifts
	var skips, doubles string
	begin := firstDay.Unix()
	for stretch := range stretches(s.zone, begin, begin+years*366*daySeconds) {
		low, high := stretch.skipped()
		if wall, ok := s.fields.first(low, high); ok && skips == "" && stretch.from >= begin {
			skips = fmt.Sprintf("on %s the clock skips %s, and it ticks at %s", wallDate(wall), s.times(low, high), wallTime(high))
			if wallDate(high) != wallDate(wall) {
				skips += " on " + wallDate(high)
			}
		}
		low, high = stretch.doubled()
		if wall, ok := s.fields.first(low, high); ok && doubles == "" && stretch.from >= begin {
			doubles = fmt.Sprintf("on %s the clock shows %s twice, and it ticks the first time", wallDate(wall), s.times(low, high))
		}
	}
	switch {
	case skips == "" && doubles == "":
		return ""
	case skips != "" && doubles != "":
		skips += "; "
	}
	return fmt.Sprintf("in %s %s%s; take an hour that is never shifted, or timezone = \"UTC\", if that is not meant", s.zone, skips, doubles)
}

// times describes the times in [from, until): the first, and how many more there are.
func (s *Schedule) times(from, until int64) string {
	wall, _ := s.fields.first(from, until)
	if n := s.fields.count(from, until); n > 1 {
		return fmt.Sprintf("%s and %d more", wallTime(wall), n-1)
	}
	return wallTime(wall)
}

func wallDate(wall int64) string { return time.Unix(wall, 0).UTC().Format(time.DateOnly) }

func wallTime(wall int64) string { return time.Unix(wall, 0).UTC().Format("15:04") }
