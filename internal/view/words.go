// Package view shows budgets to people: [Budget] what is left, [Why] what a call would get,
// [Ledger] and [History] who spent what. Each is text for a [screen.Screen].
package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/screen"
)

// Plural is a number of things.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	ending := "s"
	if strings.HasSuffix(what, "s") { // passes
		ending = "es"
	}
	return fmt.Sprintf("%d %s%s", n, what, ending)
}

// Shown is a string from somebody else as a terminal may show it.
func Shown(text string) string { return screen.Shown(text) }

// Roughly is a span of time for people: to a millisecond below a second, to a tenth
// of a second below ten, to a second below an hour, to a minute below two days, else
// to an hour.
func Roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return limit.SpanText(d.Round(time.Millisecond))
	case d < 10*time.Second:
		return limit.SpanText(d.Round(100 * time.Millisecond))
	case d < time.Hour:
		return limit.SpanText(d.Round(time.Second))
	case d < 2*day:
		return limit.SpanText(d.Round(time.Minute))
	}
	d = d.Round(time.Hour)
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}
