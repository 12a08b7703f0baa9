package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
)

// scanned is a folder in which quotactl runs with secrets, and what is scanned.
// The secrets' own files lie elsewhere.
type scanned struct {
	*secrets
	t        *testing.T
	dir      string // configuration, state, outputs
	hidden   string // the files that hold secrets
	upstream *tellTale
	env      []string
}

// scanConfig has a job for each way of sending a secret, one that is commands,
// and some whose upstreams cannot be reached. The outputs named mirror hold
// pages that hold the secret: an upstream's answers are kept unchanged.
const scanConfig = `
[upstream.api.costs]
get = 1
[upstream.api.limit.daily]
limit  = 1_000_000
window = "24h"
[upstream.api.credential.query]
secret_env = "SCAN_QUERY"
[upstream.api.credential.header]
secret_file = "HIDDEN/header"
[upstream.api.credential."*"]
secret_env = "SCAN_STAR"

[job.query]
budget   = "api/query"
schedule = "@every 2s"
regions  = [KINDS]
[job.query.fetch]
operation = "get"
url       = "PLAIN/{job}/{region}"
secret    = { query = "key" }
next_page = { param = "page", from = "next" }
output    = "data/{job}/{region}/{tick}.ndjson"

[job.header]
budget   = "api/header"
schedule = "@every 2s"
regions  = [KINDS]
[job.header.fetch]
operation = "get"
url       = "PLAIN/{job}/{region}?tick={tick}"
secret    = { header = "X-Api-Key", prefix = "Token " }
next_page = { param = "page", from = "next" }
output    = "data/{job}/{region}/{tick}.ndjson"

[job.star]
budget   = "api/shop1"
schedule = "@every 2s"
regions  = [KINDS]
[job.star.fetch]
operation = "get"
url       = "PLAIN/{job}/{region}"
secret    = { query = "key" }
output    = "data/{job}/{region}/{tick}.ndjson"

[job.tls]
budget   = "api/query"
schedule = "@every 2s"
[job.tls.fetch]
operation = "get"
url       = "SECURE/ok"
secret    = { query = "key" }
output    = "data/{job}/{tick}.ndjson"

[job.dial]
budget   = "api/query"
schedule = "@every 2s"
[job.dial.fetch]
operation = "get"
url       = "http://127.0.0.1:1/ok"
secret    = { query = "key" }
output    = "data/{job}/{tick}.ndjson"

[job.proxied]
budget   = "api/query"
schedule = "@every 2s"
[job.proxied.fetch]
operation = "get"
url       = "http://upstream.invalid/ok"
secret    = { query = "key" }
output    = "data/{job}/{tick}.ndjson"

[job.command]
budget   = "api/query"
schedule = "@every 2s"
regions  = ["US", "GB"]
command  = ["./tell.sh", "{job}", "{region}", "{run}", "{tick}"]
`

// tellScript writes down how it and quotactl were called, and prints what the
// secrets' owner would not want to see in a log.
const tellScript = `#!/bin/sh
if [ -r /proc/self/cmdline ]; then
  cat /proc/$$/cmdline /proc/$PPID/cmdline >"arguments.$2.$$"
else
  ps -o command= -p "$$" -p "$PPID" >"arguments.$2.$$"
fi
cat "$SCAN_SAY" "$SCAN_SAY.store"
echo "$SCAN_QUERY" >&2
echo "store: $QUOTACTL_STORE"
printf 'unfinished %s' "$SCAN_STAR"
quotactl charge "$QUOTACTL_BUDGET" get
`

func newScanned(t *testing.T, s *secrets) *scanned {
	t.Helper()
	w := &scanned{secrets: s, t: t, dir: t.TempDir(), hidden: t.TempDir(), upstream: newTellTale(t)}
	w.write(w.hidden, "header", w.byName["header"]+"\n")
	var say strings.Builder
	for _, name := range []string{"query", "header", "star"} {
		say.WriteString(w.inAllWays(name))
	}
	w.write(w.hidden, "say", say.String())
	w.write(w.hidden, "say.store", w.inAllWays("store"))
	w.write(w.hidden, "store", w.byName["store"]+"\n")
	w.write(w.dir, "tell.sh", tellScript)
	must.Do(t, os.Chmod(filepath.Join(w.dir, "tell.sh"), 0o700)) //nolint:gosec // a program
	w.env = append(os.Environ(), "SCAN_QUERY="+w.byName["query"], "SCAN_STAR="+w.byName["star"], "SCAN_STORE="+w.byName["store"],
		"SCAN_SAY="+filepath.Join(w.hidden, "say"), "SCAN_UNRELATED="+w.byName["unrelated"],
		"HTTP_PROXY=http://user:"+url.QueryEscape(w.byName["proxy"])+"@127.0.0.1:1", "NO_PROXY=127.0.0.1", "GORACE=atexit_sleep_ms=0")
	return w
}

// inAllWays is a secret as a command may print it.
func (w *scanned) inAllWays(name string) string {
	var text strings.Builder
	for form, way := range ways {
		fmt.Fprintf(&text, "%s as %s: %s\n", name, form, way(w.byName[name]))
	}
	return text.String()
}

func (w *scanned) write(dir, name, text string) {
	w.t.Helper()
	must.Do(w.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

// config writes a configuration with this [store] table.
func (w *scanned) config(name, store string) {
	w.t.Helper()
	var list []string
	for _, kind := range kinds() {
		list = append(list, fmt.Sprintf("%q", kind))
	}
	text := "[store]\n" + store + scanConfig
	for from, to := range map[string]string{
		"HIDDEN": w.hidden, "PLAIN": w.upstream.plain.URL, "SECURE": w.upstream.secure.URL, "KINDS": strings.Join(list, ", "),
	} {
		text = strings.ReplaceAll(text, from, to)
	}
	w.write(w.dir, name, text)
}

// process is quotactl with these arguments, before its start. Its own arguments
// hold no secret unless a person put one there.
func (w *scanned) process(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.t.Context(), "quotactl", args...)
	cmd.Dir, cmd.Env = w.dir, w.env
	return cmd
}

// quotactl runs it to its end with an exit code, scans what it says, and
// returns that.
func (w *scanned) quotactl(code int, args ...string) string {
	w.t.Helper()
	return w.with(nil, code, args...)
}

// with is quotactl with more in its environment.
func (w *scanned) with(env []string, code int, args ...string) string {
	w.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := w.process(args...)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		w.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		w.t.Errorf("quotactl %q: exit code %d, want %d\n%s%s", args, got, code, &stdout, &stderr)
	}
	w.absent(fmt.Sprintf("stdout of quotactl %q", args), stdout.Bytes())
	w.absent(fmt.Sprintf("stderr of quotactl %q", args), stderr.Bytes())
	return stdout.String() + stderr.String()
}

// get asks the daemon, or the sandbox, and scans what it answers.
func (w *scanned) get(address string, header http.Header) string {
	w.t.Helper()
	request := must.Get(http.NewRequestWithContext(w.t.Context(), http.MethodGet, address, nil))(w.t)
	for name, values := range header {
		request.Header[name] = values
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	must.Do(w.t, err)
	body, err := io.ReadAll(response.Body)
	must.Do(w.t, errors.Join(err, response.Body.Close()))
	w.absent("GET "+request.URL.Path, fmt.Append(body, response.Header))
	return string(body)
}
