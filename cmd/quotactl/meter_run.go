package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/gateway"
	"github.com/quotactl/quotactl/internal/proc"
	"github.com/quotactl/quotactl/internal/secret"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

// metering is a run of the command.
type metering struct {
	*app
	flags       meterFlags
	cfg         *config.Config
	store       open.Backend
	job         *jobs.Job // nil: the configuration has none of that name
	command     []string
	observation *gateway.Observation // nil: calls are metered

	code  int // of the command
	tally gateway.Tally
	err   error // why the command did not start
}

// run runs the command, as a run of its job unless it is in one.
func (m *metering) run(ctx context.Context) error {
	inside, err := budget.RunFrom(m.env)
	if err != nil {
		return err
	}
	if m.job == nil || inside.Labels.Job == m.job.Name && inside.Labels.Run != "" {
		m.do(ctx, jobs.OutsideRun{})
		return cmp.Or(m.err, m.flags.exit(m.code, m.tally))
	}
	return m.recorded(ctx)
}

// recorded runs the command as a run of its job.
func (m *metering) recorded(ctx context.Context) error {
	region := m.flags.labels.Region
	switch named := m.job.Regions[0] != ""; {
	case named && region == "" && len(m.job.Regions) > 1:
		m.say(fmt.Sprintf("job %s has %s, and --region names none: this run counts for all of them", m.job.Name, view.Plural(len(m.job.Regions), "region")))
	case named && region != "" && !slices.Contains(m.job.Regions, region):
		return usage("job %s has no region %q in %s: use one of its regions, or add it there", m.job.Name, region, m.cfg.File)
	case !named:
		region = ""
	}
	b, err := m.budget(m.cfg, m.store, m.job.Budget)
	if err != nil {
		return err
	}
	pinger := alert.NewPinger(m.env, m.logger(), func(string, alert.Result) {})
	defer pinger.Close()
	runner, err := jobs.New([]*jobs.Job{m.job}, jobs.Options{
		State: m.store, Budgets: map[string]*budget.Budget{m.job.Budget: b}, Log: m.logger(), Ping: pinger.Pass, Env: m.env,
		Report:  func(*jobs.Job, time.Time, jobs.Run) {}, // the last lines say it
		Secrets: func() []string { return append(jobs.KnownSecrets(m.cfg, m.env), secret.OfURL(m.storeAt(m.cfg))...) },
	})
	if err != nil {
		return errors.Join(err, b.Close())
	}
	ran := false
	pass, unrecorded := runner.Outside(ctx, m.job, region, func(ctx context.Context, run jobs.OutsideRun) jobs.OutsideEnd {
		ran = true
		return m.do(ctx, run)
	})
	if err := errors.Join(unrecorded, b.Close()); err != nil {
		m.say(fmt.Sprintf("this run of job %s is not recorded: %v", m.job.Name, err))
	}
	if !ran {
		return m.notRun(pass)
	}
	return cmp.Or(m.err, m.flags.exit(m.code, m.tally))
}

// notRun says why the command was not started.
func (m *metering) notRun(pass jobs.Pass) error {
	run := jobs.Run{Outcome: pass.Outcome, Reason: pass.Reason, Error: pass.Error}
	if len(pass.Runs) > 0 {
		run = pass.Runs[0]
	}
	code := exitFailed
	switch {
	case run.Outcome == jobs.Exhausted, run.Reason == jobs.ReasonPaused:
		code = exitExhausted
	case run.Reason == jobs.ReasonStore:
		code = exitUnavailable
	}
	return &exitError{code: code, err: fmt.Errorf("job %s was not started: %s", m.job.Name, cmp.Or(run.Error, run.Reason))}
}

