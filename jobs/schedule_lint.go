package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// fieldsAdvice says what a schedule looks like.
const fieldsAdvice = `write minute, hour, day of month, month, day of week, such as "0 */3 * * *"; or "@hourly", "@daily", "@weekly", "@monthly", "@every 90m"`

// cronField is a field of a line, with its first and last value and the names
// of values, if it has any.
type cronField struct {
	name        string
	first, last int
	names       []string // from the first value on
}

var cronFields = [...]cronField{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of week", 0, 6, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// lintFields finds what the parser refuses, so that the error names the field,
// and what it takes but nobody means: empty parts of a list, a '*' with a
// range, and steps that leave their field at once.
func lintFields(spec string) error {
	fields := strings.Fields(spec)
	if len(fields) != len(cronFields) {
		plural := "s"
		if len(fields) == 1 {
			plural = ""
		}
		return fmt.Errorf("it has %d field%s, not 5; %s", len(fields), plural, fieldsAdvice)
	}
	for i, text := range fields {
		for part := range strings.SplitSeq(text, ",") {
			if part == "" {
				return fmt.Errorf("%s %q has an empty part: take the comma out", cronFields[i].name, text)
			}
			if err := cronFields[i].lint(part); err != nil {
				return err
			}
		}
	}
	return nil
}

// lint reads one part of a list: '*', a value or a range, with or without a
// step.
func (f cronField) lint(part string) error {
	span, step, hasStep := strings.Cut(part, "/")
	low, high, isRange := strings.Cut(span, "-")
	from, to := f.first, f.last
	if span != "*" && span != "?" {
		var err error
		if from, err = f.value(low, part); err != nil {
			return err
		}
		switch {
		case isRange:
			if to, err = f.value(high, part); err != nil {
				return err
			}
		case !hasStep:
			to = from
		}
	}
	if from > to {
		return fmt.Errorf("%s %q runs backwards: write \"%d-%d,%d-%d\"", f.name, part, from, f.last, f.first, to)
	}
	if !hasStep {
		return nil
	}
	n, err := strconv.Atoi(step)
	switch {
	case err != nil || n < 1:
		return fmt.Errorf("%s %q: the step after '/' is no number from 1 on; write \"*/2\" for every second one", f.name, part)
	case n > to-from:
		return fmt.Errorf("%s %q: a step of %d leaves the field at once; write a single value, or a smaller step", f.name, part, n)
	}
	return nil
}

// value reads a number or a name of the field.
func (f cronField) value(text, part string) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return f.first + i, nil
	}
	n, err := strconv.Atoi(text)
	switch {
	case err == nil && n == 7 && f.name == "day of week":
		return 0, fmt.Errorf("day of week %q: Sunday is 0, the last day is 6", part)
	case err != nil || n < f.first || n > f.last:
		named := ""
		if f.names != nil {
			named = fmt.Sprintf(" or %q to %q", f.names[0], f.names[len(f.names)-1])
		}
		return 0, fmt.Errorf("%s %q: %q is not one of %d to %d%s; write a value, a range as 1-5, a list as 1,3, a step as */2, or *",
			f.name, part, text, f.first, f.last, named)
	}
	return n, nil
}

// eitherDay reports whether day of month and day of week are both restricted,
// which in a cron line means that either is enough.
func eitherDay(spec string) bool {
	fields := strings.Fields(spec)
	if len(fields) != len(cronFields) {
		return false
	}
	any := func(field string) bool { return field == "*" || field == "?" || field == "*/1" }
	return !any(fields[2]) && !any(fields[4])
}
