package proc

import "syscall"

// AwaitExit waits until a child has ended, without reaping it. After an error it may not
// have ended.
func AwaitExit(pid int) error {
	const byPID = 1 // P_PID
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), 0, syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return errno
		}
	}
}
