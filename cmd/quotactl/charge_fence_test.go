package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A charge within a command job carries the number of its pass, so that nothing is
// charged for one that was declared dead; the flag stands before the environment,
// and another job's number is not taken.
func TestChargeFenced(t *testing.T) {
	file := writeConfig(t, strings.Replace(shopConfig, "limit  = 2", "limit  = 100", 1))
	cfg := must.Get(config.Load(file))(t)
	store := must.Get(open.Store(t.Context(), "sqlite:"+filepath.Join(filepath.Dir(file), "q.db"), cfg.Store))(t)
	defer func() { _ = store.Close() }()
	spec := must.Get(cfg.Spec("shop/main"))(t)
	b := must.Get(budget.New(store, spec))(t)
	must.Do(t, b.Fence(t.Context(), "pull", 7))
	for _, test := range []struct {
		name  string
		env   map[string]string
		flags []string
		code  int
	}{
		{"its pass", map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_FENCE": "7"}, nil, exitFailed},
		{"reserved", map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_FENCE": "7"}, []string{"--reserve", "1m"}, exitFailed},
		{"waiting", map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_FENCE": "7"}, []string{"--wait", "1m"}, exitFailed},
		{"only looked at", map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_FENCE": "7"}, []string{"--dry-run"}, exitFailed},
		{"the flags", nil, []string{"--job", "pull", "--fence", "7"}, exitFailed},
		{"the same job by its flag", map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_FENCE": "7"}, []string{"--job", "pull"}, exitFailed},
		{"another pass", map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_FENCE": "8"}, nil, exitDone},
		{"another pass by the flag", map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_FENCE": "7"}, []string{"--fence", "8"}, exitDone},
		{"another job", map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_FENCE": "7"}, []string{"--job", "push"}, exitDone},
		{"no daemon", nil, []string{"--job", "pull"}, exitDone},
		{"no job", nil, []string{"--fence", "7"}, exitUsage},
		{"no number", map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_FENCE": "x"}, nil, exitUsage},
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"charge", "shop/main", "orders.get", "--json", "-c", file}, test.flags...)
		code := run(t.Context(), args, &stdout, &stderr, func(name string) (string, bool) {
			value, ok := test.env[name]
			return value, ok
		})
		check.Equal(t, code, test.code, test.name, "exit code", stderr.String())
		if code != exitFailed {
			continue
		}
		if reason, err := at(stdout.Bytes(), "reason"); err != nil || reason != `"fenced"` || !strings.Contains(stderr.String(), "fenced off: its pass was declared dead") {
			t.Errorf("%s: reason %s, %v: %s", test.name, reason, err, stderr.String())
		}
	}
}
