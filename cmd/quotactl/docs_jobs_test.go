package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// pages is how many pages a region has upstream.
const pages = sandbox.DefaultResults / 50

// docJob is a program of docs/jobs.md, with its configuration, in a folder of
// its own, and the upstream that it calls.
type docJob struct {
	t        *testing.T
	dir      string
	limit    int64 // of the budget
	command  []string
	whole    bool // a region, or nothing of it
	env      []string
	upstream *sandbox.Server
}

// docPrograms are the programs of docs/jobs.md: how one is started alone, and
// whether it takes a region whole or not at all.
var docPrograms = map[string]struct {
	language, file string
	command        []string
	whole          bool
}{
	"shell":    {"sh", "fetch.sh", []string{"./fetch.sh"}, false},
	"whole":    {"sh", "whole.sh", []string{"./whole.sh"}, true},
	"resume":   {"sh", "resume.sh", []string{"./resume.sh"}, false},
	"python":   {"python", "fetch.py", []string{"python3", "fetch.py"}, false},
	"php":      {"php", "fetch.php", []string{"php", "fetch.php"}, false},
	"go":       {"go", "fetch.go", []string{"./fetch"}, false},
	"go whole": {"go", "fetch.go", []string{"./fetch", "-whole"}, true},
}

// forDocs calls do for each program. built is where the Go program is.
func forDocs(t *testing.T, do func(t *testing.T, name, built string)) {
	for _, tool := range []string{"sh", "curl", "jq", "python3", "php", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("the programs of docs/jobs.md need %s: .ci/needs installs it or says how", tool)
		}
	}
	blocks, _ := split(documents(t)["docs/jobs.md"])
	built := buildGo(t, docBlock(t, blocks, "go", "fetch.go"))
	for name := range docPrograms {
		t.Run(name, func(t *testing.T) { do(t, name, built) })
	}
}

// docQuota is less than the two regions of a job want.
const docQuota = "7"

// newDocJob writes a program and its configuration as they stand in the
// document, but for the quota, and starts its upstream.
func newDocJob(t *testing.T, name, built string) *docJob {
	t.Helper()
	program := docPrograms[name]
	j := &docJob{t: t, dir: t.TempDir(), command: program.command, whole: program.whole}
	blocks, _ := split(documents(t)["docs/jobs.md"])
	path := docBlock(t, blocks, "toml", "costs.toml") + docBlock(t, blocks, "toml", "job", program.file)
	j.write("costs.toml", strings.ReplaceAll(path, "10_000", docQuota))
	j.write(program.file, docBlock(t, blocks, program.language, program.file))
	if program.language == "go" {
		must.Do(t, os.Symlink(built, filepath.Join(j.dir, "fetch")))
	}

	cfg := must.Get(config.Load(filepath.Join(j.dir, "costs.toml")))(t)
	spec := must.Get(cfg.Spec("youtube/key1"))(t)
	j.limit = spec.Limits[0].Limit
	began := time.Now() // the upstream's day does not end during the test
	j.upstream = must.Get(sandbox.New(sandbox.Config{Quota: spec.Limits[0].Quota, Now: func() time.Time { return began }}))(t)
	must.Do(t, j.upstream.Listen(t.Context(), ""))
	t.Cleanup(func() { check.NoError(t, j.upstream.Close()) })
	j.env = append(os.Environ(), "YOUTUBE_API="+j.upstream.URL(), "YOUTUBE_API_KEY="+testKey,
		"GORACE=atexit_sleep_ms=0", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	return j
}

// docBlock is the one block that opens with these words.
func docBlock(t *testing.T, blocks []block, info ...string) string {
	t.Helper()
	var found []string
	for _, b := range blocks {
		if slices.Equal(b.info, info) {
			found = append(found, b.text)
		}
	}
	must.Equal(t, len(found), 1, "docs/jobs.md has … blocks", info)
	return found[0]
}

func (j *docJob) write(name, text string) {
	j.t.Helper()
	if name == "costs.toml" {
		text = patientConfig(text)
	}
	must.Do(j.t, os.WriteFile(filepath.Join(j.dir, name), []byte(text), 0o700)) //nolint:gosec // programs
}

// edit changes one place of the configuration.
func (j *docJob) edit(from, to string) {
	j.t.Helper()
	config := must.Get(os.ReadFile(filepath.Join(j.dir, "costs.toml")))(j.t)
	must.Equal(j.t, strings.Count(string(config), from), 1, "the configuration has no single", from)
	j.write("costs.toml", strings.Replace(string(config), from, to, 1))
}

// patient gives the store of a configuration that a command has written time.
func (j *docJob) patient() {
	j.t.Helper()
	j.write("costs.toml", string(must.Get(os.ReadFile(filepath.Join(j.dir, "costs.toml")))(j.t)))
}

// run starts a program in the job's folder, which must end with a code, and
// returns its stdout.
func (j *docJob) run(code int, command ...string) []byte {
	j.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(j.t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = j.dir, j.env, &stdout, &stderr
	if strings.HasPrefix(command[0], "./") {
		cmd.Path, cmd.Err = filepath.Join(j.dir, command[0]), nil
	}
	err := cmd.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		j.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		j.t.Fatalf("%q: exit code %d, want %d:\n%s%s", command, got, code, &stdout, &stderr)
	}
	if strings.Contains(stdout.String()+stderr.String(), testKey) {
		j.t.Errorf("%q: the secret got out:\n%s%s", command, &stdout, &stderr)
	}
	return stdout.Bytes()
}

func (j *docJob) fetch(code int, region string) {
	j.t.Helper()
	j.run(code, append(slices.Clone(j.command), region)...)
}

// spent holds the ledger and the upstream to the same units, with nothing
// rejected.
func (j *docJob) spent(units int64) {
	j.t.Helper()
	var ledger struct{ Total struct{ Units int64 } }
	must.Do(j.t, json.Unmarshal(j.run(0, "quotactl", "ledger", "youtube/key1", "--json"), &ledger))
	counted := j.upstream.Usage()
	if ledger.Total.Units != units || counted.Units != units || counted.Requests != units || counted.Rejected != 0 {
		j.t.Errorf("%d units charged; the upstream counted %+v; want %d of each", ledger.Total.Units, counted, units)
	}
}

var videoPattern = regexp.MustCompile(`"id": ?"[^"]+"`)

// has holds a file to so many pages, all of them different.
func (j *docJob) has(file string, want int64) {
	j.t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(j.dir, "data", file)))(j.t)
	lines, videos := int64(0), map[string]bool{}
	for line := range bytes.Lines(text) {
		lines++
		if !json.Valid(line) {
			j.t.Errorf("%s: line %d is no JSON: %.80s", file, lines, line)
		}
		for _, video := range videoPattern.FindAllString(string(line), -1) {
			videos[video] = true
		}
	}
	check.Equal(j.t, lines, want, file, "has")
	check.Equal(j.t, int64(len(videos)), 50*want, file, "has")
}

