package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// stages listens for SIGTERM and Ctrl-C: the first closes drain, the second
// ends the context. done stops listening and is to be called at the end.
func stages(parent context.Context, log *slog.Logger) (ctx context.Context, drain <-chan struct{}, done func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(parent)
	told := make(chan struct{})
	var listener sync.WaitGroup
	listener.Go(func() {
		for _, act := range []func(){
			func() {
				log.Info("told to stop: pages under way are finished, no other is started")
				close(told)
			},
			func() {
				cancel(&exitError{code: exitInterrupted, err: errors.New("interrupted: the second signal stops at once")})
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
