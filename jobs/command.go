package jobs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/proc"
)

// spentWait bounds the look at what a command has spent, and at its claim.
const spentWait = 2 * time.Second

// runCommand runs a command for one region, again where it fails and the job says so.
// Nil means that it ended with exit code 0.
func (p *pass) runCommand(run *Run, log *runLog) *ending {
	label := p.job.runLabel(p.tick, run.Region)
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(p.hard, p.job.Timeout, errTimedOut)
	defer cancel()
	file, end := p.keepFile(ctx, run, log)
	if end != nil {
		return end
	}
	defer file.done()
	if end = p.attempts(ctx, run, label, log, file); end != nil && end.outcome == Failed && !p.stands() { // it may have failed by that
		end = &ending{outcome: Lost, reason: ReasonFenced, err: errLost}
	}
	run.Units, run.Calls = p.spentBy(label, time.Since(began), log.Logger)
	log.end()
	return end
}

// attempts runs the command, and again where it failed and that may pass.
func (p *pass) attempts(ctx context.Context, run *Run, label string, log *runLog, file *keptFile) *ending {
	tries := p.tries(run, log.Logger)
	for {
		end := p.attempt(ctx, run, label, log, file)
		if lost := file.ended(); lost != nil {
			return lost
		}
		if end == nil {
			return nil
		}
		if end = tries.again(ctx, end); end != nil {
			return end
		}
	}
}

// attempt runs the command once.
func (p *pass) attempt(ctx context.Context, run *Run, label string, log *runLog, file *keptFile) *ending {
	if run.Attempts > 1 && !p.stands() {
		return &ending{outcome: Lost, reason: ReasonFenced, err: errLost}
	}
	c, err := p.start(run.Region, label, log, file)
	if err != nil {
		return failed(ReasonCommand, fmt.Errorf("start the command: %w", err))
	}
	soFar := *run
	defer p.onBeat(func(ctx context.Context) {
		soFar.Log = log.tail.lines()
		p.tell(soFar)
		file.beat(ctx)
	})()
	return p.watch(ctx, c)
}

// stands reports whether the pass's claim stands, or may: the store does not say.
func (p *pass) stands() bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.hard), spentWait)
	defer cancel()
	found, err := p.state.Job(ctx, p.job.Name)
	if err != nil {
		return true
	}
	s, err := readDocument[state](p.job.Name, found)
	return err != nil || s.claimOf(p.claim.Holder) != nil
}

// command is a command under way, and all that it started and that stayed in
// its process group.
type command struct {
	cmd    *exec.Cmd
	log    *runLog
	output sync.WaitGroup
	pipes  []*os.File    // our ends
	exited chan struct{} // closed when the command itself has ended
	gone   chan struct{} // closed when its output has ended too
	reap   func() error  // frees the group's number; the error is that of the end
}

// start starts the command in a process group of its own.
func (p *pass) start(region, label string, log *runLog, file *keptFile) (*command, error) {
	words := p.words(region, label)
	c := &command{log: log, exited: make(chan struct{}), gone: make(chan struct{})}
	c.cmd = exec.Command(words[0], words[1:]...) //nolint:gosec,noctx // the configuration's own command; it is ended by its group
	c.reap = sync.OnceValue(c.cmd.Wait)
	var err error
	if c.cmd.Dir, err = filepath.Abs(filepath.Dir(p.job.config)); err != nil {
		return nil, explainGone(p.job.config, err)
	}
	if err := checkFolder(c.cmd.Dir); err != nil {
		return nil, err
	}
	if c.cmd.Env, err = p.environ(c.cmd.Dir, region, label, file.path()); err != nil {
		return nil, err
	}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	theirs, err := c.logOutput()
	if err == nil {
		err = c.cmd.Start()
	}
	for _, file := range theirs {
		_ = file.Close() // the command has it, or nobody wants it
	}
	if err != nil {
		c.output.Wait()
		c.closePipes()
		return nil, fmt.Errorf("%w; is it there, may it be run, and is there what its first line names?", err)
	}
	log.Debug("command started", "pid", c.cmd.Process.Pid)
	go c.await()
	return c, nil
}

// words are the command's with their placeholders filled in; each stays one
// argument, whatever is in it.
func (p *pass) words(region, label string) []string {
	fill := strings.NewReplacer("{job}", p.job.Name, "{region}", region, "{run}", label, "{tick}", p.tick.UTC().Format(TickFormat))
	words := make([]string, len(p.job.Command))
	for i, word := range p.job.Command {
		words[i] = fill.Replace(word)
	}
	return words
}

// environ is what a command finds in its environment: ours, and who it is.
func (p *pass) environ(dir, region, label, checkpoint string) ([]string, error) {
	list := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == "QUOTACTL_CHECKPOINT" || // of a run that this daemon is in
			name == "NOTIFY_SOCKET" // whom this daemon, and it alone, tells how it is
	})
	list = append(list, "PWD="+dir,
		"QUOTACTL_CONFIG="+filepath.Join(dir, filepath.Base(p.job.config)), "QUOTACTL_BUDGET="+p.job.Budget,
		"QUOTACTL_JOB="+p.job.Name, "QUOTACTL_REGION="+region, "QUOTACTL_RUN="+label, "QUOTACTL_TICK="+p.tick.UTC().Format(TickFormat),
		"QUOTACTL_FENCE="+strconv.FormatInt(p.claim.Fence, 10))
	store := p.options.StoreURL
	if file, ok := strings.CutPrefix(store, "sqlite:"); ok { // of our folder, which is not the command's
		path, err := filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		store = "sqlite:" + path
	}
	if store != "" {
		list = append(list, "QUOTACTL_STORE="+store)
	}
	if checkpoint != "" {
		list = append(list, "QUOTACTL_CHECKPOINT="+checkpoint)
	}
	if p.options.DecisionsURL != "" {
		list = append(list, "QUOTACTL_URL="+p.options.DecisionsURL)
	}
	return list, nil
}

// logOutput lets the command write into the log. The files are the command's
// ends, to be closed once it has started, also after an error.
func (c *command) logOutput() (theirs []io.Closer, err error) {
	for _, stream := range []struct {
		name string
		to   *io.Writer
	}{{"stdout", &c.cmd.Stdout}, {"stderr", &c.cmd.Stderr}} {
		read, write, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		c.pipes, theirs = append(c.pipes, read), append(theirs, write)
		*stream.to = write
		c.output.Go(func() {
			if err := proc.ReadLines(read, func(kept string, length int) { c.log.output(stream.name, kept, length) }); err != nil {
				c.log.Debug("output ended", "stream", stream.name, "error", err)
			}
		})
	}
	return theirs, nil
}

func (c *command) closePipes() {
	for _, pipe := range c.pipes {
		_ = pipe.Close() // only read from
	}
}

// spentBy is what the ledger says that a run spent; 0 where it does not say.
func (p *pass) spentBy(label string, ran time.Duration, log *slog.Logger) (units int64, calls int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.hard), spentWait)
	defer cancel()
	spent, err := p.budget.Spent(ctx, budget.ByRun, ran+time.Minute)
	if err != nil {
		log.Debug("what the command spent is not known", "error", err)
		return 0, 0
	}
	for _, row := range spent.Rows {
		if row.Name == label {
			return row.Units, int(row.Calls)
		}
	}
	return 0, 0
}
