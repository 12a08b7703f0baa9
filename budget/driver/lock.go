package driver

import (
	"strconv"
	"strings"
)

// fencePrefix begins the names of the locks that are fences. No limit's does.
const fencePrefix = "~"

// FenceName is the lock that shuts out a pass's number; empty for none.
func FenceName(job string, number int64) string {
	if number == 0 {
		return ""
	}
	return fencePrefix + job + "/" + strconv.FormatInt(number, 10)
}

// IsFence reports whether a lock of this name is a fence.
func IsFence(name string) bool { return strings.HasPrefix(name, fencePrefix) }

// MaxLock is the longest that anything is locked, in µs.
const MaxLock int64 = 366 * 24 * 3_600_000_000

// Lock asks a store for a lock.
type Lock struct {
	Budget string
	Now    int64  // the caller's wall clock in µs, a witness
	Limit  string // its name, or a fence's; empty: the whole budget
	// Until is its end in µs; where it is 0 the end is After µs past the later of
	// the clocks. It is at most Most µs past that, 1 to MaxLock.
	Until int64
	After int64
	Most  int64
	Why   string // printable ASCII, at most 200 bytes
	// Force: it takes the place of one that stands.
	Force bool
}

// Locked is the answer to a LockRequest: the lock that stands now. Until is 0 when
// none does, since the end that was asked for has passed.
type Locked struct {
	Now   int64 // the clock that frees, not clamped
	Until int64
	Since int64
	Why   string
	Stood bool // it stood before
}

// Unlock asks a store to end a lock.
type Unlock struct {
	Budget string
	Now    int64  // as in LockRequest
	Limit  string // as in LockRequest
}

// Unlocked is the answer to an Unlock.
type Unlocked struct {
	Stood bool // a lock stood, and is ended
}

// LockView is a lock that stands.
type LockView struct {
	Limit string // empty: the whole budget
	Until int64  // µs
	Since int64  // µs
	Why   string
}