func (j *docJob) hasNo(file string) {
	j.t.Helper()
	check.Is(j.t, check.Err(os.Stat(filepath.Join(j.dir, "data", file))), os.ErrNotExist, file, "is there (…)")
}

// The programs of docs/jobs.md, alone: what they charge is what the upstream
// counts, and when the units are gone they stop before it would say so.
func TestDocumentedJobs(t *testing.T) {
	t.Parallel()
	forDocs(t, func(t *testing.T, name, built string) {
		j := newDocJob(t, name, built)
		j.fetch(0, "US")
		j.spent(pages)
		j.has("US.ndjson", pages)
		j.hasNo("US.part")

		left := j.limit - pages
		if left < 1 || left >= pages {
			t.Fatalf("%d units are left after a region: the quota is not one that runs out", left)
		}
		if j.whole {
			left = 0 // of what does not fit at once nothing is asked for
		}
		j.fetch(exitExhausted, "GB")
		j.spent(pages + left)
		j.has("GB.part", left)
		j.hasNo("GB.ndjson")
	})
}

// Nothing is asked for when nobody can tell whether it may be.
func TestDocumentedJobsWithoutStore(t *testing.T) {
	t.Parallel()
	forDocs(t, func(t *testing.T, name, built string) {
		j := newDocJob(t, name, built)
		j.edit("sqlite:quotactl.db", "redis://127.0.0.1:1")
		j.fetch(exitUnavailable, "US")
		check.Equal(t, j.upstream.Usage().Requests, 0, "the upstream counted")
	})
}

// Without a key a program says so before it charges.
func TestDocumentedJobsWithoutKey(t *testing.T) {
	t.Parallel()
	forDocs(t, func(t *testing.T, name, built string) {
		j := newDocJob(t, name, built)
		j.env = append(j.env, "YOUTUBE_API_KEY=")
		j.keyless(append(slices.Clone(j.command), "US")...)
	})
	t.Run("search.sh", func(t *testing.T) {
		w := newDocWay(t, "docs/shell.md", 150)
		w.env = append(w.env, "YOUTUBE_API_KEY=")
		w.write("search.sh", w.block("sh", "search.sh"))
		w.keyless("./search.sh", "cats")
	})
}

// keyless runs a program that must miss its key, and charge and ask for nothing. Shells
// differ in the exit code.
func (j *docJob) keyless(command ...string) {
	j.t.Helper()
	said := j.run(9, "sh", "-c", strings.Join(command, " ")+" 2>&1 || exit 9")
	check.Contains(j.t, string(said), "YOUTUBE_API_KEY: set it to your key", "it said", said)
	j.spent(0)
}

// The same programs as jobs of the daemon.
func TestDocumentedJobsUnderTheDaemon(t *testing.T) {
	t.Parallel()
	forDocs(t, func(t *testing.T, name, built string) {
		j := newDocJob(t, name, built)
		if name == "go whole" {
			j.edit(`["./fetch", `, `["./fetch", "-whole", `)
		}
		var answer struct {
			Passes []struct {
				Outcome string
				Units   int64
				Runs    []struct {
					Region, Outcome, Reason string
					Units                   int64
				}
			}
		}
		must.Do(t, json.Unmarshal(j.run(0, "quotactl", "run", "--once", "--json"), &answer))
		must.Equal(t, len(answer.Passes), 1)
		must.Equal(t, len(answer.Passes[0].Runs), 2)
		reason, units := "exit 75", j.limit
		if j.whole {
			units = pages
		}
		if name == "whole" {
			reason = "limit" // its needs say that it need not start
		}
		pass, first, second := answer.Passes[0], answer.Passes[0].Runs[0], answer.Passes[0].Runs[1]
		if pass.Outcome != "exhausted" || pass.Units != units || first.Outcome != "succeeded" || first.Units != pages ||
			second.Outcome != "exhausted" || second.Reason != reason || second.Units != units-pages {
			t.Errorf("%+v", pass)
		}
		j.spent(units)
		j.has("US.ndjson", pages)
	})
}
