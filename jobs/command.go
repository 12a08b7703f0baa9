package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// exitExhausted is the exit code by which a command says that the units are
// gone.
const exitExhausted = 75

// pipeWait is how long the output of a command that has ended is waited for
// when something that it started still holds it.
const pipeWait = 2 * time.Second

// runCommand runs a command for one region. Nil means that it ended with exit
// code 0.
func (p *pass) runCommand(run *Run) *ending {
	label := p.job.runLabel(p.tick, run.Region)
	log := p.log.With("region", run.Region, "run", label)
	began := time.Now()
	c, err := p.start(run.Region, label, log)
	if err != nil {
		return failed(ReasonCommand, fmt.Errorf("start the command: %w; is it there and may it be run?", err))
	}
	end := p.watch(c)
	run.Units, run.Calls = p.spentBy(label, time.Since(began), log)
	return end
}

// command is a command under way, and all that it started and that stayed in
// its process group.
type command struct {
	cmd    *exec.Cmd
	log    *slog.Logger
	exited chan struct{} // closed when err is known
	err    error
	output sync.WaitGroup
	pipes  []*os.File // our ends
}

// start starts the command in a process group of its own.
func (p *pass) start(region, label string, log *slog.Logger) (*command, error) {
	args := make([]string, len(p.job.Command))
	for i, word := range p.job.Command {
		args[i] = p.job.expand(word, p.tick, region)
	}
	environ, err := p.environ(region, label)
	if err != nil {
		return nil, err
	}
	c := &command{cmd: exec.Command(args[0], args[1:]...), log: log, exited: make(chan struct{})} //nolint:gosec,noctx // the configuration's own command; it is ended by its group
	c.cmd.Dir, c.cmd.Env = filepath.Dir(p.job.config), environ
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var theirs []io.Closer
	secret := p.job.knownSecret(p.options.Env)
	show := func(text string) string { return p.hide(text, secret) }
	for _, stream := range []struct {
		name string
		to   *io.Writer
	}{{"stdout", &c.cmd.Stdout}, {"stderr", &c.cmd.Stderr}} {
		read, write, err := os.Pipe()
		if err != nil {
			c.closePipes()
			closeAll(theirs)
			return nil, err
		}
		c.pipes, theirs = append(c.pipes, read), append(theirs, write)
		*stream.to = write
		c.output.Go(func() { logLines(read, log.With("stream", stream.name), show) })
	}
	err = c.cmd.Start()
	closeAll(theirs)
	if err != nil {
		c.output.Wait()
		c.closePipes()
		return nil, err
	}
	log.Debug("command started", "pid", c.cmd.Process.Pid)
	go func() {
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

func closeAll(files []io.Closer) {
	for _, file := range files {
		_ = file.Close() // the other side's copy is open still, or is not wanted
	}
}

func (c *command) closePipes() {
	for _, pipe := range c.pipes {
		_ = pipe.Close() // only read from
	}
}

// environ is what a command finds in its environment.
func (p *pass) environ(region, label string) ([]string, error) {
	config, err := filepath.Abs(p.job.config)
	if err != nil {
		return nil, err
	}
	list := append(os.Environ(),
		"QUOTACTL_CONFIG="+config, "QUOTACTL_BUDGET="+p.job.Budget, "QUOTACTL_JOB="+p.job.Name,
		"QUOTACTL_REGION="+region, "QUOTACTL_RUN="+label, "QUOTACTL_TICK="+p.tick.UTC().Format(TickFormat))
	if p.options.StoreURL != "" {
		list = append(list, "QUOTACTL_STORE="+p.options.StoreURL)
	}
	return list, nil
}

// signal sends a signal to the whole group. One that is gone needs none.
func (c *command) signal(s syscall.Signal) {
	if err := syscall.Kill(-c.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		c.log.Error("the command's process group was not signalled", "signal", s.String(), "error", err)
	}
}

// watch waits for the command's end, or brings it about: SIGTERM to its group
// when the run's time is over or the pass is to stop, and SIGKILL the job's grace
// later, or at once when the pass is cut.
func (p *pass) watch(c *command) *ending {
	defer c.closePipes()
	timer := time.NewTimer(p.job.Timeout)
	defer timer.Stop()
	var ended *ending
	select {
	case <-c.exited:
	case <-timer.C:
		ended = &ending{TimedOut, ReasonTimeout, errTimedOut}
	case <-p.soft.Done():
		ended = cut(p.soft)
	}
	if ended != nil {
		p.stop(c)
	}
	p.drainOutput(c)
	if ended != nil {
		return ended
	}
	return exitEnding(c.err)
}

// stop ends a command that has not ended.
func (p *pass) stop(c *command) {
	c.log.Debug("command told to end")
	c.signal(syscall.SIGTERM)
	grace := time.NewTimer(p.job.Grace)
	defer grace.Stop()
	select {
	case <-c.exited:
		return
	case <-grace.C:
	case <-p.hard.Done():
	}
	c.log.Warn("command killed: it had not ended within its grace", "grace", p.job.Grace)
	c.signal(syscall.SIGKILL)
	<-c.exited
}

// drainOutput waits for the last lines. What the command has left behind in its
// group and holds its output is killed.
func (p *pass) drainOutput(c *command) {
	read := make(chan struct{})
	go func() {
		c.output.Wait()
		close(read)
	}()
	timer := time.NewTimer(pipeWait)
	defer timer.Stop()
	select {
	case <-read:
		return
	case <-timer.C:
	case <-p.hard.Done():
	}
	c.log.Warn("command ended, but something it started still held its output and was killed")
	c.signal(syscall.SIGKILL)
	c.closePipes()
	<-read
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
		return failed("signal "+status.Signal().String(), fmt.Errorf("the command was ended by signal %s", status.Signal()))
	case exit.ExitCode() == exitExhausted:
		return &ending{Exhausted, fmt.Sprintf("exit %d", exitExhausted), nil}
	}
	return failed(fmt.Sprintf("exit %d", exit.ExitCode()), fmt.Errorf("the command ended with exit code %d", exit.ExitCode()))
}

// spentBy is what the ledger says that a run spent; 0 where it does not say.
func (p *pass) spentBy(label string, ran time.Duration, log *slog.Logger) (units int64, calls int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.hard), lastWords)
	defer cancel()
	spent, err := p.budget.Spent(ctx, budget.ByRun, ran+time.Minute)
	if err != nil {
		log.Warn("what the command spent is not known", "error", err)
		return 0, 0
	}
	for _, row := range spent.Rows {
		if row.Name == label {
			return row.Units, int(row.Calls)
		}
	}
	return 0, 0
}

// knownSecret is the credential's secret where it can be read, so that it is
// taken out of what a command prints.
func (j *Job) knownSecret(env func(string) (string, bool)) string {
	if j.credential.SecretEnv != "" {
		value, _ := env(j.credential.SecretEnv)
		return strings.TrimSpace(value)
	}
	if j.credential.SecretFile == "" {
		return ""
	}
	value, err := os.ReadFile(j.credential.SecretFile)
	if err != nil {
		return "" // the command cannot have read it either, or not as we would
	}
	return strings.TrimSpace(string(value))
}
