package jobs

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// MeteredRun is a run of a job with meter = true.
type MeteredRun struct {
	Job    *Job
	Labels budget.Labels
	Fence  int64
	// Env is the environment in which the command would run without a meter, each variable once.
	Env []string
	// StandIns has, by secret, the text that Env has instead, if the job keeps secrets from its
	// command. A request that carries this text where its upstream's secret says is to be sent
	// with the secret, to that upstream alone, over verified TLS.
	StandIns map[string]string
	// Say takes sentences for the run's log.
	Say func(text string)
}

// Meter charges the calls of a command.
type Meter interface {
	// Env is the command's environment.
	Env() []string
	// Exhausted is closed after the first refusal for good.
	Exhausted() <-chan struct{}
	// Calls is what became of the calls so far.
	Calls() MeteredCalls
	// Close ends all calls, and records what they took.
	Close() error
}

// MeteredCalls is what became of a command's calls.
type MeteredCalls struct {
	Refused   *budget.RefusedError // the first refusal for good; nil: there is none
	StoreAway bool                 // calls were refused because the store did not decide
	Seen      bool                 // a call to the job's budget was seen
	Lacking   []string             // why calls were refused that the configuration does not cover
	Lines     []string             // all this for people
}

// meterEnds bounds how long a run waits for its meter to end.
const meterEnds = 2 * time.Second

// startMeter starts the meter of a run that has one.
func (r *run) startMeter(ctx context.Context, file *keptFile) *ending {
	if !r.job.Meter {
		return nil
	}
	err := errors.New("this program does not meter commands")
	if r.options.Meter != nil {
		err = r.meterBy(ctx, file.path())
	}
	if err != nil {
		return failed(ReasonCommand, fmt.Errorf("meter the command: %w", err))
	}
	return nil
}

func (r *run) meterBy(ctx context.Context, checkpoint string) error {
	dir, err := r.folder()
	if err != nil {
		return err
	}
	env, err := r.environ(dir, checkpoint)
	if err != nil {
		return err
	}
	started := MeteredRun{
		Job: r.job, Labels: budget.Labels{Job: r.job.Name, Region: r.record.Region, Run: r.label}, Fence: r.held.claim.Fence,
		Env: (&exec.Cmd{Env: env}).Environ(), Say: r.metered,
	}
	if r.job.KeepSecret {
		if _, err := r.job.secret(r.secrets.env); err != nil {
			return err
		}
		started.StandIns = standIns(r.job.cfg, r.secrets.env)
		started.Env = r.withoutSecrets(started.Env, started.StandIns)
		r.lines.hide(func() func(string) string { return r.secrets.hider(r.job, started.StandIns) })
	}
	r.meter, err = r.options.Meter(context.WithoutCancel(ctx), started)
	return err
}

// metered logs a sentence about the command's calls.
func (r *run) metered(text string) { r.lines.output("meter", text, len(text)) }

// judged is how an attempt ended, once its calls are known: a refusal for good makes it exhausted
// whatever its exit code.
func (r *run) judged(end *ending) *ending {
	calls := r.meter.Calls()
	switch {
	case calls.Refused != nil:
		return refusal(context.WithoutCancel(r.hard), calls.Refused)
	case calls.StoreAway && end != nil && end.retry && end.reason != ReasonStore:
		end.reason, end.err = ReasonStore, fmt.Errorf("%w; the store did not decide some of its calls", end.err)
	}
	return end
}

// endMeter ends the meter, if there is one.
func (r *run) endMeter(end *ending) *ending {
	if r.meter == nil {
		return end
	}
	closed := make(chan error, 1)
	go func() { closed <- r.meter.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			r.log.Warn("the meter of the command did not end well", "error", err)
		}
	case <-time.After(meterEnds):
		r.log.Warn("the meter of the command has not recorded what all calls took; those left count as charged")
	}
	calls := r.meter.Calls()
	for _, line := range calls.Lines {
		r.metered(line)
	}
	if end != nil && end.outcome == Lost {
		return end
	}
	return r.judged(end)
}

// noteMeter warns of calls that were not charged, once it is known what the run spent.
func (r *run) noteMeter() {
	if r.meter == nil {
		return
	}
	switch calls := r.meter.Calls(); {
	case len(calls.Lacking) > 0:
		r.record.Warning = "calls were refused: " + strings.Join(calls.Lacking, "; ")
	case !calls.Seen && r.record.spentNothing():
		r.record.Warning = "the meter saw no call to " + r.job.Budget
	}
}
