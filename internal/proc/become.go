package proc

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Interruptibly does something whose context a signal ends. That one came is the first
// error, also where it came too late to end anything; those that come after that are
// whoever's is next.
func Interruptibly(ctx context.Context, do func(context.Context) error) (ended, err error) {
	late := make(chan os.Signal, 1) // has what the context is not told in time
	signal.Notify(late, Ending()...)
	interruptible, stop := signal.NotifyContext(ctx, Ending()...)
	err = do(interruptible)
	ended = interruptible.Err()
	stop()
	signal.Stop(late)
	if len(late) > 0 {
		ended = context.Canceled
	}
	return ended, err
}

// Ending are the signals that end a command which has not started: those that nobody
// has had ignored, as nohup has.
func Ending() []os.Signal {
	return slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, signal.Ignored)
}

// Become replaces this process by a command; it returns only when that fails. A file
// that names no interpreter is the shell's, as everywhere.
func Become(path string, command []string) error {
	err := syscall.Exec(path, command, os.Environ())
	if errors.Is(err, syscall.ENOEXEC) {
		err = syscall.Exec("/bin/sh", append([]string{"sh", path}, command[1:]...), os.Environ())
	}
	return err
}
