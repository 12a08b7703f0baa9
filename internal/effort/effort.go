// Package effort decides how much the tests do. Plain go test uses the small sizes,
// QUOTACTL_TEST_FULL=1 (make test-full) the full ones, and -short skips the tests that
// start other processes.
package effort

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// full names the variable that selects the full sizes.
const full = "QUOTACTL_TEST_FULL"

// Full reports whether the tests use their full sizes.
func Full() bool { return os.Getenv(full) != "" }

// Of is how much a test does of something: few, or many at full size.
func Of[N any](few, many N) N {
	if Full() {
		return many
	}
	return few
}

// Processes skips the test under -short. Tests that start servers, daemons or
// other programs, or kill them, call it first.
func Processes(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test starts other processes")
	}
}

// folder is the package's folder; a test may change to another.
var folder, _ = os.Getwd()

// Number is the variable's value, else otherwise. Underscores may group its digits.
func Number(t testing.TB, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := number(text)
	if err != nil {
		t.Fatalf("%s: %v: use a number", variable, err)
	}
	return n
}

func number(text string) (uint64, error) {
	return strconv.ParseUint(strings.ReplaceAll(text, "_", ""), 10, 64)
}

// Seed is a seed for the test: the variable's value, else a random one. A test
// that fails prints the command that repeats it.
func Seed(t testing.TB, variable string) uint64 {
	t.Helper()
	seed := Number(t, variable, rand.Uint64())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("to repeat: " + repeat(t.Name(), variable, seed))
		}
	})
	return seed
}

// sizes are the environment's numbers for tests, but for one variable, as the shell sets them.
func sizes(but string) string {
	var set []string
	for _, one := range os.Environ() {
		name, value, _ := strings.Cut(one, "=")
		ours := strings.HasPrefix(name, "QUOTACTL_") || strings.HasPrefix(name, "SIMULATE_")
		if _, err := number(value); ours && err == nil && name != but {
			set = append(set, one+" ")
		}
	}
	slices.Sort(set)
	return strings.Join(set, "")
}

// repeat is the command that runs a test with a seed, at the same size.
func repeat(test, variable string, seed uint64) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return fmt.Sprintf("cd %s && %s%s=%d go test -count=1 -run %s .", quote(folder), sizes(variable), variable, seed, quote(strings.Join(parts, "/")))
}

// quote quotes a word for the shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
