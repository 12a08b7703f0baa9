package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// built builds a program with go build: this one, or that of a Go file.
func built(t testing.TB, build *exec.Cmd, name, source string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	build.Args = append(build.Args, "-o", program)
	if source != "" {
		file := filepath.Join(t.TempDir(), name+".go")
		must.Do(t, os.WriteFile(file, []byte(source), 0o600))
		build.Args = append(build.Args, file)
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return program
}

// What a package of ours may allocate before main: tables and errors, but no patterns.
const (
	mostInitBytes  = 8 << 10
	mostInitAllocs = 100
)

// No package of ours compiles anything before it is needed: every command would pay for it.
func TestNothingIsCompiledAtStart(t *testing.T) {
	effort.Processes(t)
	t.Parallel()
	// Built as the tests are, the program takes seconds: all packages are compiled.
	program := built(t, exec.CommandContext(t.Context(), "go", "build"), "quotactl", "")
	command := exec.CommandContext(t.Context(), program, "version")
	command.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	command.Stderr = &trace
	must.Do(t, command.Run())
	inits := regexp.MustCompile(`(?m)^init (github\.com/quotactl/\S+) @.*, (\d+) bytes, (\d+) allocs$`).FindAllStringSubmatch(trace.String(), -1)
	for _, init := range inits {
		size, allocs := must.Get(strconv.Atoi(init[2]))(t), must.Get(strconv.Atoi(init[3]))(t)
		if size > mostInitBytes || allocs > mostInitAllocs {
			t.Errorf("%s takes %d bytes in %d allocations before main, want at most %d in %d: make it when it is first used", init[1], size, allocs, mostInitBytes, mostInitAllocs)
		}
	}
	if len(inits) < 5 {
		t.Errorf("only %d packages in the trace:\n%s", len(inits), trace.String())
	}
}

const oneJob = `
[upstream.shop.costs]
get = 1
[upstream.shop.limit.day]
limit = 1_000_000_000
window = "24h"
[upstream.shop.credential.main]
`

// A charge reads the table of its own job, and no other: a fault elsewhere is for check.
func TestChargeReadsItsOwnJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "costs.toml")
	must.Do(t, os.WriteFile(file, []byte(oneJob+"[job.mine]\nbudget = \"shop/main\"\nschedule = \"0 * * * *\"\ncommand = [\"true\"]\nfloor = 999_999_999\n[job.other]\nbudgt = \"shop/main\"\n"), 0o600))
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"check", exitUsage, `costs.toml:14: unknown key "budgt"`},
		{"charge shop/main get", exitDone, ""},
		{"charge shop/main get --job nobody", exitDone, ""},
		{"charge shop/main get --job mine", exitExhausted, "999999999 must remain (the floor of job mine)"},
		{"charge shop/main get --job other", exitUsage, `costs.toml:14: unknown key "budgt"`},
		{"charge shop/main get --job othr", exitDone, `has no job "othr", and no share for it; did you mean "other"?`},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"-c", file}, strings.Fields(c.args)...)
		code := run(t.Context(), args, &out, &errs, func(string) (string, bool) { return "", false })
		check.Equal(t, code, c.code, c.args, errs.String())
		check.Contains(t, errs.String()+out.String(), c.says)
	}
}

// manyJobs is a configuration with so many jobs.
func manyJobs(jobs int) string {
	var b strings.Builder
	b.WriteString(oneJob)
	for i := range jobs {
		fmt.Fprintf(&b, `
[job.made-%d]
budget   = "shop/main"
schedule = "%d */3 * * *"
timezone = "UTC"
regions  = ["US", "GB", "DE", "FR"]
stagger  = "8m"
[job.made-%[1]d.fetch]
operation = "get"
url       = "https://shop.example/get?region={region}"
output    = "data/{job}/{region}/{tick}.ndjson"
`, i, i%60)
	}
	return b.String()
}
