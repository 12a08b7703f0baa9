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

// ErrInterrupted is the cause of a context that the second signal has ended.
var ErrInterrupted = errors.New("interrupted: the second signal stops at once")

// brokenPipes takes every SIGPIPE from the first Stages on, and nobody reads it. It is made at the
// start since it outlives each caller: a test in fake time, for one, owns what it makes.
var brokenPipes = make(chan os.Signal, 1)

// Stages handles SIGTERM and Ctrl-C: the first signal calls stopping and closes drain, the
// second ends the context. Call done at the end; it stops the handling.
//
// From now on, writing to a stdout or stderr that nobody reads returns an error and does
// not end the process: Ctrl-C ends the reader of a pipe first, while pages are still under
// way.
func Stages(parent context.Context, log *slog.Logger, stopping func()) (ctx context.Context, drain <-chan struct{}, done func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// Catch and drop SIGPIPE rather than ignore it, because child processes would inherit
	// that. Keep it caught to the end, since the last output may go to that pipe.
	signal.Notify(brokenPipes, syscall.SIGPIPE)
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

// Hangups returns the signals that ask for a reload (SIGHUP). From now on SIGHUP no longer
// ends the process. That is its only effect when reloads is false: a pass started from a
// terminal then outlives the terminal.
func Hangups(reloads bool) <-chan os.Signal {
	asked := make(chan os.Signal, 1)
	// If nohup has set SIGHUP to be ignored, a pass and its commands keep ignoring it. A
	// daemon catches it all the same.
	if reloads || !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(asked, syscall.SIGHUP)
	}
	return asked
}
