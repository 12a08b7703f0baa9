package driver

import (
	"strconv"
	"strings"
)

// fencePrefix begins the names of the locks that are fences. No limit's name begins
// with it.
const fencePrefix = "~"

// FenceName is the name of the lock that fences off a pass, by its number; empty for
// number 0.
func FenceName(job string, number int64) string {
	if number == 0 {
		return ""
	}
	return fencePrefix + job + "/" + strconv.FormatInt(number, 10)
}

// IsFence reports whether a lock of this name is a fence.
func IsFence(name string) bool { return strings.HasPrefix(name, fencePrefix) }

// MaxLock is the longest lock, in µs.
const MaxLock int64 = 366 * 24 * 3_600_000_000

// Lock closes a budget, or one limit of it, until an instant. An existing lock is extended
// if the new end is later, and replaced if Force is set and the new end lies ahead; else it
// stays unchanged. The answer is [Locked].
type Lock struct {
	Budget string
	Now    int64  // the caller's wall clock in µs, a witness
	Limit  string // a limit's name, or a fence's; empty: the whole budget
	// Until is its end in µs; 0: After µs past the later clock. It ends at most Most µs,
	// 1 to MaxLock, past the later clock.
	Until int64
	After int64
	Most  int64
	Why   string // printable ASCII, at most 200 bytes
	Force bool   // replace an existing lock
}

// Locked is the lock that holds now. Until is 0 if no lock holds and the requested end
// has passed.
type Locked struct {
	Now   int64 // the earlier clock
	Until int64 // µs
	Since int64 // µs; an extended lock keeps it
	Why   string
	Stood bool // it existed before, and is unchanged
}

// Unlock ends a lock. The answer is [Unlocked].
type Unlock struct {
	Budget string
	Now    int64  // as in Lock
	Limit  string // as in Lock
}

// Unlocked is the answer to an Unlock.
type Unlocked struct {
	Stood bool // a lock held until now
}

// LockView is a lock that holds.
type LockView struct {
	Limit string // empty: the whole budget
	Until int64  // µs
	Since int64  // µs
	Why   string
}
