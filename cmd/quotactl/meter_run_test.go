package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/upstreamtest"
	"github.com/quotactl/quotactl/jobs"
)

const cronJob = `
[job.nightly]
started_by = "cron"
budget     = "shop/main"
schedule   = "0 3 * * *"
timezone   = "UTC"
grace      = "1s"
`

// newCronRun is newMeter with a job that cron starts, and more lines in its table.
func newCronRun(t *testing.T, quota int, more string, args ...string) (*program, *upstreamtest.Internet) {
	t.Helper()
	p, in := newMeter(t, quota, args...)
	must.Do(t, os.WriteFile(filepath.Join(p.Dir, "costs.toml"), []byte(fmt.Sprintf(meterConfig, quota)+cronJob+more), 0o600))
	return p, in
}

// also is another quotactl in the same folder.
func (p *program) also(args ...string) *program {
	p.t.Helper()
	other := newProgram(p.t, "https://upstream.invalid", args...)
	other.Dir, other.Env = p.Dir, p.Env
	return other
}

// runsOf reads the runs of job nightly, the newest first.
func runsOf(p *program, flags ...string) []answer.Run {
	p.t.Helper()
	runs := p.also(append([]string{"runs", "nightly", "--json", "--log"}, flags...)...)
	runs.start()
	runs.exits(0)
	var all answer.Runs
	must.Do(p.t, json.Unmarshal(runs.out.Bytes(), &all))
	return all.Runs
}

// A command that meter runs for a job is a run of the job: its outcome, what it spent, and the last
// lines of its standard error without the secret.
func TestMeterRecordsARun(t *testing.T) {
	t.Parallel()
	const printedKey = "a-key-that-it-prints"
	const get = "curl -sSo /dev/null https://api.example.com/v1/"
	for name, c := range map[string]struct {
		more, region, script string
		code                 int
		want                 string // outcome, reason, units, calls of get
		text                 string // is in its error, warning or lines
	}{
		"succeeded":     {"", "", get + "a; " + get + "b; echo done with $TEST_KEY >&2", 0, "succeeded: 2 units, 2 get", "stderr: done with "},
		"failed":        {"", "", get + "a; echo out of cheese >&2; exit 3", 3, "failed exit 3: 1 units, 1 get", "out of cheese"},
		"exhausted":     {"", "", get + "a; " + get + "b; " + get + "c; " + get + "d; sleep 1000", 75, "exhausted: 3 units, 3 get", "limit day"},
		"continued":     {"", "", "for n in 1 2 3 4; do " + get + "$n; done; exit 4", 75, "exhausted: 3 units, 3 get", "limit day"},
		"by itself":     {"", "", get + "a; exit 75", 75, "exhausted exit 75: 1 units, 1 get", ""},
		"killed":        {"", "", get + "a; kill -KILL $$", 137, "failed exit 137: 1 units, 1 get", "137"},
		"timed out":     {"timeout = \"2s\"\n", "", "sleep 1000", 143, "timed_out timeout: 0 units", ""},
		"no such":       {"", "", "", 127, "failed command: 0 units", "not-there"},
		"nothing seen":  {"", "", "true", 0, "succeeded: 0 units", "quotactl meter saw no call to shop/main"},
		"a region":      {"regions = [\"US\", \"GB\"]\n", "US", get + "a", 0, "US succeeded: 1 units, 1 get", ""},
		"all regions":   {"regions = [\"US\", \"GB\"]\n", "", get + "a", 0, "succeeded: 1 units, 1 get", ""},
		"other region":  {"regions = [\"US\", \"GB\"]\n", "FR", get + "a", 2, "", ""},
		"held":          {"hold = true\n[job.nightly.needs]\nget = 2\n", "", get + "a; " + get + "b", 0, "succeeded: 2 units, 2 get", ""},
		"too much held": {"hold = true\n[job.nightly.needs]\nget = 3\n", "", "touch ran", 75, "exhausted hold: 0 units", "limit day"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := []string{"--job", "nightly"}
			if c.region != "" {
				flags = append(flags, "--region", c.region)
			}
			if name == "continued" {
				flags = append(flags, "--on-refusal", "continue")
			}
			command := []string{"--", "sh", "-c", c.script}
			if c.script == "" {
				command = []string{"--", "./not-there"}
			}
			p, in := newCronRun(t, 3, c.more, slices.Concat(flags, command)...)
			p.Env = append(p.Env, "TEST_KEY="+printedKey)
			if name == "too much held" {
				charge := p.also("charge", "shop/main", "get")
				charge.start()
				charge.exits(0)
			}
			p.start()
			p.exits(c.code)
			got, text := "", ""
			for _, run := range runsOf(p) {
				what := strings.TrimSpace(run.Region + " " + string(run.Outcome))
				if run.Reason != "" && !strings.HasPrefix(run.Reason, "limit") {
					what += " " + run.Reason
				}
				if got += what + ":"; run.Units != nil {
					got += fmt.Sprintf(" %d units", *run.Units)
				}
				for _, spent := range run.Spent {
					got += fmt.Sprintf(", %d %s", spent.Calls, spent.Operation)
				}
				text += run.Error + run.Warning + run.Reason + fmt.Sprint(run.Log)
			}
			check.Equal(t, got, c.want, text+stderrOf(p))
			check.Contains(t, text, c.text)
			check.Equal(t, strings.Contains(text, printedKey), false, "the secret is in the record")
			calls := 0
			if _, after, found := strings.Cut(c.want, ", "); found {
				must.Get(fmt.Sscanf(after, "%d", &calls))(t)
			}
			check.Equal(t, len(in.Requests()), calls, "requests of the upstream")
			_, err := os.Stat(filepath.Join(p.Dir, "ran"))
			check.Equal(t, os.IsNotExist(err), true, "the command was started although what it holds does not fit")
		})
	}
}

