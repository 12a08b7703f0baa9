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

// signatureSize is the size in bytes of the signature in PATH.lock: the last holder's pid
// and program name, padded with blanks.
const signatureSize = 64

// signature is the signature of this process.
func signature() []byte {
	text := fmt.Sprintf("%d %s", os.Getpid(), strings.ToValidUTF8(filepath.Base(os.Args[0]), "?"))
	line := bytes.Repeat([]byte(" "), signatureSize)
	copy(line, strings.ToValidUTF8(text[:min(len(text), signatureSize-1)], ""))
	line[signatureSize-1] = '\n'
	return line
}

// sign writes this process's signature to the lock's file. The process holds the lock even
// if that fails.
func (l *fileLock) sign() {
	was := make([]byte, signatureSize)
	if n, _ := l.lock.ReadAt(was, 0); !bytes.Equal(was[:n], l.name) {
		_, _ = l.lock.WriteAt(l.name, 0)
	}
}

// holder says which other process has the lock, if /proc/locks lists it, and what to do.
// Otherwise it names the process that signed last, if that is alive, else it is empty.
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

// lockReads is how often flockedBy reads /proc/locks before it gives up. The kernel writes
// that file page by page, and skips a line if an earlier lock goes away meanwhile.
const lockReads = 5

// flockedBy is the pid of the process that has the lock, or 0 if /proc/locks does not list
// it. A line is "1: FLOCK ADVISORY WRITE pid device:inode 0 EOF"; for a waiting process it
// has an arrow before FLOCK. The device may differ from stat's.
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

// isStopped reports whether a process is stopped (SIGSTOP); false without /proc.
func isStopped(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := bytes.Cut(stat, []byte(") ")) // the end of the name, which may contain blanks
	return bytes.HasPrefix(after, []byte("T"))
}

// heldError says that the lock did not become free in time.
type heldError struct {
	by    string // the result of holder
	cause error  // the context's
}

func (e *heldError) Error() string {
	if e.by == "" {
		return e.cause.Error()
	}
	return "the lock, " + e.by + ": " + e.cause.Error()
}

func (e *heldError) Unwrap() error { return e.cause }
