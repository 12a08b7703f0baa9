package jobs

import (
	"fmt"
	"strconv"
	"strings"
)

// fieldsAdvice says what a schedule looks like.
const fieldsAdvice = `write minute, hour, day of month, month, day of week, such as "0 */3 * * *"; or "@hourly", "@daily", "@weekly", "@monthly", "@every 90m"`

// cronFields are the fields of a line, with their first and last value.
var cronFields = [...]struct {
	name        string
	first, last int
}{
	{"minute", 0, 59}, {"hour", 0, 23}, {"day of month", 1, 31}, {"month", 1, 12}, {"day of week", 0, 6},
}

// lintFields finds what the parser takes but nobody means: empty parts of a
// list, and steps that leave their field at once.
func lintFields(spec string) error {
	fields := strings.Fields(spec)
	if len(fields) != len(cronFields) {
		return fmt.Errorf("it has %d fields, not 5; %s", len(fields), fieldsAdvice)
	}
	for i, text := range fields {
		field := cronFields[i]
		for part := range strings.SplitSeq(text, ",") {
			if part == "" {
				return fmt.Errorf("%s %q has an empty part: take the comma out", field.name, text)
			}
			span, step, hasStep := strings.Cut(part, "/")
			if n, err := strconv.Atoi(step); hasStep && err == nil && n >= spanSize(span, field.first, field.last) {
				return fmt.Errorf("%s %q: a step of %d leaves the field at once; write a single value, or a smaller step", field.name, part, n)
			}
		}
		if i == 4 && strings.ContainsAny(text, "7") && !strings.Contains(text, "/") {
			return fmt.Errorf("day of week %q: Sunday is 0, the last day is 6", text)
		}
	}
	return nil
}

// spanSize is how many values the part before a step has; 1 more than any step
// where it is not to be read, which the parser then says.
func spanSize(span string, first, last int) int {
	if low, high, isRange := strings.Cut(span, "-"); isRange {
		from, errFrom := strconv.Atoi(low)
		to, errTo := strconv.Atoi(high)
		if errFrom != nil || errTo != nil {
			return last - first + 1
		}
		return to - from + 1
	}
	if from, err := strconv.Atoi(span); err == nil {
		return last - from + 1
	}
	return last - first + 1
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
