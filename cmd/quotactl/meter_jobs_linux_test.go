package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A command cannot read the process that meters it, which has its secret and the CA's key. Where the
// test is root's, both are a root without capabilities: a user like others.
func TestMeteredJobsCannotReadTheirDaemon(t *testing.T) {
	t.Parallel()
	for _, metered := range []bool{true, false} {
		p, _ := meteredJob(t, 10, "", "cat /proc/$PPID/environ >environ && echo read; sh -c 'cat /proc/$PPID/environ >/dev/null && echo own'; true")
		if os.Geteuid() == 0 {
			p.Args = append([]string{"setpriv", "--inh-caps=-all", "--bounding-set=-all"}, p.Args...)
			p.Path = must.Get(exec.LookPath("setpriv"))(t)
		}
		if path := filepath.Join(p.Dir, "costs.toml"); !metered { // the test can find what it looks for
			config := string(must.Get(os.ReadFile(path))(t))
			must.Do(t, os.WriteFile(path, []byte(strings.Replace(config, "meter = true", "", 1)), 0o600))
		}
		log := strings.Join(p.passOf(0).Runs[0].Log, "\n")
		check.Equal(t, strings.Contains(log, "stdout: read"), !metered, log)
		check.Contains(t, log, "stdout: own") // the command's own cores stay
		text := must.Get(os.ReadFile(filepath.Join(p.Dir, "environ")))(t)
		check.Equal(t, strings.Contains(string(text), testKey), !metered, "the environment")
	}
}