// A paused job's command does not start, and its tick is skipped.
func TestMeterOfAPausedJob(t *testing.T) {
	t.Parallel()
	p, _ := newCronRun(t, 3, "", "--job", "nightly", "--", "touch", "ran")
	pause := p.also("pause", "nightly", "--note", "the upstream moves")
	pause.start()
	pause.exits(0)
	p.start()
	p.exits(75)
	check.Contains(t, stderrOf(p), "job nightly was not started: paused by")
	check.Contains(t, stderrOf(p), "the upstream moves")
	_, err := os.Stat(filepath.Join(p.Dir, "ran"))
	check.Equal(t, os.IsNotExist(err), true, "it was started")
}

// A run is recorded also if whoever read its errors has gone, as a crontab's pager may.
func TestMeterRecordsForNobody(t *testing.T) {
	t.Parallel()
	p, _ := newCronRun(t, 9, "", "--job", "nightly", "--", "sh", "-c", "curl -sSo /dev/null https://api.example.com/v1/a; echo said >&2; exit 4")
	read, write, err := os.Pipe()
	must.Do(t, err)
	p.Stderr = write
	p.start()
	must.Do(t, errors.Join(read.Close(), write.Close()))
	p.exits(4)
	runs := runsOf(p)
	must.Equal(t, len(runs), 1, "runs")
	check.Equal(t, runs[0].Reason, "exit 4", string(runs[0].Outcome))
}

// A run whose meter was killed is under way until its claim lapses, and keeps no other from running.
func TestMeterKilledKeepsNobody(t *testing.T) {
	t.Parallel()
	p, in := newCronRun(t, 9, "", "--job", "nightly", "--", "sh", "-c", "curl -sSo /dev/null https://api.example.com/v1/a; echo ready >&2; read line")
	held := must.Get(p.StdinPipe())(t)
	p.start()
	p.logged("ready")
	p.signal(syscall.SIGKILL)
	must.Do(t, held.Close())
	_ = p.Wait()
	for range 2 {
		next := p.also("meter", "--job", "nightly", "--", "curl", "-sSo", "/dev/null", "https://api.example.com/v1/b")
		next.start()
		next.exits(0)
	}
	check.Equal(t, len(in.Requests()), 3, "requests")
	outcomes := map[jobs.Outcome]int{}
	for _, run := range runsOf(p) {
		outcomes[run.Outcome]++
	}
	check.Equal(t, fmt.Sprint(outcomes), "map[running:1 succeeded:2]", "runs")
}

// The store may be away when a run begins, and when it ends: the command runs all the same, and the
// run is recorded once, or meter says that it is not.
func TestMeterRecordsWithoutItsStore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		downAtBegin, upAtEnd bool
		want                 string
	}{
		"away at the begin": {true, true, "succeeded"},
		"away at the end":   {false, false, ""},
		"away throughout":   {true, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p, _ := newCronRun(t, 9, "", "--job", "nightly", "--store", server.URL(0), "--", "sh", "-c", "echo ready >&2; read line")
			held := must.Get(p.StdinPipe())(t)
			if c.downAtBegin {
				server.Kill()
			}
			p.start()
			p.logged("ready")
			if !c.downAtBegin {
				server.Kill()
			}
			if c.upAtEnd {
				must.Equal(t, server.Start(), true, "the server starts")
			}
			must.Do(t, held.Close())
			p.exits(1) // what read says
			said := stderrOf(p)
			if !c.upAtEnd {
				check.Contains(t, said, "not recorded")
				return
			}
			check.Equal(t, strings.Contains(said, "not recorded"), false, said)
			runs := runsOf(p, "--store", server.URL(0))
			must.Equal(t, len(runs), 1, fmt.Sprint(runs))
			check.Equal(t, runs[0].Outcome, jobs.Failed, "outcome")
			check.Contains(t, runs[0].Warning, "the store did not answer when it began")
			check.Contains(t, fmt.Sprint(runs[0].Log), "ready")
		})
	}
}

// Two machines with one Redis: each run is recorded with its own units, also at the same time.
func TestMeterOnTwoMachines(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p, in := newCronRun(t, 20, "regions = [\"US\", \"GB\"]\n", "--job", "nightly", "--region", "US", "--store", server.URL(0), "--",
		"curl", "-sS", "https://api.example.com/v1/[1-4]")
	other := p.also("meter", "--job", "nightly", "--region", "GB", "--store", server.URL(0), "--", "curl", "-sS", "https://api.example.com/v1/[1-7]")
	other.Dir = t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(other.Dir, "costs.toml"), must.Get(os.ReadFile(filepath.Join(p.Dir, "costs.toml")))(t), 0o600))
	p.start()
	other.start()
	p.exits(0)
	other.exits(0)
	units := map[string]int64{}
	for _, run := range runsOf(p, "--store", server.URL(0)) {
		check.Equal(t, run.Outcome, jobs.Succeeded, run.Error)
		must.Equal(t, run.Units != nil, true, "units are known")
		units[run.Region] += *run.Units
	}
	check.Equal(t, fmt.Sprint(units), "map[GB:7 US:4]", "units")
	check.Equal(t, len(in.Requests()), 11, "requests")
}
