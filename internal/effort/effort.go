// Package effort decides how much the tests do. One variable says it, QUOTACTL_EFFORT:
//
//	small  go test, make test: minutes for all tests together. The default
//	ci     .ci/run, before a change lands
//	full   make test-full, before a release
//	soak   make soak, make simulate: one test for hours
//
// A test states its own share of each with [Of]. A test whose work is random takes its seed
// from [Seed]. [Processes] and [Unraced] say where a test is left out.
package effort

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The variables that say what the tests do.
const (
	effortVariable = "QUOTACTL_EFFORT"
	seedVariable   = "QUOTACTL_SEED"
)

// efforts are the values of QUOTACTL_EFFORT, from the smallest on.
var efforts = []string{"small", "ci", "full", "soak"}

// Of is how much a test does of something: small, or, at a larger effort, the size given for
// it in more. Those are the sizes for ci, full and soak; an effort without a size of its own
// has the one before it.
func Of[N any](small N, more ...N) N {
	sizes := append([]N{small}, more...)
	return sizes[min(chosen(), len(sizes)-1)]
}

// chosen is the index of the effort that the environment names.
func chosen() int {
	name := cmp.Or(os.Getenv(effortVariable), efforts[0])
	at := slices.Index(efforts, name)
	if at < 0 {
		panic(fmt.Sprintf("%s is %q: use one of %s", effortVariable, name, strings.Join(efforts, ", ")))
	}
	return at
}

// Processes skips the test under -short. Tests that start servers, daemons or
// other programs, or kill them, call it first.
func Processes(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test starts other processes")
	}
}

// Unraced leaves the test out under the race detector, which makes it take ten times as long
// and has nothing to find: everything in it happens in one goroutine or in other processes, or
// the same goroutines meet in another test that does less. make test and .ci/run run it without.
func Unraced(t testing.TB) {
	t.Helper()
	if raced {
		t.Skip("not under the race detector: nothing meets here, or meets in another test too")
	}
}

// Raced reports whether the race detector is on: a test that is long for it may do less.
func Raced() bool { return raced }

// folder is the package's folder; a test may change to another.
var folder, _ = os.Getwd()

// Seed is a seed for the test: QUOTACTL_SEED, else a random one. A test that fails, or panics,
// prints the command that repeats it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(strings.ReplaceAll(text, "_", ""), 10, 64); err != nil {
			t.Fatalf("%s: %v: use a number", seedVariable, err)
		}
	}
	t.Log("to repeat: " + Repeat(t, seed)) // go test shows it if the test fails
	return seed
}

// Repeat is the command that runs the test with a seed, with the same effort.
func Repeat(t testing.TB, seed uint64) string {
	parts := strings.Split(t.Name(), "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	race := ""
	if raced {
		race = "-race "
	}
	return fmt.Sprintf("cd %s && %s=%s %s=%d go test %s-count=1 -timeout 0 -run %s .", quote(folder), effortVariable, efforts[chosen()], seedVariable, seed, race, quote(strings.Join(parts, "/")))
}

// quote quotes a word for the shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
