package proc

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	killEvery = 20 * time.Millisecond // a process that was started between two kills gets the next
	killWait  = 5 * time.Second       // for descendants of another user, and those that hang in the kernel
)

// foreground is a running [Foreground]. One goroutine has it: a child's number stays its own
// until that goroutine reaps the child.
type foreground struct {
	*Foreground
	command                      *os.Process
	signals, children, continued chan os.Signal
	stop, done                   <-chan struct{}
	stopping                     bool
	ended                        bool // the command is reaped, with code
	code                         int
	left                         bool      // after that a signal ended the wait for descendants
	childless                    bool      // no child is left, and so no descendant
	died                         time.Time // when a child was last reaped
}

// receive makes a channel for signals. The function that it returns ends that.
func (c *foreground) receive(to *chan os.Signal, signals ...os.Signal) (end func()) {
	*to = make(chan os.Signal, len(signals))
	signal.Notify(*to, signals...)
	return func() { signal.Stop(*to) }
}

// next handles one event. over means that it was a reason to stop, or the timer.
func (c *foreground) next(timer <-chan time.Time) (over bool) {
	select {
	case <-c.children:
		c.reap(false)
		return false
	case <-c.continued:
		c.reap(true)
		return false
	case s := <-c.signals:
		c.pass(s)
		return false
	case <-timer:
		return true
	case <-c.stop:
	case <-c.done:
	}
	c.stopping, c.stop, c.done = true, nil, nil
	return true
}

// reap reaps the children that have ended. If the command has stopped, it stops this process.
// After that, or if resume is set, it continues the command, unless that has stopped again.
func (c *foreground) reap(resume bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case pid <= 0:
			if c.childless = err != nil; resume && !c.ended { // ECHILD
				_ = c.command.Signal(syscall.SIGCONT) // or it has ended
			}
			return
		case pid != c.command.Pid || c.ended: // an orphan, which may have the command's number by now
		case !status.Stopped():
			c.ended, c.code = true, status.ExitStatus()
			if status.Signaled() {
				c.code = 128 + int(status.Signal())
			}
		case status.StopSignal() != syscall.SIGSTOP || inForeground():
			// A program that catches TSTP stops itself by STOP. Without a shell that waits for
			// the job, a person stopped the command alone, and will continue it alone.
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			<-c.continued
			resume = true
		}
		c.died = time.Now()
	}
}

// pass passes a signal on unless the command has it from the terminal. After the command's
// end the signal is for this process.
func (c *foreground) pass(s os.Signal) {
	switch {
	case c.ended && s == syscall.SIGTSTP:
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case c.ended:
		c.left = c.left || s != syscall.SIGUSR1 && s != syscall.SIGUSR2
	case s == syscall.SIGTSTP: // passed on, it could arrive after CONT
	case s != os.Interrupt && s != syscall.SIGQUIT || !inForeground():
		_ = c.command.Signal(s) // the command may have ended, or have become another user's
	}
}

// linger waits for descendants after the command's end.
func (c *foreground) linger() {
	n, _ := signalDescendants(0)
	if c.reap(false); c.childless {
		return
	}
	if c.Lives != nil {
		c.Lives(max(n, 1))
	}
	for timer := time.After(c.Linger); !c.childless && !c.left && !c.next(timer); {
	}
}

// end ends the command and its descendants. It waits for the command without limit.
func (c *foreground) end() {
	c.signalAll(syscall.SIGTERM)
	for timer := time.After(c.Grace); !c.childless && !c.next(timer); {
	}
	if c.childless {
		return
	}
	c.Log.Warn("command killed: it, or something it started, had not ended within its grace", "grace", c.Grace)
	for c.died = time.Now(); !c.childless && (!c.ended || time.Since(c.died) <= killWait); {
		c.signalAll(syscall.SIGKILL)
		c.next(time.After(killEvery))
	}
	if !c.childless {
		c.Log.Warn("processes that the command started could not be killed and are left")
	}
}

// signalAll signals the command and its descendants; where they cannot be found, the command.
func (c *foreground) signalAll(s syscall.Signal) {
	if _, err := signalDescendants(s); err != nil {
		c.Log.Warn("the command alone is signalled, not what it started", "signal", s.String(), "error", err)
		c.pass(s)
		c.reap(true) // a stopped command would not notice
	}
}

// inForeground says whether a key typed in a terminal signals this process's group.
func inForeground() bool {
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer func() { _ = terminal.Close() }()
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