// do runs the command behind a gateway, and says what became of its calls.
func (m *metering) do(ctx context.Context, run jobs.OutsideRun) jobs.OutsideEnd {
	if err := proc.Undumpable(); err != nil { // its memory has the CA's key
		m.logger().Warn("other processes of this user may read the memory of this one", "error", err)
	}
	if runtime.GOOS == "darwin" {
		m.say("on macOS programs in Go trust the keychain alone: their calls to metered hosts fail; --tunnel HOST lets them pass unmetered")
	}
	labels := m.flags.labels
	labels.Run = run.Label
	options := m.gatewayOptions(m.cfg, labels, m.flags.budgets, m.say, func(name string) (*budget.Budget, error) {
		return m.budget(m.cfg, m.store, name)
	})
	options.Call.Fence, options.Tunnels, options.NoHooks, options.Java = run.Fence, m.flags.tunnels, m.flags.noHooks, m.flags.java
	if m.flags.waits {
		options.Wait = &m.flags.wait
	}
	if options.Observe = m.observation; m.observation != nil {
		options.Digest = "observe"
	}
	g, err := gateway.Start(context.WithoutCancel(ctx), options)
	if err != nil {
		m.err = &exitError{code: exitUsage, err: err}
		return jobs.OutsideEnd{Err: err}
	}
	command := proc.Foreground{
		Command: m.command, Env: append(g.Env(), m.runEnv(run)...), Grace: m.grace(), Linger: m.flags.linger, Log: m.logger(),
		Lives: func(n int) {
			m.say(fmt.Sprintf("the command has ended, and left %s running: waiting up to %s (--linger)", view.Plural(n, "process"), view.Roughly(m.flags.linger)))
		},
	}
	if m.flags.onRefusal == stopOnRefusal {
		command.Stop = g.Exhausted()
	}
	if run.Line != nil && !m.errorScreen().Terminal {
		command.Line = run.Line
	}
	unread := make(chan os.Signal, 1) // so that a signal does not cut closing short
	signal.Notify(unread, proc.Ending()...)
	code, stopped, err := command.Run(ctx)
	time.AfterFunc(longestClose, func() { signal.Stop(unread) })
	if m.code = code; stopped && code == 0 && !m.flags.keepExit { // it did not end by itself
		m.code = exitFailed
	}
	if err != nil {
		m.err = errors.Join(notStarted(m.command[0], err), g.Close())
		return jobs.OutsideEnd{Err: err}
	}
	left := g.Left(context.WithoutCancel(ctx))
	err = g.Close()
	m.tally = g.Tally()
	for i, line := range m.tally.Lines(cmp.Or(labels.Job, m.command[0]), labels.Job, m.errorScreen(), left) {
		if i > 0 || m.observation == nil && (!m.flags.quiet || !m.tally.Well()) {
			m.say(line)
		}
	}
	if m.observation != nil && !m.flags.quiet {
		m.writeObserved()
	}
	switch {
	case stopped && m.tally.Exhausted != nil:
		m.say("the command was ended because of a refusal for good; with --on-refusal continue it goes on")
	case stopped:
		m.say(fmt.Sprintf("the command was ended: %v", context.Cause(ctx)))
	}
	if err != nil {
		m.say(err.Error())
	}
	return jobs.OutsideEnd{
		Code: code, Stopped: stopped, Refused: m.tally.Exhausted, StoreAway: m.tally.StoreAway > 0,
		Seen: m.job != nil && m.tally.Saw(m.job.Budget),
	}
}

func (m *metering) grace() time.Duration {
	if m.job != nil {
		return m.job.Grace
	}
	return jobs.DefaultGrace
}

// runEnv describes the run to what charges by itself in the command.
func (m *metering) runEnv(run jobs.OutsideRun) []string {
	if run.Label == "" {
		return nil
	}
	return []string{
		"QUOTACTL_JOB=" + m.flags.labels.Job, "QUOTACTL_REGION=" + m.flags.labels.Region, "QUOTACTL_RUN=" + run.Label,
		"QUOTACTL_TICK=" + run.Tick.UTC().Format(jobs.TickFormat), "QUOTACTL_FENCE=" + strconv.FormatInt(run.Fence, 10),
	}
}
