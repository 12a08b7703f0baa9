// Package check is for assertions after which a test continues: a failed one reports both
// values. Package must is for those that end the test.
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

// Equal reports an error if got is not want; the words of about come first:
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

// EqualSlices is Equal for slices.
func EqualSlices[V comparable](t T, got, want []V, about ...any) {
	t.Helper()
	if !slices.Equal(got, want) {
		tell(t, fmt.Sprintf("got %s, want %s", shown(got), shown(want)), about)
	}
}

// Contains reports an error if part is not in text.
func Contains(t T, text, part string, about ...any) {
	t.Helper()
	if !strings.Contains(text, part) {
		tell(t, fmt.Sprintf("%q is not in\n%s", part, text), about)
	}
}

// NoError reports an error that is not nil.
func NoError(t T, err error, about ...any) {
	t.Helper()
	if err != nil {
		tell(t, err.Error(), about)
	}
}

// Is reports an error that is not want, as errors.Is sees it.
func Is(t T, err, want error, about ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		tell(t, fmt.Sprintf("got error %v, want %v", err, want), about)
	}
}

// Err is the error of a call that also returns a value:
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
