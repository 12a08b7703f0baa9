package sqlitestore

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootID identifies the current boot.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// bootClock is the time since the boot in µs, time asleep included.
func bootClock() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, err
	}
	return ts.Nano() / int64(time.Microsecond), nil
}
