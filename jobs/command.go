package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/proc"
	"github.com/quotactl/quotactl/jobs/needs"
)

// command runs the command for the region, with the retries that the job allows. Nil
// means exit code 0.
func (r *run) command() *ending {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(r.hard, r.job.Timeout, errTimedOut)
	defer cancel()
	file, end := r.keepFile(ctx)
	if end != nil {
		return end
	}
	defer file.done()
	if end = r.startMeter(ctx, file); end != nil {
		return end
	}
	if end = r.endMeter(r.attempts(ctx, file)); end != nil && end.outcome == Failed && !r.held.stands(r.hard) { // the lost claim may be why it failed
		end = fenced()
	}
	r.spentSince(began, r.meter != nil)
	r.noteMeter()
	r.lines.end()
	return end
}

// attempts runs the command, and again while it fails in a way that may pass.
func (r *run) attempts(ctx context.Context, file *keptFile) *ending {
	r.record.Attempts = 1
	for {
		end := r.attempt(ctx, file)
		if lost := file.ended(); lost != nil {
			return lost
		}
		if end == nil {
			return nil
		}
		if end = r.again(ctx, end); end != nil {
			return end
		}
	}
}

// attempt runs the command once.
func (r *run) attempt(ctx context.Context, file *keptFile) *ending {
	if r.record.Attempts > 1 && !r.held.stands(r.hard) {
		return fenced()
	}
	g, err := r.start(file)
	if err != nil {
		return failed(ReasonCommand, fmt.Errorf("start the command: %w", err))
	}
	r.held.claim.spends()
	soFar := *r.record
	soFar.Unknown = true // the ledger is read once it has ended
	defer r.onBeat(func(ctx context.Context) {
		soFar.Log = r.lines.tail.lines()
		r.publish(soFar)
		file.beat(ctx)
	})()
	if r.meter == nil {
		return r.watch(ctx, g)
	}
	ctx, cancel := untilClosed(ctx, r.meter.Exhausted(), errDrained) // what is said of it is what was refused
	defer cancel()
	return r.judged(r.watch(ctx, g))
}

// start starts the command in a process group of its own.
func (r *run) start(file *keptFile) (*proc.Group, error) {
	dir, err := r.folder()
	if err != nil {
		return nil, err
	}
	words := r.words()
	cmd := exec.Command(words[0], words[1:]...) //nolint:gosec,noctx // the configuration's own command; it is ended by its group
	cmd.Dir = dir
	if r.meter != nil {
		cmd.Env = r.meter.Env()
	} else if cmd.Env, err = r.environ(dir, file.path()); err != nil {
		return nil, err
	}
	return proc.Start(cmd, r.log, r.lines.output)
}

// folder is the one in which the command runs.
func (r *run) folder() (string, error) {
	dir, err := filepath.Abs(filepath.Dir(r.job.cfg.File))
	if err != nil {
		return "", explainGone(r.job.cfg.File, err)
	}
	return dir, checkFolder(dir)
}

// checkFolder returns an error if the folder in which commands run does not exist.
func checkFolder(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the configuration's folder %s, in which commands run, no longer exists: restore it, or start the daemon with a configuration that exists", path)
	case err != nil:
		return fmt.Errorf("check the folder in which commands run: %w", err)
	case !info.IsDir():
		return fmt.Errorf("%s, in which commands run, is no longer a folder: restore it", path)
	}
	return nil
}

// words returns the command's words with their placeholders filled in. Each stays one
// argument, whatever it contains.
func (r *run) words() []string {
	fill := strings.NewReplacer("{job}", r.job.Name, "{region}", r.record.Region, "{run}", r.label, "{tick}", r.tick.UTC().Format(TickFormat))
	words := make([]string, len(r.job.Command))
	for i, word := range r.job.Command {
		words[i] = fill.Replace(word)
	}
	return words
}

// environ returns the command's environment: the daemon's own, and the variables that
// describe the run.
func (r *run) environ(dir, checkpoint string) ([]string, error) {
	list := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == "QUOTACTL_CHECKPOINT" || // set if this daemon itself runs in a run
			name == "NOTIFY_SOCKET" // the service manager's socket, for this daemon only
	})
	list = append(list, "PWD="+dir,
		"QUOTACTL_CONFIG="+filepath.Join(dir, filepath.Base(r.job.cfg.File)), "QUOTACTL_BUDGET="+r.job.Budget,
		"QUOTACTL_JOB="+r.job.Name, "QUOTACTL_REGION="+r.record.Region, "QUOTACTL_RUN="+r.label, "QUOTACTL_TICK="+r.tick.UTC().Format(TickFormat),
		"QUOTACTL_FENCE="+strconv.FormatInt(r.held.claim.Fence, 10))
	store := r.options.StoreURL
	if file, ok := strings.CutPrefix(store, "sqlite:"); ok { // relative to our folder, which is not the command's
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
	if r.options.DecisionsURL != "" {
		list = append(list, "QUOTACTL_URL="+r.options.DecisionsURL)
	}
	return list, nil
}

// spentSince fills in what the run spent since an instant, according to the ledger. By
// operation it is known only if the ledger still has all of it. labelled: all its charges name
// the run.
func (r *run) spentSince(began time.Time, labelled bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.hard), claimTimeout)
	defer cancel()
	const skew = time.Minute
	span := time.Since(began) + skew
	found, err := r.budget.RunSpent(ctx, r.label, span)
	strays := int64(0)
	if err == nil && found.Total.Calls == 0 && !labelled {
		strays, err = r.strays(ctx, max(time.Since(began), time.Microsecond))
	}
	if err != nil {
		r.log.Warn("the units that the command spent are not known", "error", err)
		r.record.Unknown = true
		r.record.Warning = fmt.Sprintf("the units that it spent are not known, since the ledger could not be read: quotactl ledger %s --by run shows them: %v", r.job.Budget, err)
		return
	}
	if strays > 0 {
		r.record.Unknown, r.record.Warning = true, namesNoRun
		return
	}
	spent := make([]needs.Amount, 0, len(found.Rows))
	for _, row := range found.Rows {
		spent = append(spent, needs.Amount{Operation: row.Name, Units: row.Units, Calls: row.Calls})
	}
	r.record.spend(needs.Together(spent))
	merged := span.Microseconds() > driver.MinHeld && slices.ContainsFunc(r.budget.Spec().Limits, func(l limit.Limit) bool { return l.Window.Precision > 0 })
	if merged || !found.Since.IsZero() {
		r.record.Spent = nil
	}
}

// strays counts the calls without a run's label in the last span; drift and what was recovered are none.
func (r *run) strays(ctx context.Context, span time.Duration) (calls int64, err error) {
	for _, by := range []budget.GroupBy{budget.ByRun, budget.ByOperation} {
		spent, err := r.budget.Spent(ctx, by, span)
		if err != nil {
			return 0, err
		}
		for _, row := range spent.Rows {
			if by == budget.ByRun && row.Name == "" {
				calls += row.Calls
			} else if by == budget.ByOperation && limit.IsPseudo(row.Name) {
				calls -= row.Calls
			}
		}
	}
	return calls, nil
}

// namesNoRun is the warning of a command that no charge names.
const namesNoRun = "units not known: no charge names this run; send $QUOTACTL_RUN with each"

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
