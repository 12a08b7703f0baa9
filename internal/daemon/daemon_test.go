package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

const livingConfig = `
[store]
url = "sqlite:quotactl.db"
[upstream.shop.costs]
"get" = 1
[upstream.shop.limit.daily]
limit  = 100
window = "24h"
[upstream.shop.credential.main]
[upstream.shop.credential.spare]
[job.stays]
budget   = "shop/main"
schedule = "0 0 1 1 *"
command  = ["true"]
[job.changes]
budget   = "shop/main"
schedule = "0 0 1 2 *"
command  = ["true"]
[job.goes]
budget   = "shop/spare"
schedule = "0 0 1 3 *"
command  = ["true"]
`

// living is a daemon on a store in memory, with livingConfig in which words are replaced.
func living(t *testing.T, env func(string) (string, bool), replace ...string) *Daemon {
	t.Helper()
	return livingWith(t, Options{Env: env, Once: true, Log: slog.New(slog.DiscardHandler)}, replace...)
}

// livingWith is living with other options.
func livingWith(t *testing.T, o Options, replace ...string) *Daemon {
	t.Helper()
	o.File, o.Now = filepath.Join(t.TempDir(), "costs.toml"), time.Now
	o.Read = func() (*config.Config, []*jobs.Job, error) {
		cfg, err := config.Parse(o.File)
		if err != nil {
			return nil, nil, err
		}
		list := jobs.Load(cfg)
		return cfg, list, cfg.Err()
	}
	d := New(o)
	d.write(t, replace...)
	cfg, list, err := d.Read()
	if err == nil {
		err = d.Begin(cfg, list, memstore.New(nil), "")
	}
	must.Do(t, err)
	return d
}

// write writes another configuration, without a reload.
func (d *Daemon) write(t *testing.T, replace ...string) {
	t.Helper()
	must.Do(t, os.WriteFile(d.o.File, []byte(strings.NewReplacer(replace...).Replace(livingConfig)), 0o600))
}

// reloads reloads the written configuration into a runner without jobs.
func (d *Daemon) reloads(t *testing.T, options jobs.Options) error {
	t.Helper()
	options.State, options.Budgets = d.store, d.current.Load().budgets
	runner := must.Get(jobs.New(nil, options))(t)
	_, err := d.next(d.current.Load(), runner)
	return err
}

// Secrets has those of every configuration that was in force: a pass may still use an
// earlier one.
func TestSecretsOfEarlierConfigurations(t *testing.T) {
	known := map[string]string{"OLD_KEY": "old-secret", "NEW_KEY": "new-secret"}
	l := New(Options{Env: func(name string) (string, bool) { value, ok := known[name]; return value, ok }, Once: true})
	for _, name := range []string{"OLD_KEY", "NEW_KEY"} {
		l.remember(&config.Config{Upstreams: []config.Upstream{{Name: "shop", Credentials: []config.Credential{{Label: "main", SecretEnv: name}}}}})
	}
	check.Equal(t, fmt.Sprint(l.Secrets()), "[old-secret new-secret]")
}

// The secrets of a configuration are known before its first pass may begin. If the runner
// refuses the reload, no pass begins.
func TestSecretsOfTheNextConfiguration(t *testing.T) {
	known := map[string]string{"OLD_KEY": "old-secret", "NEW_KEY": "new-secret"}
	with := func(key string) []string {
		return []string{"credential.main]", "credential.main]\nsecret_env = \"" + key + "\""}
	}
	l := living(t, func(name string) (string, bool) { value, ok := known[name]; return value, ok }, with("OLD_KEY")...)
	l.write(t, with("NEW_KEY")...)
	if err := l.reloads(t, jobs.Options{Sandbox: &url.URL{}}); err == nil || !strings.Contains(err.Error(), "is a command job") {
		t.Fatalf("%v", err)
	}
	check.Equal(t, fmt.Sprint(l.Secrets()), "[old-secret new-secret]")
}

// The daemon's own tokens are secrets too: its commands may have them in their environment.
func TestTheTokensAreSecrets(t *testing.T) {
	l := New(Options{Env: nothing, Once: true, Endpoint: &Endpoint{token: "the-token", readToken: "the-read-token"}})
	l.remember(&config.Config{})
	check.EqualSlices(t, l.Secrets(), []string{"the-token", "the-read-token"})
	l = New(Options{Env: nothing, Once: true, Endpoint: &Endpoint{}})
	l.remember(&config.Config{})
	check.Equal(t, len(l.Secrets()), 0)
}

// A stop may take as long as the longest grace of any generation: a pass that began before
// a reload still has that grace.
func TestAStopLastsAsLongAsTheLongestGrace(t *testing.T) {
	l := living(t, nothing, "[job.stays]", "[job.stays]\ngrace = \"10m\"")
	long := l.stopTakes()
	if long < 10*time.Minute {
		t.Fatalf("it is given %s", long)
	}
	l.write(t)
	must.Do(t, l.reloads(t, jobs.Options{}))
	if now := l.stopTakes(); now != long {
		t.Errorf("after a reload it is given %s, before %s", now, long)
	}
}

// A reload refuses each change of a setting that needs a restart, and names it.
func TestWhatNeedsARestart(t *testing.T) {
	const store = "[store]\n"
	l := living(t, nothing)
	for key, line := range map[string]string{
		"[store] prefix": `prefix = "other"`, "[store] timeout": `timeout = "3s"`, "[store] hosts": `hosts = 2`,
		"[store] outage_allowance": `outage_allowance = 1`, "[store] refusal_memory": `refusal_memory = "0"`, "[store] password_env": `password_env = "X"`, "[store] password_file": `password_file = "x"`,
	} {
		l.write(t, store, store+line+"\n")
		want := key + " has changed: restart the daemon to apply it, or set it back"
		if err := l.reloads(t, jobs.Options{}); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	l.write(t, "[store]", "state_dir = \"other\"\n[store]")
	if err := l.reloads(t, jobs.Options{}); err == nil || !strings.Contains(err.Error(), "state_dir has changed") {
		t.Errorf("state_dir: %v", err)
	}
}

func nothing(string) (string, bool) { return "", false }

// A daemon that ends waits until its budgets have told the store what they know.
func TestCloseWaitsForBudgets(t *testing.T) {
	d := living(t, nothing)
	begun, end, told := make(chan struct{}), make(chan struct{}), false
	_, ok := d.Budgets()["shop/main"].Later(func(context.Context) {
		close(begun)
		<-end
		told = true
	})
	must.Equal(t, ok, true, "a task for later is taken")
	<-begun
	closed := make(chan struct{})
	go func() { d.Close(); close(closed) }()
	close(end)
	<-closed
	check.Equal(t, told, true, "the task was done when the daemon had closed")
}
