package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// AsFirstProcess does the work of a container's first process, if this process is one. It
// starts the program itself as a child, and returns the exit code once that has ended.
//
// A process that loses its parent becomes a child of the first process, and stays a zombie
// until the first process reaps it. The program cannot do that itself: waiting for any
// child would also collect the commands that it waits for one by one.
func AsFirstProcess() (code int, first bool) {
	if os.Getpid() != 1 {
		return 0, false
	}
	path, err := os.Executable()
	if err != nil {
		return cannotStart(os.Stderr, err), true
	}
	return Supervise(path, os.Args, os.Stderr), true
}

// handedOn are the signals that people and supervisors send. It leaves out those of the
// terminal's job control and those of faults.
var handedOn = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGCONT, syscall.SIGWINCH,
}

// Supervise starts a program as a child, passes signals on to it, and reaps every child
// until the program has ended. The exit code is the program's, or 128 plus the number of
// the signal that ended it. Nothing else in this process may start or wait for a child.
func Supervise(path string, args []string, stderr io.Writer) (code int) {
	signals := make(chan os.Signal, 2*len(handedOn))
	signal.Notify(signals, handedOn...) // before the start, so that no signal is lost
	// Start it in a process group of its own. A terminal sends Ctrl-C to its foreground
	// group; in one group the program would get it twice, once from here.
	program, err := syscall.ForkExec(path, args, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return cannotStart(stderr, err)
	}
	giveTerminal(program)
	go func() {
		for s := range signals {
			// The program's id is still right: once it is reaped, this process ends too.
			_ = syscall.Kill(program, s.(syscall.Signal))
		}
	}()
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			_, _ = fmt.Fprintf(stderr, "quotactl: wait for the program as process 1: %v\n", err)
			return 1
		case ended == program && status.Signaled():
			return 128 + int(status.Signal())
		case ended == program && status.Exited():
			return status.ExitStatus()
		}
	}
}

// giveTerminal puts the program's group into the foreground of the terminal, if this
// process is there now. A Ctrl-C then reaches the program, and only once.
func giveTerminal(program int) {
	group, err := unix.IoctlGetInt(unix.Stdin, unix.TIOCGPGRP)
	if err == nil && group == unix.Getpgrp() {
		// If this fails, the Ctrl-C arrives here and is passed on.
		_ = unix.IoctlSetPointerInt(unix.Stdin, unix.TIOCSPGRP, program)
	}
}

// cannotStart prints why the program did not start, and returns the exit code.
func cannotStart(stderr io.Writer, err error) int {
	_, _ = fmt.Fprintf(stderr, "quotactl: start the program from process 1: %v; is /proc mounted, and may this file be run?\n", err)
	return 1
}
