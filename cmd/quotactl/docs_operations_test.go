package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/daemon"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// What docs/operations.md tells of a reload, as it stands there: its commands, and
// what the daemon then says.
func TestDocumentedReload(t *testing.T) {
	blocks, _ := split(documents(t)["docs/operations.md"])
	p := newProgram(t, "https://upstream.invalid", "run")
	p.rewrite(docBlock(t, blocks, "toml", "costs.toml"))
	p.start()
	p.logged("msg=job job=nightly")
	for _, name := range []string{"change", "fault"} {
		job := &docJob{t: t, dir: p.Dir, env: append(os.Environ(), "PID="+strconv.Itoa(p.Process.Pid))}
		job.write(name+".sh", docBlock(t, blocks, "sh", name))
		job.run(0, "sh", "-e", name+".sh")
		p.logged(regexp.QuoteMeta(strings.TrimSpace(docBlock(t, blocks, "text", name))) + `\n`)
	}
	p.signal(syscall.SIGTERM)
	p.exits(exitDone)
	check.Equal(t, p.said("was (not )?reloaded"), 2, "reloads, want the two that were asked for")
}

// The page leaves a stop the time that it takes, and tells how much that is.
func TestDocumentedStop(t *testing.T) {
	page := documents(t)["docs/operations.md"]
	for _, pattern := range []string{`--stop-timeout=([0-9]+)`, `terminationGracePeriodSeconds: ([0-9]+)`} {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(page, -1)
		if len(found) == 0 {
			t.Errorf("no %s", pattern)
		}
		for _, f := range found {
			if seconds, err := strconv.Atoi(f[1]); err != nil || float64(seconds) <= longestStop().Seconds() {
				t.Errorf("%s: a stop may take %s", f[0], longestStop())
			}
		}
	}
	beside := math.Ceil((longestStop() - jobs.DefaultGrace).Seconds())
	for _, words := range []string{"by %.0f seconds", "that takes %.0f seconds at most"} {
		if want := fmt.Sprintf(words, beside); !strings.Contains(strings.ReplaceAll(page, "\n", " "), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if looks := fmt.Sprintf("within the last %.0f seconds. It reads it every %.0f seconds", daemon.PulseLives.Seconds(), jobs.DefaultPoll.Seconds()); !strings.Contains(page, looks) {
		t.Errorf("the page does not say %q", looks)
	}
	// Nothing is listened on before the store serves: a probe of life alone would end
	// what waits for it.
	check.Equal(t, strings.Count(page, "livenessProbe:\n"), strings.Count(page, "startupProbe:"), "a livenessProbe has no startupProbe beside it")
	check.NoError(t, check.Err(os.Stat(filepath.Join("..", "..", "deploy", "quotactl.service"))))
}

// By the configuration of the page what is called by hand is one host with the unit,
// which alone has STATE_DIRECTORY: of two each would have an allowance of its own.
func TestDocumentedStateDirectory(t *testing.T) {
	page := documents(t)["docs/operations.md"]
	blocks, _ := split(page)
	file := filepath.Join(t.TempDir(), "costs.toml")
	rest := docBlock(t, blocks, "toml", "costs.toml")
	must.Do(t, os.WriteFile(file, []byte(docBlock(t, blocks, "toml", "state")+rest), 0o600))
	cfg, err := config.Parse(file)
	if err == nil {
		err = cfg.Err()
	}
	must.Do(t, err)
	state := "/var/lib/" + unitFile(t)["[Service]StateDirectory"][0]
	unset := *cfg // as the unit would be without the key
	unset.StateDir = ""
	t.Setenv("STATE_DIRECTORY", state)
	unit := open.HostDir(&unset, cfg.Store.URL)
	t.Setenv("STATE_DIRECTORY", "")
	if by := open.HostDir(cfg, cfg.Store.URL); by != unit {
		t.Errorf("by hand it is the host of %s, and the unit that of %s", by, unit)
	}
	if !strings.HasPrefix(cfg.Store.URL, "sqlite:"+state+"/") {
		t.Errorf("the store is %s", cfg.Store.URL)
	}
}
