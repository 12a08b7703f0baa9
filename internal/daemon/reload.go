package daemon

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/jobs"
)

// FilePoll is the interval at which the daemon checks the configuration's file for changes.
const FilePoll = 2 * time.Second

// What caused a reload, for the log.
const (
	bySignal = "SIGHUP"
	byFile   = "the file has changed"
)

// follow reloads the configuration when a signal asks for it, and when its file has
// changed, until drain is closed or ctx ends.
func (d *Daemon) follow(ctx context.Context, drain <-chan struct{}, hangups <-chan os.Signal, runner *jobs.Runner) {
	select { // no reload before the daemon is ready
	case <-d.metrics.pulse.first:
	case <-drain:
		return
	case <-ctx.Done():
		return
	}
	looks := time.NewTicker(FilePoll)
	defer looks.Stop()
	for {
		select {
		case <-hangups:
			d.reload(bySignal, runner)
		case <-looks.C:
			if d.file.changed() {
				d.reload(byFile, runner)
			}
		case <-drain:
			return
		case <-ctx.Done():
			return
		}
	}
}

// reload puts the present configuration in force, or changes nothing.
func (d *Daemon) reload(why string, runner *jobs.Runner) {
	d.notices.reloading()
	before := d.current.Load()
	after, err := d.next(before, runner)
	d.metrics.reloaded(err)
	if err != nil {
		d.log.Error("the configuration was not reloaded; the previous one stays in force", "why", why, "error", err)
		d.notices.reloaded(before.jobs, err)
		return
	}
	d.metrics.forget(before, after)
	changes := differences(before, after)
	if len(changes) == 0 {
		d.log.Info("the configuration was reloaded: nothing has changed", "why", why)
	} else {
		d.log.Info("the configuration was reloaded", append([]any{"why", why}, changes...)...)
	}
	d.notices.reloaded(after.jobs, nil)
}

// next reads the next generation and puts it in force. After an error the previous one
// stays in force.
func (d *Daemon) next(before *generation, runner *jobs.Runner) (*generation, error) {
	if !d.file.again() {
		return nil, fmt.Errorf("%s is not a regular file and can be read only once: restart the daemon", d.file.path)
	}
	cfg, list, err := d.Read()
	if err != nil {
		return nil, err
	}
	if err := d.needsRestart(before.config, cfg); err != nil {
		return nil, err
	}
	after, err := d.open(cfg, list)
	if err != nil {
		return nil, err
	}
	// Before the reload of the runner: its first pass may begin at once.
	d.metrics.admit(after.budgets, cfg.Upstreams)
	d.remember(cfg)
	if err := runner.Reload(list, after.budgets); err != nil {
		return nil, err
	}
	d.takeOver(after)
	return after, nil
}

// needsRestart names a setting that has changed and takes effect only at a start.
func (d *Daemon) needsRestart(before, after *config.Config) error {
	if d.o.Sandbox { // a sandbox has its own store
		return nil
	}
	was, is := before.Store, after.Store
	for _, setting := range []struct {
		key  string
		same bool
	}{
		{"[store] url", d.storeAt(before) == d.storeAt(after)},
		{"[store] prefix", was.Prefix == is.Prefix},
		{"[store] timeout", was.Timeout == is.Timeout},
		{"[store] hosts", was.Hosts == is.Hosts},
		{"[store] outage_allowance", was.OutageAllowance == is.OutageAllowance},
		{"[store] refusal_memory", was.RefusalMemory == is.RefusalMemory},
		{"[store] password_env", was.PasswordEnv == is.PasswordEnv},
		{"[store] password_file", was.PasswordFile == is.PasswordFile},
		{"history", was.History == is.History && was.NoHistory == is.NoHistory},
		{"state_dir", before.StateDir == after.StateDir},
	} {
		if !setting.same {
			return fmt.Errorf("%s: %s has changed: restart the daemon to apply it, or set it back", after.File, setting.key)
		}
	}
	return nil
}
