package limit

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"time"
)

// ErrSpan is the error for a text that is not a span.
var ErrSpan = errors.New("write a number and a unit, such as 30s, 8m, 24h or 7d")

// spanWithDaysLast matches a span that does not begin with its days, such as 12h1d.
var spanWithDaysLast = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-9.]+[a-zµ][0-9a-zµ.]*?)([0-9.]+d)([0-9a-zµ.]*)$`)
})

// daysFirst is the error for a text that is not a span. If only the days are in the wrong
// place, it says what to write.
func daysFirst(text string) error {
	if part := spanWithDaysLast().FindStringSubmatch(text); part != nil {
		if first := part[2] + part[1] + part[3]; isSpan(first) {
			return fmt.Errorf("days come first: write %s", first)
		}
	}
	return ErrSpan
}

func isSpan(text string) bool {
	_, err := ParseSpan(text)
	return err == nil
}

// ParseSpan reads a span of time as configurations and flags write it: a Go duration,
// which may begin with days of 24 hours, such as 7d, 1d12h or 1.5d.
func ParseSpan(text string) (time.Duration, error) {
	days, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		span, err := time.ParseDuration(text)
		if err != nil {
			return 0, ErrSpan
		}
		return span, nil
	}
	number := unsigned(days)
	if number == "" || strings.Trim(number, "0123456789.") != "" {
		return 0, daysFirst(text)
	}
	hours, err := time.ParseDuration(number + "h")
	if err != nil || hours > math.MaxInt64/24 {
		return 0, ErrSpan
	}
	span := 24 * hours
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil || rest != unsigned(rest) || more > math.MaxInt64-span {
			return 0, ErrSpan
		}
		span += more
	}
	if strings.HasPrefix(days, "-") {
		span = -span
	}
	return span, nil
}

// SpanText formats a span of time as a configuration writes it, without trailing zeroes:
// 24h, not 24h0m0s.
func SpanText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
