package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// scanDaemon is the daemon of a folder, under way.
type scanDaemon struct {
	*program
	w *scanned
}

// daemon starts it; the log is in the hidden folder, so that a test scans it
// once, at the end.
func (w *scanned) daemon(args ...string) *scanDaemon {
	w.t.Helper()
	effort.Processes(w.t)
	p := &program{t: w.t, Cmd: w.process(append([]string{"run", "--now", "--listen", "127.0.0.1:0"}, args...)...)}
	p.log = filepath.Join(w.hidden, "log")
	var err error
	if p.file, err = os.Create(p.log); err != nil {
		w.t.Fatal(err)
	}
	said := must.Get(os.Create(filepath.Join(w.hidden, "stdout")))(w.t)
	w.t.Cleanup(func() { _ = said.Close() })
	p.Stderr, p.Stdout = p.file, said
	p.start()
	return &scanDaemon{p, w}
}

// scanned scans what the daemon has said and returns its log.
func (d *scanDaemon) scanned() string {
	d.t.Helper()
	text := must.Get(os.ReadFile(d.log))(d.t)
	d.w.absent("the daemon's log", text)
	said := must.Get(os.ReadFile(filepath.Join(d.w.hidden, "stdout")))(d.t)
	d.w.absent("the daemon's stdout", said)
	return string(text)
}

// asked scans what the daemon answers at each of its addresses.
func (d *scanDaemon) asked(address string) {
	d.t.Helper()
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/", "/metrics?key=x"} {
		if text := d.w.get(address+path, nil); strings.HasPrefix(path, "/metrics") && !strings.Contains(text, "quotactl_") {
			d.t.Errorf("%s has no metrics:\n%s", path, text)
		}
	}
}

// arguments scans those of the process itself, where the system shows them.
func (d *scanDaemon) arguments() {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(d.Process.Pid), "cmdline"))
	if os.IsNotExist(err) { // the commands' own look, by ps, is scanned on such systems
		return
	}
	if err != nil || !bytes.Contains(text, []byte("--listen")) {
		d.t.Errorf("arguments %q: %v", text, err)
	}
	d.w.absent("the daemon's arguments", text)
}

var listensAt = regexp.MustCompile(`"?address"?[=:]"?(http://[0-9.:]+)`)

// I9: nor is one in what the daemon says, answers and keeps, while it runs,
// drains, and is made to crash with a request that holds a secret under way.
func TestNoSecretLeavesTheDaemon(t *testing.T) {
	t.Parallel()
	s := scanSecrets(t)
	server := startRedis(t)
	must.Do(t, server.lock(t.Context(), s.byName["store"]))
	hang := `
[job.hang]
budget   = "api/query"
schedule = "@every 2s"
timeout  = "1h"
grace    = "0s"
[job.hang.fetch]
operation = "get"
url       = "PLAIN/hang"
secret    = { header = "X-Api-Key" }
output    = "data/{job}/{tick}.ndjson"
`
	for name, crash := range map[string]bool{"password_env": true, "password_file": false, "URL": true, "QUOTACTL_STORE": false} {
		for _, format := range []string{"text", "json"} {
			t.Run(name+" "+format, func(t *testing.T) {
				w := newScanned(t, s.in(t))
				store := scanStores(s, server.Addr, w.hidden)[name]
				w.env = append(w.env, store.env...)
				w.env = append(w.env, "GOTRACEBACK=all")
				// A crash leaves its jobs' marks behind: each daemon has its own.
				w.config("costs.toml", store.table+fmt.Sprintf("prefix = %q\n", name+"."+format))
				file := filepath.Join(w.dir, "costs.toml")
				config := must.Get(os.ReadFile(file))(t)
				w.write(w.dir, "costs.toml", string(config)+strings.ReplaceAll(hang, "PLAIN", w.upstream.plain.URL))
				d := w.daemon("--log-level", "debug", "--log-format", format)
				d.logged(listensAt.String())
				for _, job := range []string{"query", "header", "star", "tls", "dial", "proxied", "command"} {
					d.logged(`pass ended.*job"?[=:]"?` + job)
				}
				<-w.upstream.hung
				d.asked(listensAt.FindStringSubmatch(d.scanned())[1])
				d.arguments()
				if !crash {
					d.signal(syscall.SIGTERM)
					d.exits(exitDone)
					d.scanned()
				} else {
					d.signal(syscall.SIGQUIT) // Go's own crash, which tells what every goroutine does
					d.exits(exitUsage)
					if text := d.scanned(); !strings.Contains(text, "goroutine 1 ") || !strings.Contains(text, "RoundTrip") {
						t.Errorf("no trace of a crash:\n%.2000s", text)
					}
				}
				if scanned := w.absentBelow(w.dir, excepted...); scanned < 5 {
					t.Errorf("%d files were scanned", scanned)
				}
			})
		}
	}
	client := server.client()
	if keys := s.absentInRedis(client); keys < 3 {
		t.Errorf("%d keys were scanned", keys)
	}
	check.NoError(t, client.Close())
}

