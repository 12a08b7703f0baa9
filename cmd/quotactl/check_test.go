package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

var update = flag.Bool("update", false, "write what is shown into what is expected")

// noEnv is an environment without variables.
func noEnv(string) (string, bool) { return "", false }

// everySecret is an environment in which each secret is set.
func everySecret(name string) (string, bool) {
	if strings.HasPrefix(name, "QUOTACTL_") {
		return "", false
	}
	return "long enough", true
}

// runAt runs the program in this process at a fixed time.
func runAt(t *testing.T, now time.Time, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return runIn(t, noEnv, now, args...)
}

// runIn runs the program in this process, in an environment and at a fixed time.
func runIn(t *testing.T, env func(string) (string, bool), now time.Time, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, env: env, now: func() time.Time { return now }}
	code = a.execute(t.Context(), args)
	return out.String(), errs.String(), code
}

// Each configuration of testdata is checked against the whole of what check
// says about it.
func TestCheckConfigs(t *testing.T) {
	for kind, want := range map[string]struct{ code, least int }{"good": {exitDone, 5}, "bad": {exitUsage, 20}} {
		dir := must.Get(filepath.Abs(filepath.Join("..", "..", "testdata", "config", kind)))(t)
		files, err := filepath.Glob(filepath.Join(dir, "*.toml"))
		if err != nil || len(files) < want.least {
			t.Fatalf("%d %s configurations, error %v; want %d or more", len(files), kind, err, want.least)
		}
		for _, file := range files {
			t.Run(kind+"/"+filepath.Base(file), func(t *testing.T) {
				t.Chdir(dir)
				now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
				stdout, stderr, code := runIn(t, everySecret, now, "check", "-c", filepath.Base(file))
				check.Equal(t, code, want.code, "exit code")
				got := stdout + stderr
				golden := strings.TrimSuffix(file, ".toml") + ".txt"
				if *update {
					must.Do(t, os.WriteFile(golden, []byte(got), 0o644))
				}
				says := must.Get(os.ReadFile(golden))(t)
				if got != string(says) {
					t.Errorf("check says\n%s\nwant\n%s", got, says)
				}
			})
		}
	}
}
