//go:build !linux

package proc

import (
	"errors"
	"syscall"
	"time"
)

// RunsFor reports whether a process of this machine exists. For how long it has run is not known.
func RunsFor(pid int) (age time.Duration, exists bool) {
	return 0, !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
