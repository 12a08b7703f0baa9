package jobs

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"github.com/quotactl/quotactl/internal/proc"
)

// exitExhausted is the exit code with which a command says that its budget is exhausted.
const exitExhausted = 75

// watch waits until the command exits. It stops the command when the run's time is over
// (which ends ctx) or when the pass is to stop.
func (r *run) watch(ctx context.Context, g *proc.Group) *ending {
	ctx, cancel := either(ctx, r.soft)
	defer cancel()
	select {
	case <-g.Exited():
	case <-ctx.Done():
	}
	select {
	case <-g.Exited(): // it exited by itself, even if at the last moment
	default:
		end := cut(ctx)
		g.Stop(r.job.Grace, r.hard.Done())
		_ = g.Wait() // we ended it: its exit status says nothing more
		return end
	}
	g.Release(r.hard.Done())
	end := exitEnding(g.Wait())
	if end != nil && end.retry && r.job.Retries > 0 {
		// No process of it may run beside the next attempt. If one is left, it
		// keeps the group's number from being reused.
		g.Kill()
	}
	return end
}

// exitEnding translates an exit into an ending.
func exitEnding(err error) *ending {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return failed(ReasonCommand, fmt.Errorf("wait for the command: %w", err))
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		end := failed("signal "+status.Signal().String(), fmt.Errorf("the command was ended by signal %s", status.Signal()))
		end.retry = true
		return end
	case exit.ExitCode() == exitExhausted:
		return &ending{outcome: Exhausted, reason: fmt.Sprintf("exit %d", exitExhausted)}
	}
	end := failed(fmt.Sprintf("exit %d", exit.ExitCode()), fmt.Errorf("the command ended with exit code %d", exit.ExitCode()))
	end.retry = true
	return end
}
