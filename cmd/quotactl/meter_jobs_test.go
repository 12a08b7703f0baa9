package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/upstreamtest"
	"github.com/quotactl/quotactl/jobs"
)

// meteredJob prepares run --once of a job with these keys in front of a small internet.
func meteredJob(t *testing.T, quota int, keys, script string) (*program, *upstreamtest.Internet) {
	t.Helper()
	p, in := newMeter(t, quota)
	p.Args = []string{"quotactl", "run", "--once", "nightly", "--json"}
	config := fmt.Sprintf(meterConfig, quota) + "[job.nightly]\nbudget = \"shop/main\"\nschedule = \"@daily\"\nmeter = true\n" + keys +
		"\ncommand = [\"sh\", \"-c\", '''" + script + "''']\n"
	must.Do(t, os.WriteFile(filepath.Join(p.Dir, "costs.toml"), []byte(config), 0o600))
	return p, in
}

// passOf is the only pass of a run --once, after it has ended with a code.
func (p *program) passOf(code int) answer.Pass {
	p.t.Helper()
	p.start()
	p.exits(code)
	var got struct{ Passes []answer.Pass }
	must.Do(p.t, json.Unmarshal(p.out.Bytes(), &got))
	must.Equal(p.t, len(got.Passes), 1, "passes", p.out.String())
	return got.Passes[0]
}

// The calls of a job's command are counted where they arrive, in the ledger and in its runs: by
// region, with the labels of the run, through Python and what that starts.
func TestMeteredJob(t *testing.T) {
	t.Parallel()
	p, in := meteredJob(t, 10, `regions = ["US", "GB"]`, `exec python3 -c "
import os, subprocess, urllib.request
for path in 'ab':
    urllib.request.urlopen('https://api.example.com/v1/' + path).read()
subprocess.run(['curl', '-sS', 'https://api.example.com/v1/' + os.environ['QUOTACTL_REGION']], check=True)
"`)
	pass := p.passOf(0)
	check.Equal(t, len(in.Requests()), 6, "requests", in.Dialled())
	must.Equal(t, len(pass.Runs), 2, "runs")
	for _, run := range pass.Runs {
		check.Equal(t, run.Outcome, jobs.Succeeded, run)
		check.Equal(t, *run.Units, 3, run)
		check.Equal(t, len(run.Spent) == 1 && run.Spent[0].Operation == "get" && run.Spent[0].Calls == 3, true, run.Spent)
		check.Equal(t, run.Warning, "", "warning")
		check.Contains(t, strings.Join(run.Log, "\n"), "meter: nightly: 3 calls, 3 units of shop/main")
	}
	for _, by := range []string{"run", "region", "job"} {
		ledger := newProgram(t, "", "ledger", "shop/main", "--by", by)
		ledger.Dir = p.Dir
		ledger.start()
		ledger.exits(0)
		want := map[string]int{"run": 2, "region": 2, "job": 1}[by]
		check.Equal(t, strings.Count(ledger.out.String(), "\n"), 3+want, ledger.out.String())
		check.Contains(t, strings.Join(strings.Fields(ledger.out.String()), " "), "total 6 100.0% 6 0")
	}
}

// What a metered command's calls met decides how its run ends.
func TestMeteredJobEnds(t *testing.T) {
	t.Parallel()
	const one, two = `curl -sS https://api.example.com/v1/a`, `curl -sS https://api.example.com/v1/a https://api.example.com/v1/b`
	for name, c := range map[string]struct {
		keys, script string
		code         int
		outcome      jobs.Outcome
		reason       string
		warning      string
		units        int64
	}{
		"done":         {"", one, 0, jobs.Succeeded, "", "", 1},
		"exhausted":    {"retries = 3\nretry_wait = \"100ms\"", two + "; sleep 1000", 0, jobs.Exhausted, jobs.ReasonLimit, "", 1},
		"its code":     {"", two + "; exit 3", 0, jobs.Exhausted, jobs.ReasonLimit, "", 1},
		"failed":       {"", one + "; exit 3", 1, jobs.Failed, "exit 3", "", 1},
		"again":        {"retries = 1\nretry_wait = \"100ms\"", one + "; test -f again || { touch again; exit 3; }", 0, jobs.Exhausted, jobs.ReasonLimit, "", 1},
		"no call":      {"", "true", 0, jobs.Succeeded, "", "the meter saw no call to shop/main", 0},
		"no operation": {"", `curl -sS https://api.example.com/v2/a; ` + one, 0, jobs.Succeeded, "", "calls were refused: GET api.example.com/v2/a is no operation of upstream shop", 1},
		"nested":       {"", `quotactl meter --job nightly -- ` + one, 0, jobs.Succeeded, "", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, in := meteredJob(t, 1, c.keys, c.script)
			pass := p.passOf(c.code)
			must.Equal(t, len(pass.Runs), 1, "runs")
			run := pass.Runs[0]
			check.Equal(t, run.Outcome, c.outcome, run)
			check.Equal(t, run.Reason, c.reason, run)
			check.Equal(t, strings.HasPrefix(run.Warning, c.warning) && (c.warning != "" || run.Warning == ""), true, run.Warning)
			check.Equal(t, *run.Units, c.units, run)
			check.Equal(t, int64(len(in.Requests())), c.units, "requests")
			check.Equal(t, len(must.Get(filepath.Glob(filepath.Join(tempOf(p), "*")))(t)), 0, "files are left")
		})
	}
}

