package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/daemon"
	"github.com/quotactl/quotactl/internal/must"
)

const reloadConfig = `
[store]
url = "sqlite:quotactl.db"
timeout = "1m"
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

// rewrite puts another configuration in the place of the one that is there, in one
// step, with these words replaced.
func (p *program) rewrite(config string, replace ...string) {
	p.t.Helper()
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(config, replace[i]) {
			p.t.Fatalf("%q is not in the configuration", replace[i])
		}
	}
	file := filepath.Join(p.Dir, "costs.toml")
	err := os.WriteFile(file+"~", []byte(strings.NewReplacer(replace...).Replace(config)), 0o600)
	if err == nil {
		err = os.Rename(file+"~", file)
	}
	must.Do(p.t, err)
}

// said counts what the log has so far.
func (p *program) said(pattern string) int {
	p.t.Helper()
	text := must.Get(os.ReadFile(p.log))(p.t)
	return len(regexp.MustCompile(pattern).FindAll(text, -1))
}

func chargeOf(budget, operation string) string {
	return fmt.Sprintf(`{"budget":%q,"operation":%q}`, budget, operation)
}

// A SIGHUP puts the changed configuration in force: jobs, budgets, prices, limits,
// what is served and what is measured. One line says what has changed.
func TestReload(t *testing.T) {
	d := startServing(t, reloadConfig, "run", "--listen", "0")
	d.logged("msg=job job=goes")
	d.answers(http.StatusOK, http.MethodPost, "/v1/charge", chargeOf("shop/spare", "get"))
	d.answers(http.StatusUnprocessableEntity, http.MethodPost, "/v1/charge", chargeOf("shop/main", "list"))
	d.answers(http.StatusNotFound, http.MethodPost, "/v1/charge", chargeOf("shop/extra", "get"))
	if page := d.answers(http.StatusOK, http.MethodGet, "/metrics", ""); !strings.Contains(page, `quotactl_limit_used_units{budget="shop/spare",limit="daily"} 1`) ||
		!strings.Contains(page, `quotactl_decisions_total{budget="shop/spare"`) || !strings.Contains(page, `quotactl_passes_total{job="goes",outcome="exhausted"} 0`) {
		t.Errorf("before:\n%s%s", grep(page, "shop/spare"), grep(page, "quotactl_passes_total"))
	}

	d.rewrite(reloadConfig, `"get" = 1`, "\"get\" = 1\n\"list\" = 5", `= 100`, `= 200`, "credential.spare", "credential.extra",
		"job.goes", "job.comes", `"shop/spare"`, `"shop/extra"`, `1 2 *`, `2 2 *`)
	d.signal(syscall.SIGHUP)
	d.logged(`level=INFO msg="the configuration was reloaded" why=SIGHUP jobs_added=comes jobs_removed=goes jobs_changed=changes ` +
		`budgets_added=shop/extra budgets_removed=shop/spare budgets_changed=shop/main\n`)
	d.logged(`msg=job job=comes budget=shop/extra`)
	d.answers(http.StatusOK, http.MethodPost, "/v1/charge", chargeOf("shop/extra", "get"))
	d.answers(http.StatusOK, http.MethodPost, "/v1/charge", chargeOf("shop/main", "list"))
	d.answers(http.StatusNotFound, http.MethodPost, "/v1/charge", chargeOf("shop/spare", "get"))
	page := d.answers(http.StatusOK, http.MethodGet, "/metrics", "")
	for _, line := range []string{
		`quotactl_limit_limit_units{budget="shop/main",limit="daily"} 200`,
		`quotactl_limit_used_units{budget="shop/extra",limit="daily"} 1`,
		`quotactl_units_total{budget="shop/main",operation="list"} 5`,
		`quotactl_config_reloads_total{outcome="succeeded"} 1`,
		`quotactl_config_reloads_total{outcome="failed"} 0`,
		`quotactl_passes_total{job="comes",outcome="exhausted"} 0`,
		`quotactl_runs_total{job="comes",outcome="failed",region=""} 0`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("no line %s among\n%s", line, grep(page, "quotactl_"))
		}
	}
	if strings.Contains(page, "shop/spare") || strings.Contains(page, `job="goes"`) {
		t.Errorf("what is gone is still measured:\n%s%s", grep(page, "shop/spare"), grep(page, `job="goes"`))
	}
	d.signal(syscall.SIGTERM)
	d.exits(exitDone)
	check.Equal(t, d.said("was reloaded"), 1, "reloads, want the one that was asked for")
}

// A configuration with a fault, or with what needs a restart, changes nothing, and
// the error says what to do.
func TestAReloadThatIsRefusedChangesNothing(t *testing.T) {
	t.Parallel()
	d := startServing(t, reloadConfig, "run", "--listen", "0")
	d.logged("msg=job job=goes")
	d.logged("msg=job job=changes")
	refused := 0
	for name, c := range map[string]struct {
		change []string
		want   string
	}{
		"not TOML":                  {[]string{"limit  = 100", "limit  = "}, `costs.toml:[0-9]+: not TOML`},
		"two faults":                {[]string{`"0 0 1 1 *"`, `"0 0 1 13 *"`, `"shop/spare"`, `"shop/none"`}, `costs.toml:[0-9]+: .*(\n|\\n)costs.toml:[0-9]+: `},
		"a store":                   {[]string{"quotactl.db", "other.db"}, `costs.toml: \[store\] url has changed: restart the daemon to apply it, or set it back`},
		"a store's timeout":         {[]string{`timeout = "1m"`, `timeout = "1s"`}, `\[store\] timeout has changed`},
		"a store that there is not": {[]string{"sqlite:quotactl.db", "ftp://shop"}, `costs.toml:[0-9]+: `},
		"state_dir":                 {[]string{"[store]", "state_dir = \"elsewhere\"\n[store]"}, `state_dir has changed`},
		"a secret that is missing": {[]string{"[upstream.shop.credential.spare]", "[upstream.shop.credential.spare]\nsecret_env = \"NO_SUCH_SECRET\"",
			"command  = [\"true\"]\n[job.changes]", "command = [\"true\"]\n[job.asks]\nbudget = \"shop/spare\"\nschedule = \"@daily\"\nfetch = { operation = \"get\", url = \"https://shop.invalid\", secret = { query = \"k\" }, output = \"{tick}\" }\n[job.changes]"},
			`the environment has no NO_SUCH_SECRET`},
	} {
		d.rewrite(reloadConfig, append([]string{`1 2 *`, `2 2 *`}, c.change...)...)
		d.signal(syscall.SIGHUP)
		refused++
		d.logged(fmt.Sprintf(`(?s)(level=ERROR msg="the configuration was not reloaded; the previous one stays in force" why=SIGHUP error=.*?){%d}`, refused))
		if d.said(`(?s)was not reloaded; the previous one stays in force" why=SIGHUP error="[^\n]*`+c.want) == 0 {
			text, err := os.ReadFile(d.log)
			t.Errorf("%s: the error is not %s (%v):\n%s", name, c.want, err, text)
		}
		d.answers(http.StatusOK, http.MethodGet, "/readyz", "")
		d.answers(http.StatusOK, http.MethodPost, "/v1/charge", chargeOf("shop/spare", "get"))
	}
	if page := d.answers(http.StatusOK, http.MethodGet, "/metrics", ""); !strings.Contains(page, fmt.Sprintf("quotactl_config_reloads_total{outcome=\"failed\"} %d\n", refused)) ||
		!strings.Contains(page, `quotactl_limit_limit_units{budget="shop/spare",limit="daily"} 100`) {
		t.Errorf("after %d refusals:\n%s", refused, grep(page, "quotactl_"))
	}
	if _, err := os.Stat(filepath.Join(d.Dir, "other.db")); err == nil {
		t.Error("the other store was opened")
	}
	d.rewrite(reloadConfig, `1 2 *`, `2 2 *`)
	d.signal(syscall.SIGHUP)
	d.logged(`msg="the configuration was reloaded" why=SIGHUP jobs_changed=changes\n`)
	d.signal(syscall.SIGTERM)
	d.exits(exitDone)
}

// A change of the file is enough. The daemon reports a half-written one once, and the rest of
// it brings it into force.
func TestReloadByFile(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "https://upstream.invalid", "run")
	p.rewrite(reloadConfig)
	p.start()
	p.logged("msg=job job=goes")
	p.rewrite(reloadConfig, `1 2 *`, `2 2 *`)
	p.logged(`msg="the configuration was reloaded" why="the file has changed" jobs_changed=changes\n`)

	half := reloadConfig[:strings.Index(reloadConfig, "[job.goes]")] + "[job.goes"
	must.Do(t, os.WriteFile(filepath.Join(p.Dir, "costs.toml"), []byte(half), 0o600))
	p.logged(`level=ERROR msg="the configuration was not reloaded; the previous one stays in force" why="the file has changed"`)
	<-time.After(3 * daemon.FilePoll) // it is looked at again, which says nothing
	p.rewrite(reloadConfig)
	p.logged(`msg="the configuration was reloaded" why="the file has changed" jobs_changed=changes\n(.|\n)*msg="the configuration was reloaded" why="the file has changed" jobs_changed=changes\n`)
	check.Equal(t, p.said("was not reloaded"), 1, "times that the log says so")
	p.signal(syscall.SIGTERM)
	p.exits(exitDone)
}

// A configuration that comes by a pipe is read once, at the start.
func TestAPipeIsNotReloaded(t *testing.T) {
	p := newProgram(t, "https://upstream.invalid", "run", "-c", "/dev/stdin")
	read, write, err := os.Pipe()
	must.Do(t, err)
	p.Stdin = read
	p.Env = append(p.Env, "STATE_DIRECTORY="+p.Dir)
	p.start()
	_, err = write.WriteString(strings.Replace(reloadConfig, "sqlite:quotactl.db", "sqlite:"+filepath.Join(p.Dir, "quotactl.db"), 1))
	if err = errors.Join(err, write.Close(), read.Close()); err != nil {
		t.Fatal(err)
	}
	p.logged("msg=job job=goes")
	p.signal(syscall.SIGHUP)
	p.logged(`was not reloaded; the previous one stays in force" why=SIGHUP error="/dev/stdin is not a regular file`)
	p.signal(syscall.SIGTERM)
	p.exits(exitDone)
}

// A pass under way ends as it began, also when its job and its budget are gone.
func TestAReloadLeavesPassesAlone(t *testing.T) {
	upstream, address := newGate(t)
	p := startProgram(t, address, "run", "--now")
	<-upstream.asked // of both regions
	<-upstream.asked
	p.rewrite(reloadConfig)
	p.signal(syscall.SIGHUP)
	p.logged(`was reloaded" why=SIGHUP jobs_added="changes, goes, stays" jobs_removed=trending budgets_added="shop/main, shop/spare" budgets_removed=youtube/key1`)
	close(upstream.open)
	p.logged(`msg="pass ended" job=trending budget=youtube/key1 .*outcome=succeeded reason="" units=8`)
	p.wholePages(".ndjson", 8)
	p.signal(syscall.SIGTERM)
	p.exits(exitDone)
}

