package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// ErrInterrupted is why a context ends at the second signal.
var ErrInterrupted = errors.New("interrupted: the second signal stops at once")

// Stages listens for SIGTERM and Ctrl-C: the first calls stopping and closes drain,
// the second ends the context. done stops listening and is to be called at the end.
// From now on a stdout or stderr that nobody reads is an error of writing, not the
// end of the process: Ctrl-C stops the reader of a pipe first, and pages are
// still under way.
func Stages(parent context.Context, log *slog.Logger, stopping func()) (ctx context.Context, drain <-chan struct{}, done func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// Caught and dropped rather than ignored, which programs started from here
	// would inherit; and to the end, since the last words may go to that pipe.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(parent)
	told := make(chan struct{})
	var listener sync.WaitGroup
	listener.Go(func() {
		for _, act := range []func(){
			func() {
				log.Info("stop signal received: pages under way finish, no other page starts")
				stopping()
				close(told)
			},
			func() {
				cancel(ErrInterrupted)
			},
		} {
			select {
			case <-signals:
				act()
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, told, func() {
		signal.Stop(signals)
		cancel(nil)
		listener.Wait()
	}
}

// Hangups are the signals that ask for a reload. They end the process no more, which
// is all that they come to where there is nothing to be reloaded: a pass that was
// started from a terminal outlives it.
func Hangups(reloads bool) <-chan os.Signal {
	asked := make(chan os.Signal, 1)
	// What nohup has ignored stays so for a pass and its commands; a daemon hears of it.
	if reloads || !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(asked, syscall.SIGHUP)
	}
	return asked
}