const keptConfig = `
[upstream.shop]
hosts  = ["api.example.com", "bad.example.com"]
secret = { %s }
[upstream.shop.costs]
get = { units = 1, match = "GET api.example.com/v1/" }
bad = { units = 1, match = "GET bad.example.com/v1/" }
[upstream.shop.limit.day]
quota  = 100
window = "24h"
[upstream.shop.credential.main]
secret_env = "TEST_KEY"
[upstream.second]
hosts  = ["second.example.com"]
secret = { header = "X-Second" }
[upstream.second.costs]
get = { units = 1, match = "GET second.example.com/v1/" }
[upstream.second.limit.day]
quota  = 100
window = "24h"
[upstream.second.credential.main]
secret_env = "TEST_SECOND"
[job.nightly]
budget      = "shop/main"
schedule    = "@daily"
meter       = true
keep_secret = true
regions     = ["US"%s]
command     = ["sh", "-c", '''%s''']
`

const (
	keptSecret   = "kept-s3cret/a+b&c"
	secondSecret = "second-s3cret"
)

// keptJob prepares run --once of a job whose secrets are kept from its command. secretIn says where
// the upstream's secret is sent.
func keptJob(t *testing.T, secretIn, regions, script string) (*program, *upstreamtest.Internet) {
	t.Helper()
	in := upstreamtest.Start(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Echo", req.Header.Get("Authorization")+" "+req.URL.RawQuery)
		switch req.URL.Path {
		case "/v1/away":
			http.Redirect(w, req, "https://other.example.com/x?"+req.URL.RawQuery, http.StatusFound)
		case "/v1/aside":
			http.Redirect(w, req, "https://api.example.com/v1/there?"+req.URL.RawQuery, http.StatusFound)
		case "/v1/plain":
			http.Redirect(w, req, "http://api.example.com/v1/there?"+req.URL.RawQuery, http.StatusFound)
		}
	}, "api.example.com", "other.example.com", "second.example.com")
	p := newProgram(t, "", "run", "--once", "nightly", "--json")
	p.reaches(in)
	p.Env = append(p.Env, "TEST_KEY="+keptSecret, "ALSO="+keptSecret, "IN_URL=https://user:"+keptSecret+"@example.com", "TEST_SECOND="+secondSecret, "QUOTACTL_TOKEN=t0ken")
	must.Do(t, os.WriteFile(filepath.Join(p.Dir, "costs.toml"), fmt.Appendf(nil, keptConfig, secretIn, regions, script), 0o600))
	return p, in
}