// I9: a sandbox neither keeps nor shows the secrets that jobs send to it, and where it replaces
// the upstreams they send it none.
func TestNoSecretLeavesTheSandbox(t *testing.T) {
	t.Parallel()
	s := scanSecrets(t)
	w := newScanned(t, s)
	w.config("costs.toml", "url = \"sqlite:q.db\"\n")
	p := &program{t: t, Cmd: w.process("sandbox", "--log", "requests.log")}
	p.log = filepath.Join(w.hidden, "log")
	var err error
	if p.file, err = os.Create(p.log); err != nil {
		t.Fatal(err)
	}
	p.Stdout, p.Stderr = p.file, p.file
	p.start()
	p.logged(`listening on http://`)
	text := must.Get(os.ReadFile(p.log))(t)
	address := regexp.MustCompile(`http://\S+`).FindString(string(text))
	secret := s.byName["query"]
	for _, path := range []string{
		"/youtube/v3/videos?part=id&chart=mostPopular&key=" + url.QueryEscape(secret),
		"/youtube/v3/videos?part=id&chart=mostPopular&access_token=" + url.QueryEscape(secret),
		"/youtube/v3/videos?part=id&chart=mostPopular&oauth_token=" + url.QueryEscape(secret),
		"/youtube/v3/videos?part=id&chart=mostPopular&api_key=" + url.QueryEscape(secret) + "&key=k",
		"/youtube/v3/videos?part=id&chart=mostPopular&key=k%zz" + url.QueryEscape(secret),
		"/youtube/v3/videos?key=" + url.QueryEscape(secret) + ";part=id",
		"/_sandbox/usage?key=" + url.QueryEscape(secret),
	} {
		w.get(address+path, nil)
		w.get(address+"/youtube/v3/videos?part=id&chart=mostPopular", http.Header{
			"X-Goog-Api-Key": {secret}, "Authorization": {"Bearer " + secret}, "Cookie": {"key=" + secret},
		})
	}
	w.get(address+"/_sandbox/usage", nil)
	p.signal(syscall.SIGTERM)
	p.exits(exitInterrupted)
	if text, err = os.ReadFile(p.log); err != nil {
		t.Fatal(err)
	}
	s.absent("what the sandbox says", text)
	if log, err := os.ReadFile(filepath.Join(w.dir, "requests.log")); err != nil || bytes.Count(log, []byte("\n")) < 7 {
		t.Errorf("the request log: %s, %v", log, err)
	}
	for _, args := range [][]string{{"run", "--once", "--sandbox"}, {"run", "--once", "--sandbox", "--json"}} {
		w.quotactl(exitFailed, append(args, "--log-level", "debug")...) // the sandbox has no such paths
	}
	w.quotactl(exitDone, "status", "--sandbox")
	if w.upstream.asked(secret)+w.upstream.asked(s.byName["star"]) > 0 {
		t.Error("the secret was sent")
	}
	if scanned := w.absentBelow(w.dir, "costs.toml"); scanned < 5 {
		t.Errorf("%d files were scanned", scanned)
	}
}