// A request that waits for units waits on over reloads, and ends with its refusal when
// the daemon stops.
func TestAReloadLeavesRequestsAlone(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{false, true} {
		window := "8s" // in which a busy machine comes to the second charge
		if stops {
			window = "40s"
		}
		config := strings.Replace(strings.Replace(reloadConfig, "limit  = 100", "limit  = 1", 1), `"24h"`, `"`+window+`"`, 1)
		d := startServing(t, config, "run", "--listen", "0")
		d.logged("msg=job job=goes")
		d.answers(http.StatusOK, http.MethodPost, "/v1/charge", chargeOf("shop/main", "get"))
		type charged struct {
			status int
			text   string
		}
		answers := make(chan charged, 1)
		go func() {
			defer close(answers) // also where the call fails
			status, text := d.call(http.MethodPost, "/v1/charge", `{"budget":"shop/main","operation":"get","wait_seconds":60}`)
			answers <- charged{status, text}
		}()
		becomes(t, "the charge waits", func() bool {
			return strings.Contains(d.answers(http.StatusOK, http.MethodGet, "/metrics", ""), `quotactl_decisions_total{budget="shop/main",operation="get",result="exhausted",source="store"} 1`)
		})
		for i, schedule := range []string{"2 2 *", "3 2 *"} {
			d.rewrite(config, "1 2 *", schedule)
			d.signal(syscall.SIGHUP)
			d.logged(fmt.Sprintf(`(?s)(was reloaded.*?){%d}`, i+1))
		}
		want := http.StatusOK
		if stops {
			want = http.StatusTooManyRequests
			d.signal(syscall.SIGTERM)
			d.exits(exitDone)
		}
		if got := <-answers; got.status != want {
			t.Errorf("%d %s, want %d", got.status, got.text, want)
		}
	}
}