// With keep_secret the command has no secret in its environment, arguments and files. Its calls
// have: those to the secret's upstream, where its secret says. A redirect to another host, another
// host, another upstream, another place, plain http, and a server with a bad certificate get nothing.
func TestKeepSecret(t *testing.T) {
	t.Parallel()
	basic := base64.StdEncoding.EncodeToString([]byte("ann:" + keptSecret))
	const inQuery, inHeader = `query = "key"`, `header = "Authorization", prefix = "Bearer "`
	for name, c := range map[string]struct {
		secretIn, script string
		sent             []string // host, path, query, Authorization and X-Second of the requests that arrive
		prints           string
	}{
		"query":            {inQuery, `curl -sS "https://api.example.com/v1/a?x=%2f&key=$TEST_KEY&y"`, []string{"api.example.com /v1/a x=%2f&key=kept-s3cret%2Fa%2Bb%26c&y  "}, ""},
		"bearer":           {inHeader, `curl -sS -H "Authorization: Bearer $TEST_KEY" https://api.example.com/v1/a`, []string{"api.example.com /v1/a  Bearer " + keptSecret + " "}, ""},
		"basic":            {inHeader, `curl -sS -u "ann:$TEST_KEY" https://api.example.com/v1/a`, []string{"api.example.com /v1/a  Basic " + basic + " "}, ""},
		"http/1.1":         {inHeader, `curl -sS --http1.1 -H "Authorization: token $QUOTACTL_SECRET" https://api.example.com/v1/a`, []string{"api.example.com /v1/a  token " + keptSecret + " "}, ""},
		"another variable": {inQuery, `curl -sS "https://api.example.com/v1/a?key=$ALSO"`, []string{"api.example.com /v1/a key=kept-s3cret%2Fa%2Bb%26c  "}, ""},
		"two upstreams": {inQuery, `curl -sS -H "X-Second: $TEST_SECOND" "https://second.example.com/v1/a?key=$TEST_KEY"; curl -sS -H "X-Second: $TEST_KEY" https://second.example.com/v1/b`,
			[]string{"second.example.com /v1/a key=STANDIN  " + secondSecret, "second.example.com /v1/b   STANDIN"}, ""},
		"another host": {inQuery, `curl -sS -H "Authorization: Bearer $TEST_KEY" "https://other.example.com/x?key=$TEST_KEY"`, []string{"other.example.com /x key=STANDIN Bearer STANDIN "}, ""},
		"a redirect":   {inQuery, `curl -sSL "https://api.example.com/v1/aside?key=$TEST_KEY"`, []string{"api.example.com /v1/aside key=kept-s3cret%2Fa%2Bb%26c  ", "api.example.com /v1/there key=kept-s3cret%2Fa%2Bb%26c  "}, ""},
		"a redirect away": {inQuery, `curl -sSL "https://api.example.com/v1/away?key=$TEST_KEY"`,
			[]string{"api.example.com /v1/away key=kept-s3cret%2Fa%2Bb%26c  ", "other.example.com /x key=STANDIN  "}, ""},
		"a redirect to plain http": {inQuery, `curl -sSL "https://api.example.com/v1/plain?key=$TEST_KEY"`, []string{"api.example.com /v1/plain key=kept-s3cret%2Fa%2Bb%26c  "}, "in another way"},
		"plain http":               {inQuery, `curl -sS "http://api.example.com/v1/a?key=$TEST_KEY"`, nil, "the secret of [upstream.shop] is sent over https alone, and as its secret says, in key: the request carries its stand-in in another way"},
		"a bad certificate":        {inQuery, `curl -ksS "https://bad.example.com/v1/a?key=$TEST_KEY"`, nil, "does not verify"},
		"another place":            {inQuery, `curl -sS -H "Authorization: Bearer $TEST_KEY" https://api.example.com/v1/a`, nil, "in key: the request"},
		"another header":           {inHeader, `curl -sS -H "X-Key: $TEST_KEY" https://api.example.com/v1/a`, nil, "in Authorization: the request"},
		"in the path":              {inQuery, `curl -sS "https://api.example.com/v1/$TEST_KEY"`, []string{"api.example.com /v1/STANDIN   "}, ""},
		"an echo":                  {inQuery, `curl -sSi "https://api.example.com/v1/a?key=$TEST_KEY" | grep -ci "x-echo:.*$TEST_KEY"`, []string{"api.example.com /v1/a key=kept-s3cret%2Fa%2Bb%26c  "}, "1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, in := keptJob(t, c.secretIn, "", c.script+" | tee printed; env >env; cat /proc/$$/cmdline >arguments")
			pass := p.passOf(0)
			env := string(must.Get(os.ReadFile(filepath.Join(p.Dir, "env")))(t))
			standIn := ""
			for line := range strings.Lines(env) {
				if text, found := strings.CutPrefix(line, "QUOTACTL_SECRET="); found {
					standIn = strings.TrimSpace(text)
				}
			}
			must.Equal(t, len(standIn), 64, "the stand-in, 256 bits")
			check.Contains(t, env, "TEST_KEY="+standIn)
			check.Equal(t, strings.Contains(env, "IN_URL=") || strings.Contains(env, "QUOTACTL_TOKEN="), false, env)
			var sent []string
			for _, req := range in.Requests() {
				sent = append(sent, strings.Join([]string{req.Host, req.URL.Path, req.URL.RawQuery, req.Header.Get("Authorization"), req.Header.Get("X-Second")}, " "))
			}
			check.EqualSlices(t, sent, each(c.sent, func(one string) string { return strings.ReplaceAll(one, "STANDIN", standIn) }), "requests")
			check.Contains(t, string(must.Get(os.ReadFile(filepath.Join(p.Dir, "printed")))(t)), c.prints)
			said := stderrOf(p) + p.out.String()
			for _, hidden := range []string{keptSecret, secondSecret, standIn} {
				check.Equal(t, strings.Contains(said, hidden), false, hidden, "is said:", said)
			}
			for _, file := range append(must.Get(filepath.Glob(filepath.Join(p.Dir, "*")))(t), must.Get(filepath.Glob(filepath.Join(tempOf(p), "*")))(t)...) {
				text, _ := os.ReadFile(file)
				for _, hidden := range []string{keptSecret, "kept-s3cret%2Fa", secondSecret, basic} {
					check.Equal(t, strings.Contains(string(text), hidden), false, hidden, "is in", file)
				}
			}
			check.Equal(t, pass.Runs[0].Outcome, jobs.Succeeded, pass.Runs[0])
		})
	}
}

