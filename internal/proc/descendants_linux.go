package proc

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Undumpable keeps other processes of the same user from reading this one's memory, and the
// system from writing it to a core file. It does not hold for the commands that it starts.
func Undumpable() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// adoptOrphans makes this process the parent of every descendant whose parent ends.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// process is a process as /proc describes it.
type process struct {
	pid          string
	state, began string
}

// signalDescendants signals all descendants, and continues those that are stopped. It returns
// the number of those that are alive; with signal 0 it only counts. It skips processes that
// this one may not signal.
func signalDescendants(s syscall.Signal) (living int, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return 0, err
	}
	defer func() { _ = proc.Close() }()
	names, err := proc.Readdirnames(-1)
	children := map[string][]process{}
	for _, name := range slices.Backward(names) { // the newest first, before they start others
		if p, parent := readProcess(name); parent != "" {
			children[parent] = append(children[parent], p)
		}
	}
	found := children[strconv.Itoa(os.Getpid())]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
		if found[i].state != "Z" {
			living++
			found[i].signal(s)
		}
	}
	return living, err
}

// signal signals the process unless another one has its number by now.
func (p process) signal(s syscall.Signal) {
	pid, _ := strconv.Atoi(p.pid)
	held, _ := os.FindProcess(pid) // which always succeeds, and holds the process itself
	defer func() { _ = held.Release() }()
	if now, _ := readProcess(p.pid); s != 0 && now.began == p.began {
		_ = held.Signal(s)
		if now.state == "T" {
			_ = held.Signal(syscall.SIGCONT)
		}
	}
}

// readProcess describes a process, if there is one of this name in /proc. See proc_pid_stat(5).
func readProcess(pid string) (p process, parent string) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	// "pid (name) state parent …": the name may hold anything.
	if fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]); err == nil && len(fields) > 19 {
		return process{pid: pid, state: string(fields[0]), began: string(fields[19])}, string(fields[1])
	}
	return process{}, ""
}
