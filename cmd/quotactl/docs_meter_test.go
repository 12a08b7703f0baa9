package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/upstreamtest"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

const meterPage = "docs/meter.md"

// newDocMeter is a folder with the program and the configuration of docs/meter.md. The upstream
// has the API's own name: a company's proxy leads there, which the environment names.
func newDocMeter(t *testing.T, quota int64) *docWay {
	t.Helper()
	effort.Processes(t)
	t.Parallel()
	w := &docWay{&docJob{t: t, dir: t.TempDir()}, meterPage}
	began := time.Now() // the upstream's day does not end during the test
	w.upstream = must.Get(sandbox.New(sandbox.Config{Quota: quota, Now: func() time.Time { return began }}))(t)
	t.Cleanup(func() { check.NoError(t, w.upstream.Close()) })
	in := upstreamtest.Start(t, w.upstream.ServeHTTP, "www.googleapis.com")
	w.env = append(os.Environ(), "YOUTUBE_API_KEY="+testKey, "GORACE=atexit_sleep_ms=0", "SSL_CERT_FILE="+in.Cert,
		"HTTPS_PROXY="+in.Proxy.String(), "https_proxy="+in.Proxy.String(), "NO_PROXY=", "no_proxy=")
	w.write("nightly.py", w.block("python", "nightly.py"))
	w.run(0, "sh", "-ec", w.block("sh", "init"))
	w.patient()
	return w
}

var aReturn = regexp.MustCompile(`until (\w+ )?\d\d:\d\d(:\d\d)? \(in \S+\)`)

// said runs a block, and holds what it says to the page, but for when units return. skip is what
// may be before that: Python says why it stops unless it was ended before.
func (w *docWay) said(name, skip string) {
	w.t.Helper()
	got := string(w.run(0, "sh", "-c", "exec 2>&1\n"+w.block("sh", name)))
	if at := strings.Index(got, skip); at > 0 {
		got = got[at:]
	}
	same := func(text string) string { return aReturn.ReplaceAllString(text, "until THEN") }
	check.Equal(w.t, same(got), same(w.block("text", name)), w.page, name)
}

// The program of docs/meter.md is charged for what the upstream counts, and a call that is refused
// does not reach it.
func TestDocumentedMeter(t *testing.T) {
	w := newDocMeter(t, 10_000)
	w.said("first", "")
	w.spent(3)
	w.said("refused", "quotactl: ")
	w.spent(3)
}

// A job that cron starts, as docs/meter.md has it: its run is recorded and planned.
func TestDocumentedMeterOfCron(t *testing.T) {
	w := newDocMeter(t, 10_000)
	config := filepath.Join(w.dir, "costs.toml")
	must.Do(t, os.WriteFile(config, append(must.Get(os.ReadFile(config))(t), w.block("toml", "watched")...), 0o600))
	w.run(0, "quotactl", "check")
	said := string(w.run(0, "sh", "-ec", w.block("sh", "watched")))
	for _, part := range []string{"succeeded      3 ", "30 2 * * * Europe/Berlin", "(cron)", "3 configured", "fits: "} {
		check.Contains(t, said, part)
	}
	w.spent(3)
}

// A first look at the program needs no configuration and charges nothing, and what it drafts is the
// preset, by which the program is charged.
func TestDocumentedMeterObserves(t *testing.T) {
	w := newDocMeter(t, 10_000)
	must.Do(t, os.Remove(filepath.Join(w.dir, "costs.toml")))
	w.said("look", "")
	check.Equal(t, w.upstream.Usage().Requests, 3, "requests")
	made := must.Get(filepath.Glob(filepath.Join(w.dir, "*.db")))(t)
	check.Equal(t, len(made), 0, "ledgers")
	must.Do(t, os.Rename(filepath.Join(w.dir, "draft.toml"), filepath.Join(w.dir, "costs.toml")))
	w.patient()
	w.run(0, "quotactl", "meter", "--", "python3", "nightly.py")
	check.Equal(t, w.upstream.Usage().Requests, 6, "requests")
	check.Contains(t, string(w.run(0, "quotactl", "ledger", "youtube/key1")), "videos.list      3")
}

