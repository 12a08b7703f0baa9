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

// AsFirstProcess does what a container's first process must do, where this is
// one, and tells the exit code once the program itself, its child, has ended.
//
// Whoever loses its parent becomes the first process's child, and stays a zombie
// until that reaps it. The program cannot do so itself: a wait for any child would
// take the ends of the commands that it waits for by name.
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

// handedOn are the signals that people and supervisors send. Those of the
// terminal's job control and those of faults are not among them.
var handedOn = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGCONT, syscall.SIGWINCH,
}

// Supervise starts a program as a child, hands signals on to it and reaps
// every child there is until that one has ended. The exit code is the program's,
// or 128 and the number of the signal that ended it. Nothing else in this process
// may start or wait for a child.
func Supervise(path string, args []string, stderr io.Writer) (code int) {
	signals := make(chan os.Signal, 2*len(handedOn))
	signal.Notify(signals, handedOn...) // before the start: none is lost
	// In a group of its own: a terminal's Ctrl-C goes to the group that is in
	// its foreground, and would else come twice, handed on from here too.
	program, err := syscall.ForkExec(path, args, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return cannotStart(stderr, err)
	}
	giveTerminal(program)
	go func() {
		for s := range signals {
			// Not reaped yet or gone for good, as then this process ends too.
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

// giveTerminal puts the program's group into the foreground of the terminal where
// this process is in it now: a Ctrl-C then reaches the program, and only once.
func giveTerminal(program int) {
	group, err := unix.IoctlGetInt(unix.Stdin, unix.TIOCGPGRP)
	if err == nil && group == unix.Getpgrp() {
		// Without it the Ctrl-C comes here and is handed on.
		_ = unix.IoctlSetPointerInt(unix.Stdin, unix.TIOCSPGRP, program)
	}
}

// cannotStart says why there is no program and returns the exit code.
func cannotStart(stderr io.Writer, err error) int {
	_, _ = fmt.Fprintf(stderr, "quotactl: start the program from process 1: %v; is /proc mounted, and may this file be run?\n", err)
	return 1
}
