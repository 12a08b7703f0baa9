package sqlitestore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// signatureSize is the size of a signature in PATH.lock, in bytes: the pid and the
// program's name of the last holder, filled up with blanks.
const signatureSize = 64

// signature is this process's.
func signature() []byte {
	text := fmt.Sprintf("%d %s", os.Getpid(), strings.ToValidUTF8(filepath.Base(os.Args[0]), "?"))
	line := bytes.Repeat([]byte(" "), signatureSize)
	copy(line, strings.ToValidUTF8(text[:min(len(text), signatureSize-1)], ""))
	line[signatureSize-1] = '\n'
	return line
}

// sign writes this process's signature to the lock's file. If it cannot, the file
// names nobody; the lock is held all the same.
func (l *fileLock) sign() {
	was := make([]byte, signatureSize)
	if n, _ := l.lock.ReadAt(was, 0); !bytes.Equal(was[:n], l.name) {
		_, _ = l.lock.WriteAt(l.name, 0)
	}
}

// holder says which other process has the lock, as Linux knows it, and what to do; else
// which living one signed last; else nothing.
func (l *fileLock) holder() string {
	if pid := l.flockedBy(); pid > 0 {
		program, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		switch {
		case pid == os.Getpid():
			return ""
		case isStopped(pid):
			return fmt.Sprintf("which the stopped process %d (%s) has: resume it (kill -CONT %d) or end it", pid, bytes.TrimSpace(program), pid)
		}
		return fmt.Sprintf("which process %d (%s) has: try again, or end it if it hangs", pid, bytes.TrimSpace(program))
	}
	was := make([]byte, signatureSize)
	n, _ := l.lock.ReadAt(was, 0)
	number, program, _ := strings.Cut(strings.TrimSpace(string(was[:n])), " ")
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 0 || pid == os.Getpid() || errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return ""
	}
	return fmt.Sprintf("which process %d (%s) had last: is it stopped?", pid, program)
}

// lockReads is how often /proc/locks is read before a lock is held to be nobody's: it is
// told page by page, and a line is left out when an earlier one goes meanwhile.
const lockReads = 5

// flockedBy is the pid of the process that has the lock, where /proc/locks lists it,
// else 0. A line is "1: FLOCK ADVISORY WRITE pid device:inode 0 EOF", and has an arrow
// before FLOCK for those that wait. The device may be another than stat's.
func (l *fileLock) flockedBy() int {
	var file unix.Stat_t
	if unix.Fstat(int(l.lock.Fd()), &file) != nil {
		return 0
	}
	inode := fmt.Sprintf(":%d", file.Ino)
	for range lockReads {
		list, _ := os.ReadFile("/proc/locks")
		for line := range strings.Lines(string(list)) {
			f := strings.Fields(line)
			if len(f) > 5 && f[1] == "FLOCK" && f[3] == "WRITE" && strings.HasSuffix(f[5], inode) {
				pid, _ := strconv.Atoi(f[4])
				return pid
			}
		}
	}
	return 0
}

// isStopped reports whether a process was stopped (SIGSTOP), where /proc tells.
func isStopped(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := bytes.Cut(stat, []byte(") ")) // of the name, which may hold blanks
	return bytes.HasPrefix(after, []byte("T"))
}

// heldError says that the lock did not become free in time.
type heldError struct {
	by    string // what holder says
	cause error  // the context's
}

func (e *heldError) Error() string {
	if e.by == "" {
		return e.cause.Error()
	}
	return "the lock, " + e.by + ": " + e.cause.Error()
}

func (e *heldError) Unwrap() error { return e.cause }
