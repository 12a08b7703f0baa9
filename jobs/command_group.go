package jobs

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/quotactl/quotactl/internal/proc"
)

// exitExhausted is the exit code by which a command says that the units are
// gone.
const exitExhausted = 75

// pipeWait is how long the output of a command that has ended is waited for
// when something that it started still holds it.
const pipeWait = 2 * time.Second

// await notes the command's end. Where the system lets us it is not reaped yet:
// until then no other process can have its number, nor another group.
func (c *command) await() {
	if proc.AwaitExit(c.cmd.Process.Pid) != nil {
		_ = c.reap() // told again to whom it concerns
	}
	close(c.exited)
	c.output.Wait()
	close(c.gone)
}

// watch waits for the command's end, or brings it about when the run's time is
// over, which ctx tells, or the pass is to stop.
func (p *pass) watch(ctx context.Context, c *command) *ending {
	defer c.closePipes()
	var end *ending
	select {
	case <-c.exited:
	case <-ctx.Done():
		end = cut(ctx)
	case <-p.soft.Done():
		end = cut(p.soft)
	}
	select {
	case <-c.exited: // by itself, be it at the last moment
		p.release(c)
		end := exitEnding(c.reap())
		if end != nil && end.retry && p.job.Retries > 0 {
			// Nothing of it is to run beside the next try. Where there is anything, it
			// holds the group's number.
			c.signal(syscall.SIGKILL)
		}
		return end
	default:
	}
	p.stop(c)
	_ = c.reap() // what it was ended by is known
	return end
}

// stop tells the group to end and kills, the job's grace later or at once when
// the pass is cut, what of it is left: the command, what it started, or both.
func (p *pass) stop(c *command) {
	c.log.Debug("command told to end")
	c.signal(syscall.SIGTERM)
	grace := time.NewTimer(p.job.Grace)
	defer grace.Stop()
	select {
	case <-c.gone:
	case <-grace.C:
		c.log.Warn("command killed: it, or something it started, had not ended within its grace", "grace", p.job.Grace)
	case <-p.hard.Done():
		c.log.Warn("command killed: it, or something it started, had not ended when the pass was cut")
	}
	c.signal(syscall.SIGKILL)
	<-c.exited
	c.lastLines()
}

// release lets a command that has ended go, once its output has ended. What it
// has left behind in its group and holds the output is killed; what holds no
// output is left alone.
func (p *pass) release(c *command) {
	timer := time.NewTimer(pipeWait)
	defer timer.Stop()
	select {
	case <-c.gone:
		return
	case <-timer.C:
	case <-p.hard.Done():
	}
	c.log.Warn("command ended, but something it started still held its output and was killed")
	c.signal(syscall.SIGKILL)
	c.lastLines()
}

// lastLines waits for what a group that was killed had written. What has left
// the group, and holds the output still, is not heard any more.
func (c *command) lastLines() {
	timer := time.NewTimer(pipeWait)
	defer timer.Stop()
	select {
	case <-c.gone:
		return
	case <-timer.C:
	}
	c.log.Warn("something the command started has left its process group and holds its output; it is not heard any more")
	c.closePipes()
	<-c.gone
}

// signal sends a signal to the whole group. One that is gone needs none.
func (c *command) signal(s syscall.Signal) {
	if err := syscall.Kill(-c.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		c.log.Error("the command's process group was not signalled", "signal", s.String(), "error", err)
	}
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