// Each run has stand-ins of its own, and another run's are worth nothing.
func TestStandInsOfTwoRuns(t *testing.T) {
	t.Parallel()
	p, in := keptJob(t, `query = "key"`, `, "GB"`, `echo $TEST_KEY >>keys; curl -sS "https://api.example.com/v1/a?key=$(head -n 1 keys)"`)
	p.Args = append(p.Args, "--log-level", "debug")
	pass := p.passOf(0)
	must.Equal(t, len(pass.Runs), 2, "runs")
	keys := strings.Fields(string(must.Get(os.ReadFile(filepath.Join(p.Dir, "keys")))(t)))
	must.Equal(t, len(keys) == 2 && keys[0] != keys[1], true, "the stand-ins differ")
	var sent []string
	for _, req := range in.Requests() {
		sent = append(sent, req.URL.Query().Get("key"))
	}
	check.EqualSlices(t, sent, []string{keptSecret, keys[0]}, "keys")
	check.Equal(t, strings.Contains(stderrOf(p)+p.out.String(), keptSecret), false, stderrOf(p))
}

// The daemon does not start without the secret that it is to keep.
func TestKeptSecretIsMissing(t *testing.T) {
	t.Parallel()
	p, _ := keptJob(t, `query = "key"`, "", "true")
	p.Env = slices.DeleteFunc(p.Env, func(one string) bool { return strings.HasPrefix(one, "TEST_KEY=") })
	p.start()
	p.exits(2)
	check.Contains(t, cmp.Or(stderrOf(p), "nothing"), "the environment has no TEST_KEY, the secret of shop/main: set it, or take keep_secret out of the job")
}

// each is a list with something done to each.
func each(list []string, do func(string) string) (all []string) {
	for _, one := range list {
		all = append(all, do(one))
	}
	return all
}

// A daemon meters the jobs that it starts, also those that a reload has made metered.
func TestDaemonMetersJobs(t *testing.T) {
	t.Parallel()
	p, in := meteredJob(t, 10, "", "curl -sS https://api.example.com/v1/a")
	path := filepath.Join(p.Dir, "costs.toml")
	metered := string(must.Get(os.ReadFile(path))(t))
	must.Do(t, os.WriteFile(path, []byte(strings.Replace(metered, "meter = true", "", 1)), 0o600))
	p.Args = []string{"quotactl", "run", "--now", "--log-format", "text"}
	p.start()
	p.logged(`pass ended.*outcome=succeeded.*units=0`) // its call is seen by nobody
	p.rewrite(metered)
	p.logged("jobs_changed=nightly")
	trigger := newProgram(t, "", "trigger", "nightly")
	trigger.Dir = p.Dir
	trigger.start()
	trigger.exits(0)
	p.logged(`msg=output .*run=nightly/.* stream=meter line="nightly: 1 call, 1 unit of shop/main"`)
	p.logged(`pass ended.*outcome=succeeded.*units=1`)
	p.signal(syscall.SIGTERM)
	p.exits(0)
	check.Equal(t, len(in.Requests()), 2, "requests")
	check.Equal(t, len(must.Get(filepath.Glob(filepath.Join(tempOf(p), "*")))(t)), 0, "files are left")
}
