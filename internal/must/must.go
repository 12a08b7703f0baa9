// Package must is for assertions that end the test. Package check is for those after
// which it continues.
package must

import (
	"errors"

	"github.com/quotactl/quotactl/internal/check"
)

// T is a test: testing.TB, or rapid's.
type T interface {
	check.T
	Fatal(args ...any)
	FailNow()
}

// Get ends a test with the error, if there is one:
//
//	b := must.Get(budget.New(store, spec))(t)
func Get[V any](value V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		Do(t, err)
		return value
	}
}

// Do is Get for a call that returns only an error.
func Do(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal is check.Equal, and ends the test on failure.
func Equal[V comparable](t T, got, want V, about ...any) {
	t.Helper()
	check.Equal(t, got, want, about...)
	if got != want {
		t.FailNow()
	}
}

// Is is check.Is, and ends the test on failure.
func Is(t T, err, want error, about ...any) {
	t.Helper()
	check.Is(t, err, want, about...)
	if !errors.Is(err, want) {
		t.FailNow()
	}
}