// One pass is not reloaded, and no hangup ends it.
func TestAHangupDoesNotEndOnePass(t *testing.T) {
	upstream, address := newGate(t)
	p := startProgram(t, address, "run", "--once")
	<-upstream.asked
	p.signal(syscall.SIGHUP)
	close(upstream.open)
	p.exits(exitDone)
	p.wholePages(".ndjson", 8)
}

// What nohup ignores stays ignored in the commands of one pass; a daemon that it
// has started reloads all the same.
func TestNohup(t *testing.T) {
	p := newProgram(t, "https://upstream.invalid", "run", "--once")
	p.Path = "/bin/sh"
	p.Args = []string{"sh", "-c", "trap '' HUP; exec quotactl run --once"}
	p.rewrite(reloadConfig, `command  = ["true"]`, `command = ["sh", "-c", "kill -HUP $$; echo outlived"]`)
	p.start()
	p.exits(exitDone)
	check.Equal(t, p.said(`line=outlived`), 3, "commands outlived a hangup")

	p = newProgram(t, "https://upstream.invalid", "run")
	p.Path = "/bin/sh"
	p.Args = []string{"sh", "-c", "trap '' HUP; exec quotactl run"}
	p.start()
	p.logged("msg=job job=trending")
	p.signal(syscall.SIGHUP)
	p.logged("was reloaded: nothing has changed")
	p.signal(syscall.SIGTERM)
	p.exits(exitDone)
}
