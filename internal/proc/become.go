package proc

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Interruptibly calls do with a context that a signal ends. ended says that a signal
// came, even if it came too late to end do. Later signals are left to the caller.
func Interruptibly(ctx context.Context, do func(context.Context) error) (ended, err error) {
	late := make(chan os.Signal, 1) // receives a signal that comes too late for the context
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

// Ending are the signals that end a command before it has started; those that are
// ignored, for example by nohup, are excluded.
func Ending() []os.Signal {
	return slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, signal.Ignored)
}

// Become replaces this process by a command; it returns only if that fails. A file
// without an interpreter line is run by the shell, as usual.
func Become(path string, command []string) error {
	err := syscall.Exec(path, command, os.Environ())
	if errors.Is(err, syscall.ENOEXEC) {
		err = syscall.Exec("/bin/sh", append([]string{"sh", path}, command[1:]...), os.Environ())
	}
	return err
}
