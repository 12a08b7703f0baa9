package sqlitestore

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootID identifies the current boot.
func bootID() (string, error) { return unix.Sysctl("kern.bootsessionuuid") }

// bootClock is the time since the boot in µs, time asleep included.
func bootClock() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts); err != nil {
		return 0, err
	}
	return ts.Nano() / int64(time.Microsecond), nil
}
