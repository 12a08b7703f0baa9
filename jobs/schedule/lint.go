package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// fieldsAdvice says how to write a schedule.
const fieldsAdvice = `write minute, hour, day of month, month, day of week, such as "0 */3 * * *"; or "@hourly", "@daily", "@weekly", "@monthly", "@every 90m"`

// cronField is a field of a line: its first and last value, and the names of values, if
// it has any.
type cronField struct {
	name, unit  string
	first, last int
	names       []string // from the first value on
}

var cronFields = [...]cronField{
	{"minute", "minute", 0, 59, nil},
	{"hour", "hour", 0, 23, nil},
	{"day of month", "day", 1, 31, nil},
	{"month", "month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of week", "day", 0, 6, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// lintFields reports what the parser refuses, so that the error names the field, and what
// it accepts but nobody means: empty parts of a list, a '*' with a range, and steps
// beyond the field's end.
func lintFields(spec string) error {
	fields := strings.Fields(spec)
	switch n := len(fields); {
	case n == 1:
		return fmt.Errorf("it has 1 field, not 5; %s", fieldsAdvice)
	case n < len(cronFields):
		return fmt.Errorf("it has %d fields, not 5; %s", n, fieldsAdvice)
	case n > len(cronFields):
		return fmt.Errorf("it has %d fields, not 5: seconds and years have no field; %s", n, fieldsAdvice)
	}
	for i, text := range fields {
		for part := range strings.SplitSeq(text, ",") {
			if part == "" {
				return fmt.Errorf("%s %q has an empty part: take the comma out", cronFields[i].name, text)
			}
			if _, err := cronFields[i].part(part); err != nil {
				return err
			}
		}
	}
	return nil
}

// fieldPart is one part of a list: the values from one to another, by a step.
type fieldPart struct {
	from, to, step int
	all            bool // '*' or '?'
}

// part reads one part of a list: '*', a value or a range, with or without a step.
func (f cronField) part(part string) (fieldPart, error) {
	span, step, hasStep := strings.Cut(part, "/")
	low, high, isRange := strings.Cut(span, "-")
	p := fieldPart{from: f.first, to: f.last, step: 1, all: span == "*" || span == "?"}
	if !p.all {
		var err error
		if p.from, err = f.value(low, part); err != nil {
			return p, err
		}
		switch {
		case isRange:
			if p.to, err = f.value(high, part); err != nil {
				return p, err
			}
		case !hasStep:
			p.to = p.from
		}
	}
	if p.from > p.to {
		return p, fmt.Errorf("%s %q runs backwards: write \"%d-%d,%d-%d\"", f.name, part, p.from, f.last, f.first, p.to)
	}
	if !hasStep {
		return p, nil
	}
	n, err := strconv.ParseUint(step, 10, 31)
	switch {
	case err != nil || n < 1:
		return p, fmt.Errorf("%s %q: the step after '/' is not a number of 1 or more; write \"*/2\" for every second one", f.name, part)
	case int(n) > p.to-p.from:
		return p, fmt.Errorf("%s %q: a step of %d goes beyond the last value; write a single value, or a smaller step", f.name, part, n)
	}
	p.step = int(n)
	return p, nil
}

// value reads a number or a name of the field.
func (f cronField) value(text, part string) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return f.first + i, nil
	}
	number, err := strconv.ParseUint(text, 10, 31) // no sign
	n := int(number)
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
