package jobs

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"github.com/quotactl/quotactl/internal/proc"
)

// exitExhausted is the exit code by which a command says that the units are
// gone.
const exitExhausted = 75

// watch waits for the command's end, or brings it about when the run's time is
// over, which ends ctx, or the pass is to stop.
func (r *run) watch(ctx context.Context, g *proc.Group) *ending {
	ctx, cancel := either(ctx, r.soft)
	defer cancel()
	select {
	case <-g.Exited():
	case <-ctx.Done():
	}
	select {
	case <-g.Exited(): // by itself, be it at the last moment
	default:
		end := cut(ctx)
		g.Stop(r.job.Grace, r.hard.Done())
		_ = g.Wait() // what it was ended by is known
		return end
	}
	g.Release(r.hard.Done())
	end := exitEnding(g.Wait())
	if end != nil && end.retry && r.job.Retries > 0 {
		// Nothing of it is to run beside the next try. Where there is anything, it
		// holds the group's number.
		g.Kill()
	}
	return end
}

// exitEnding is what an exit stands for.
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
