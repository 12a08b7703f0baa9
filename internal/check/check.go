// Package check is for tests: what is not as wanted is told with both values, and the
// test goes on. Package must is for tests that cannot go on.
package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// T is a test: testing.TB, or rapid's.
type T interface {
	Helper()
	Error(args ...any)
}

// Equal tells where what was got is not what is wanted; the words of about come first:
//
//	check.Equal(t, receipt.Remaining, 3, "after a reset")
func Equal[V comparable](t T, got, want V, about ...any) {
	t.Helper()
	if got == want {
		return
	}
	if text, ok := any(got).(string); ok && strings.Contains(text, "\n") {
		tell(t, fmt.Sprintf("got\n%s\nwant\n%v", text, want), about)
	} else {
		tell(t, fmt.Sprintf("got %s, want %s", shown(got), shown(want)), about)
	}
}

// EqualSlices is Equal of slices.
func EqualSlices[V comparable](t T, got, want []V, about ...any) {
	t.Helper()
	if !slices.Equal(got, want) {
		tell(t, fmt.Sprintf("got %s, want %s", shown(got), shown(want)), about)
	}
}

// Contains tells where a part is not in the text.
func Contains(t T, text, part string, about ...any) {
	t.Helper()
	if !strings.Contains(text, part) {
		tell(t, fmt.Sprintf("%q is not in\n%s", part, text), about)
	}
}

// NoError tells an error, if there is one.
func NoError(t T, err error, about ...any) {
	t.Helper()
	if err != nil {
		tell(t, err.Error(), about)
	}
}

// Is tells where an error is not the wanted one, as errors.Is sees it.
func Is(t T, err, want error, about ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		tell(t, fmt.Sprintf("got error %v, want %v", err, want), about)
	}
}

// Err is the error of a call that returns a value too:
//
//	check.Is(t, check.Err(b.Charge(ctx, call)), budget.ErrExhausted)
func Err[V any](_ V, err error) error { return err }

func tell(t T, what string, about []any) {
	t.Helper()
	if words := strings.TrimSpace(fmt.Sprintln(about...)); words != "" {
		what = words + ": " + what
	}
	t.Error(what)
}

func shown(value any) string {
	if text, ok := value.(string); ok {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%+v", value)
}
