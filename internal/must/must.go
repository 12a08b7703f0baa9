// Package must is for tests that cannot go on when something is not as it must be.
// Package check is for those that can.
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

// Do is Get of what returns nothing else.
func Do(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal is check.Equal, and ends the test.
func Equal[V comparable](t T, got, want V, about ...any) {
	t.Helper()
	check.Equal(t, got, want, about...)
	if got != want {
		t.FailNow()
	}
}

// Is is check.Is, and ends the test.
func Is(t T, err, want error, about ...any) {
	t.Helper()
	check.Is(t, err, want, about...)
	if !errors.Is(err, want) {
		t.FailNow()
	}
}
