package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/upstreamtest"
	"github.com/quotactl/quotactl/jobs"
)

// eveningScripts are nine scripts in five languages as a team may have them. Each takes its key from
// the environment, calls one path of the API so many times, and ends at the first error.
var eveningScripts = map[string]string{
	"trending.sh": "#!/bin/sh\nset -e\nfor n in $(seq 6); do curl -sSf -H \"X-Api-Key: $SHOP_KEY_A\" \"https://api.shop.example/v1/trending?page=$n\"; done\n",
	"orders.sh":   "#!/bin/sh\nset -e\nfor n in $(seq 10); do curl -sSf -H \"X-Api-Key: $SHOP_KEY_B\" \"https://api.shop.example/v1/orders/4711$n\"; done\n",
	"nightly.py":  pythonScript("SHOP_KEY_A", "/v1/listings", 20),
	"reviews.py":  pythonScript("SHOP_KEY_B", "/v1/reviews", 8),
	"stock.py":    pythonScript("SHOP_KEY_A", "/v1/stock", 5),
	"prices.mjs":  nodeScript("SHOP_KEY_A", "/v1/prices", 7),
	"images.mjs":  nodeScript("SHOP_KEY_B", "/v1/images", 4),
	"report.php": `<?php
foreach (range(1, 6) as $n) {
    $c = curl_init("https://api.shop.example/v1/report?page=$n");
    curl_setopt_array($c, [CURLOPT_RETURNTRANSFER => true, CURLOPT_FAILONERROR => true, CURLOPT_HTTPHEADER => ["X-Api-Key: " . getenv("SHOP_KEY_B")]]);
    if (curl_exec($c) === false) { fwrite(STDERR, curl_error($c) . "\n"); exit(1); }
}
`,
	"backfill.go": `package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	for n := range 60 {
		req, err := http.NewRequest(http.MethodGet, fmt.Sprint("https://api.shop.example/v1/archive?page=", n), nil)
		if err != nil {
			panic(err)
		}
		req.Header.Set("X-Api-Key", os.Getenv("SHOP_KEY_A"))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			panic(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			fmt.Fprintln(os.Stderr, resp.Status)
			os.Exit(1)
		}
	}
}
`,
}

func pythonScript(key, path string, calls int) string {
	return fmt.Sprintf(`import os, urllib.request
for n in range(%d):
    request = urllib.request.Request("https://api.shop.example%s?page=%%d" %% n, headers={"X-Api-Key": os.environ["%s"]})
    urllib.request.urlopen(request).read()
`, calls, path, key)
}

func nodeScript(key, path string, calls int) string {
	return fmt.Sprintf(`import https from "node:https";
for (let n = 0; n < %d; n++) {
  await new Promise((done, fail) => https.get("https://api.shop.example%s?page=" + n, { headers: { "X-Api-Key": process.env.%s } }, (answer) => {
    if (answer.statusCode !== 200) fail(new Error("status " + answer.statusCode));
    answer.resume().on("end", done);
  }).on("error", fail));
}
`, calls, path, key)
}

// evening is a newcomer's machine: scripts, a crontab, and an API that grants each key so much a day.
type evening struct {
	*program
	crontab []string // commands in their order
	hook    *hookServer

	mu     sync.Mutex
	served map[string]int // calls that the API has counted, by key
	beyond int            // calls beyond a key's quota
}

const eveningQuota = 60 // of the API, for each key

func newEvening(t *testing.T) *evening {
	t.Helper()
	e := &evening{served: map[string]int{}, hook: newHookServer(t)}
	in := upstreamtest.Start(t, e.answer, "api.shop.example")
	e.program, _ = newMeter(t, 1)
	must.Do(t, os.Remove(filepath.Join(e.Dir, "costs.toml")))
	e.Env = append(e.Env, "HTTPS_PROXY="+in.Proxy.String(), "https_proxy="+in.Proxy.String(), "SSL_CERT_FILE="+in.Cert,
		"SHOP_KEY_A=key-a-of-the-team", "SHOP_KEY_B=key-b-of-the-team", "HOOK="+e.hook.URL)
	for name, text := range eveningScripts {
		must.Do(t, os.WriteFile(filepath.Join(e.Dir, name), []byte(text), 0o700))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "backfill", "backfill.go")
	build.Dir = e.Dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the script in Go does not compile: %v\n%s", err, out)
	}
	for _, name := range []string{"php", "node", "python3"} {
		installed(t, name)
	}
	e.crontab = []string{"./trending.sh", "python3 stock.py", "node prices.mjs", "./orders.sh", "python3 reviews.py", "node images.mjs", "php report.php", "./backfill", "python3 nightly.py"}
	return e
}

