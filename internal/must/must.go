// Package must is for tests that cannot go on after an error.
package must

import "testing"

// Get ends a test with the error, if there is one:
//
//	b := must.Get(budget.New(store, spec))(t)
func Get[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// Do is Get of what returns nothing else.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
