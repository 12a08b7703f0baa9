package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is in what Linux counts the times of processes, on every architecture.
const ticksPerSecond = 100

// RunsFor reports whether a process of this machine exists, and for how long it has run; 0: that is
// not known.
func RunsFor(pid int) (age time.Duration, exists bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // from the third on; see proc_pid_stat(5)
	var boot unix.Timespec
	if len(fields) < 20 || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0, true
	}
	begun, err := strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return 0, true
	}
	return max(1, time.Duration(boot.Nano())-time.Duration(begun)*time.Second/ticksPerSecond), true
}