// answer is the API's: it refuses what is beyond a key's quota.
func (e *evening) answer(w http.ResponseWriter, req *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := req.Header.Get("X-Api-Key")
	if e.served[key]++; e.served[key] > eveningQuota {
		e.beyond++
		w.WriteHeader(http.StatusForbidden)
		return
	}
	w.Header().Set("X-RateLimit-Limit", fmt.Sprint(eveningQuota))
	_, _ = fmt.Fprintln(w, "{}")
}

// newDay has the API count anew. It returns what it had counted.
func (e *evening) newDay() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	served := e.served
	e.served = map[string]int{}
	return served
}

// runs runs quotactl, or another command, and holds it to exit codes.
func (e *evening) does(codes []int, name string, args ...string) string {
	e.t.Helper()
	cmd := exec.CommandContext(e.t.Context(), name, args...)
	cmd.Dir, cmd.Env = e.Dir, e.Env
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || !slices.Contains(codes, cmd.ProcessState.ExitCode()) {
		e.t.Errorf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// jobOf is what the newcomer calls a line of the crontab.
func jobOf(command string) string {
	words := strings.Fields(command)
	name, _, _ := strings.Cut(strings.TrimPrefix(words[len(words)-1], "./"), ".")
	return name
}

// A newcomer with nine scripts in five languages and two keys looks at what they call, has a
// configuration drafted, puts one command before each line of the crontab, and says which job matters:
// it gets its units although another would take them all, an alert comes before, every run is known,
// and the API refuses nothing.
func TestNewcomersEvening(t *testing.T) {
	t.Parallel()
	e := newEvening(t)
	all := "set -e\n" + strings.Join(slices.DeleteFunc(slices.Clone(e.crontab), func(line string) bool { return jobOf(line) == "backfill" }), "\n") // backfill would take all
	e.does([]int{0}, "quotactl", "meter", "--observe=api.shop.example", "--draft", "costs.toml", "--", "sh", "-c", all)
	check.Equal(t, e.newDay()["key-a-of-the-team"], 38, "calls that were observed")
	e.configure()
	check.Contains(t, e.does([]int{0}, "quotactl", "check"), "costs.toml is OK")

	// The night does not fit; nightly does.
	said := e.does([]int{75}, "quotactl", "plan", "--check", "--for", "12h")
	check.Contains(t, said, "backfill")
	var planned answer.Plan
	must.Do(t, json.Unmarshal([]byte(e.does([]int{75}, "quotactl", "plan", "--check", "--for", "12h", "--json")), &planned))
	for _, job := range planned.Jobs {
		if job.Job != "backfill" && job.Passes > 0 {
			check.Equal(t, job.Complete, job.Passes, job.Job, "is planned complete")
		}
	}
	daemon := e.also("run", "--listen", "127.0.0.1:0", "--log-format", "text")
	daemon.start()
	e.hook.await(t, "forecast")
	check.Equal(t, len(e.newDay()), 0, "calls before the night")

	for _, command := range e.crontab {
		e.does([]int{0, 75}, "quotactl", slices.Concat([]string{"meter", "-q", "--job", jobOf(command), "--"}, strings.Fields(command))...)
	}

	served := e.newDay()
	check.Equal(t, e.beyond, 0, "calls beyond the quota")
	outcomes, units := map[string]string{}, map[string]int64{}
	var runs answer.Runs
	must.Do(t, json.Unmarshal([]byte(e.does([]int{0}, "quotactl", "runs", "--json", "-n", "100")), &runs))
	for _, run := range runs.Runs {
		if run.Outcome == jobs.Missed { // of ticks that came while the test ran
			continue
		}
		outcomes[run.Job] += string(run.Outcome)
		must.Equal(t, run.Units != nil, true, run.Job, "units are known")
		units[run.Job] += *run.Units
	}
	total := int64(0)
	for _, command := range e.crontab {
		want := jobs.Succeeded
		if jobOf(command) == "backfill" {
			want = jobs.Exhausted
		}
		check.Equal(t, outcomes[jobOf(command)], string(want), jobOf(command))
		total += units[jobOf(command)]
	}
	check.Equal(t, units["nightly"], 20, "units of nightly")
	check.Equal(t, total, int64(served["key-a-of-the-team"]+served["key-b-of-the-team"]), "units that the runs have, and calls that the API counted")

	page := e.get(daemon, "/runs")
	for _, command := range e.crontab {
		check.Contains(t, page, jobOf(command))
	}
	daemon.signal(syscall.SIGTERM)
	daemon.exits(0)
}

// configure fills in the draft: the quota, and the jobs that the crontab starts. nightly has its units
// kept for it, and an alert is sent.
func (e *evening) configure() {
	e.t.Helper()
	path := filepath.Join(e.Dir, "costs.toml")
	draft := string(must.Get(os.ReadFile(path))(e.t))
	check.Contains(e.t, draft, "SHOP_KEY_A")
	check.Contains(e.t, draft, "SHOP_KEY_B")
	check.Contains(e.t, draft, fmt.Sprint("quota = ", eveningQuota), "the quota that the API says")
	now := time.Now().UTC()
	var b strings.Builder
	b.WriteString(strings.Replace(draft, `window = "1h"`, `window = "24h"`, 1))
	calls := map[string]string{}
	for line := range strings.Lines(draft) { // the operations' names
		if name, rest, found := strings.Cut(line, " = { units = 1, match = "); found {
			_, path, _ := strings.Cut(rest, "/")
			calls["/"+strings.TrimRight(path, "\" }\n")] = strings.Trim(name, `"`)
		}
	}
	for _, command := range e.crontab {
		job, key, more := jobOf(command), "shop_key_a", ""
		needs, ok := eveningNeeds[job]
		must.Equal(e.t, ok, true, job)
		if needs.key == "B" {
			key = "shop_key_b"
		}
		if job == "nightly" {
			more = "[upstream.shop.share.nightly]\njobs = [\"nightly\"]\nunits = 20\n"
		}
		operation := cmp.Or(calls[needs.path], calls[needs.path+"/{id}"], "unknown")
		if job == "backfill" { // which was not observed
			operation = calls["/v1/listings"]
		}
		fmt.Fprintf(&b, "\n[job.%s]\nstarted_by = \"cron\"\nbudget = \"shop/%s\"\nschedule = \"%d %d * * *\"\ntimezone = \"UTC\"\nneeds = { %q = %d }\n%s",
			job, key, now.Minute(), now.Hour(), operation, needs.calls, more)
	}
	b.WriteString("\n[alert.team]\nurl_env = \"HOOK\"\n")
	must.Do(e.t, os.WriteFile(path, []byte(patientConfig(b.String())), 0o600))
}

// eveningNeeds are the calls of each job.
var eveningNeeds = map[string]struct {
	key, path string
	calls     int
}{
	"trending": {"A", "/v1/trending", 6}, "orders": {"B", "/v1/orders", 10}, "nightly": {"A", "/v1/listings", 20}, "reviews": {"B", "/v1/reviews", 8}, "stock": {"A", "/v1/stock", 5},
	"prices": {"A", "/v1/prices", 7}, "images": {"B", "/v1/images", 4}, "report": {"B", "/v1/report", 6}, "backfill": {"A", "/v1/archive", 60},
}

// get reads a page of a daemon.
func (e *evening) get(daemon *program, path string) string {
	e.t.Helper()
	daemon.logged(`listening`)
	text := string(must.Get(os.ReadFile(daemon.log))(e.t))
	_, after, _ := strings.Cut(text, "127.0.0.1:")
	port := after[:strings.IndexFunc(after, func(r rune) bool { return r < '0' || r > '9' })]
	return e.does([]int{0}, "curl", "-sSf", "http://127.0.0.1:"+port+path)
}

// hookServer takes alerts.
type hookServer struct {
	*httptest.Server
	mu   sync.Mutex
	text string
}

func newHookServer(t *testing.T) *hookServer {
	t.Helper()
	h := &hookServer{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.text += string(body) + "\n"
	}))
	t.Cleanup(h.Close)
	return h
}

// await waits for an alert with a word.
func (h *hookServer) await(t *testing.T, word string) {
	t.Helper()
	becomes(t, "an alert has "+word, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return strings.Contains(h.text, word)
	})
}