// The crontabs of the README and of docs/meter.md, with the variables that cron gives.
func TestDocumentedMeterCrontab(t *testing.T) {
	w := newDocMeter(t, 10_000)
	program := filepath.Dir(must.Get(exec.LookPath("quotactl"))(t))
	python := filepath.Dir(must.Get(exec.LookPath("python3"))(t))
	own := slices.DeleteFunc(slices.Clone(w.env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !slices.Contains([]string{"YOUTUBE_API_KEY", "GORACE", "SSL_CERT_FILE", "HTTPS_PROXY"}, name)
	})
	for page, want := range map[string]string{"README.md": `^quotactl: nightly: 3 calls, 3 units of youtube/key1, [\d,]+ left in limit pool until .*\n$`, meterPage: "^$"} {
		crontab := strings.NewReplacer("/home/ann", w.dir, "/etc/quotactl", w.dir, "PATH=", "PATH="+program+":"+python+":").
			Replace((&docWay{w.docJob, page}).block("crontab"))
		w.env = append(slices.Clone(own), "HOME="+w.dir)
		for line := range strings.Lines(crontab) {
			command, fires := strings.CutPrefix(strings.TrimSpace(line), "30 2 * * * ")
			if !fires {
				w.env = append(w.env, command)
				continue
			}
			said := string(w.run(0, "/bin/sh", "-c", "("+command+") 2>&1 >/dev/null"))
			if !regexp.MustCompile(want).MatchString(said) {
				t.Errorf("%s: it mails %q, want %s", page, said, want)
			}
		}
	}
	w.spent(6)
}

// What the upstream answers locks the budget: the next run sends nothing.
func TestDocumentedMeterHears(t *testing.T) {
	w := newDocMeter(t, 2)
	w.run(1, "quotactl", "meter", "--", "python3", "nightly.py")
	sent := w.upstream.Usage()
	must.Equal(t, sent.Rejected, 1, "calls rejected")
	w.run(75, "quotactl", "meter", "--", "python3", "nightly.py")
	check.Equal(t, w.upstream.Usage(), sent, "after a second run, the upstream counts")
}

// The exit codes of docs/meter.md that TestMeterExits leaves out.
func TestDocumentedMeterExitCodes(t *testing.T) {
	w := newDocMeter(t, 10_000)
	meter := func(code int, line string) {
		t.Helper()
		w.run(code, "sh", "-c", "quotactl meter "+line)
	}
	const api = "https://www.googleapis.com/youtube/v3"
	meter(126, "-- ./costs.toml/none")
	meter(137, "-- sh -c 'kill -9 $$'")
	meter(exitUnavailable, "--store redis://127.0.0.1:1 -- curl -sSf "+api+"/videos")
	meter(0, "--store redis://127.0.0.1:1 -- curl -sS "+api+"/videos")
	w.run(0, "quotactl", "lock", "youtube/key1", "--for", "2h")
	meter(0, "--keep-exit -- curl -sS "+api+"/videos")
	meter(0, "--keep-exit --on-refusal continue --job nightly -- curl -sS "+api+"/videos")
	meter(143, "--keep-exit --job nightly -- sh -c 'curl -sS "+api+"/videos; while :; do sleep 1; done'")
	w.run(0, "quotactl", "unlock", "youtube/key1")
	config := string(must.Get(os.ReadFile(filepath.Join(w.dir, "costs.toml")))(t))
	w.write("costs.toml", config+"\n[upstream.youtube.credential.key2]\n")
	meter(exitUsage, "-- curl -sS "+api+"/videos")
	meter(0, "--budget youtube/key2 -- curl -sS "+api+"/videos")
	meter(0, "-- curl -sS "+api+"/videos?key="+testKey)
}

// The table of docs/meter.md has the variables that a program finds changed, and no other.
func TestDocumentedMeterEnvironment(t *testing.T) {
	w := newDocMeter(t, 10_000)
	table := regexp.MustCompile(`(?s)\| variables \| why \|\n(.*?)\n\n`).FindStringSubmatch(documents(t)[meterPage])
	must.Equal(t, len(table), 2, "tables of variables")
	var listed []string
	for line := range strings.Lines(table[1]) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(cell, -1) {
			listed = append(listed, name[1])
		}
	}
	w.env = append(w.env, "YOUTUBE_API_KEY=", "SSL_CERT_DIR=/etc/ssl", "npm_config_cafile=/etc/ssl", "CURL_CA_BUNDLE=/etc/ssl")
	before, err := (&exec.Cmd{Path: "/usr/bin/env", Env: w.env}).Output()
	must.Do(t, err)
	args := []string{"quotactl", "meter", "-q"}
	if _, err := os.Stat("/proc/net/tcp"); err == nil {
		args = append(args, "--java")
	}
	after := w.run(0, append(args, "--", "/usr/bin/env")...)
	changed := map[string]bool{}
	for _, pair := range [][2]string{{string(before), string(after)}, {string(after), string(before)}} {
		for entry := range strings.Lines(pair[0]) {
			name, _, _ := strings.Cut(entry, "=")
			changed[name] = changed[name] || !strings.Contains("\n"+pair[1], "\n"+entry)
		}
	}
	for _, name := range listed {
		check.Equal(t, changed[name], true, name, "is changed:")
	}
	for name, is := range changed {
		if is && !slices.Contains(listed, name) {
			t.Errorf("%s lists no %s, which is changed", meterPage, name)
		}
	}
}
