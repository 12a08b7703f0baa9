//go:build !race

package effort

// raced reports whether the race detector watches the tests.
const raced = false
