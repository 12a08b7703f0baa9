package main

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/upstreamtest"
)

const meterConfig = `
[upstream.shop]
hosts = ["api.example.com"]
[upstream.shop.costs]
get = { units = 1, match = "GET api.example.com/v1/" }
[upstream.shop.limit.day]
quota = %d
window = "24h"
[upstream.shop.credential.main]
secret_env = "TEST_KEY"
`

// newMeter prepares a quotactl meter over a budget of so many units, in front of an upstream.
func newMeter(t *testing.T, quota int, args ...string) (*program, *upstreamtest.Internet) {
	t.Helper()
	in := upstreamtest.Start(t, func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/v1/slow":
			<-req.Context().Done()
		case "/v1/unasked": // more than an answer
			conn, _, err := http.NewResponseController(w).Hijack()
			must.Do(t, err)
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 204 No Content\r\n\r\nunasked %s\n", req.Header.Get("X-Key"))
		default:
			_, _ = fmt.Fprintln(w, "answer to", req.URL.Path)
		}
	}, "api.example.com", "other.example.com")
	p := newProgram(t, "https://upstream.invalid", append([]string{"meter"}, args...)...)
	p.reaches(in)
	must.Do(t, os.WriteFile(filepath.Join(p.Dir, "costs.toml"), fmt.Appendf(nil, meterConfig, quota), 0o600))
	return p, in
}

// reaches has a program reach the upstreams of a test.
func (p *program) reaches(in *upstreamtest.Internet) {
	p.Env = slices.DeleteFunc(p.Env, func(one string) bool { // what a machine may have set
		name, _, _ := strings.Cut(one, "=")
		return slices.Contains([]string{"SSL_CERT_DIR", "CURL_CA_BUNDLE", "NO_PROXY", "no_proxy", "https_proxy"}, name)
	})
	p.Env = append(p.Env, "HTTPS_PROXY="+in.Proxy.String(), "SSL_CERT_FILE="+in.Cert, "TMPDIR="+p.t.TempDir())
}

// said is the program's standard error.
func stderrOf(p *program) string { return string(must.Get(os.ReadFile(p.log))(p.t)) }

// The exit code is the command's, unless something was refused for good; standard output is the
// command's alone.
func TestMeterExits(t *testing.T) {
	t.Parallel()
	const one, both = `curl -sS https://api.example.com/v1/a`, `curl -sS https://api.example.com/v1/a; curl -sSo refused -w '%{http_code}\n' https://api.example.com/v1/b`
	for name, c := range map[string]struct {
		flags  []string
		script string
		code   int
		stdout string
		stderr string // is in it
	}{
		"done":           {nil, one, 0, "answer to /v1/a\n", "quotactl: sh: 1 call, 1 unit of shop/main, 0 left in limit day until "},
		"quiet":          {[]string{"-q"}, one + " -H X-Key:$TEST_KEY", 0, "answer to /v1/a\n", ""},
		"not so quiet":   {[]string{"-q"}, `true`, 0, "", "no call to an upstream of the configuration was seen"},
		"a wrong label":  {[]string{"--job", "nightly import"}, one, 2, "", "job label"},
		"two budgets":    {[]string{"--budget", "shop/main", "--budget", "shop/main"}, one, 2, "", "two budgets of shop"},
		"a wrong tunnel": {[]string{"--tunnel", "example.com"}, one, 2, "", "no upstream has this host; those that are opened are api.example.com"},
		"its own code":   {nil, one + "; exit 3", 3, "answer to /v1/a\n", "1 call"},
		"its signal":     {nil, one + "; kill -TERM $$", 143, "answer to /v1/a\n", "1 call"},
		"refused":        {nil, both + "; exit 4", 75, "answer to /v1/a\n403\n", "1 unit of shop/main, 1 call refused by limit day, 0 left in limit day until "},
		"kept":           {[]string{"--keep-exit"}, both + "; exit 4", 4, "answer to /v1/a\n403\n", "1 call refused"},
		"stopped":        {[]string{"--job", "nightly"}, both + " >/dev/null; sleep 1000; echo no", 75, "answer to /v1/a\n", "quotactl: the command was ended because of a refusal for good; with --on-refusal continue it goes on"},
		"stop":           {[]string{"--on-refusal", "stop"}, "(" + both + " >/dev/null; sleep 1000) & wait; echo no", 75, "answer to /v1/a\n", ""},
		"continued":      {[]string{"--job", "nightly", "--on-refusal", "continue"}, both + "; echo on", 75, "answer to /v1/a\n403\non\n", ""},
		"no operation":   {nil, `curl -sSo /dev/null -w '%{http_code}\n' https://api.example.com/v2/x`, 2, "403\n", "GET api.example.com/v2/x is no operation of upstream shop"},
		"another host":   {nil, `curl -sS https://other.example.com/x`, 0, "answer to /x\n", "no call to an upstream of the configuration was seen; 1 connection to other.example.com passed unmetered"},
		"a tunnel":       {[]string{"--tunnel", "api.example.com"}, one + "x", 0, "answer to /v1/ax\n", "1 connection to api.example.com"},
		"its own CAs":    {nil, `curl -sS --cacert ` + "$SSL_CERT_FILE_BEFORE" + ` https://api.example.com/v1/a 2>/dev/null`, 60, "", "1 handshake with api.example.com was broken off by the program, as one with its own CA list or a pinned key does; --tunnel api.example.com lets it pass unmetered"},
		"a pinned key":   {nil, `curl -sS --pinnedpubkey sha256//AAAA https://api.example.com/v1/a 2>/dev/null`, 90, "", "1 handshake with api.example.com was broken off by the program, as one with its own CA list or a pinned key does; --tunnel api.example.com lets it pass unmetered"},
		"not there":      {nil, "", 127, "", "start ./not-there"},
		"unknown budget": {[]string{"--budget", "shop/other"}, one, 2, "", `unknown budget "shop/other"`},
		"wrong use":      {[]string{"--on-refusal", "cry"}, one, 2, "", "use stop or continue"},
		"charged too":    {nil, `quotactl charge shop/main get >/dev/null; quotactl charge shop/main get >/dev/null || echo refused`, 0, "refused\n", "warning: this runs under quotactl meter, which charges calls to shop, too"},
		"nested":         {nil, `quotactl meter -- curl -sS https://api.example.com/v1/a`, 0, "answer to /v1/a\n", "quotactl: sh: 1 call, 1 unit"},
		"another job":    {[]string{"--job", "a"}, `quotactl meter --job b -- true`, 2, "", "which charges its calls for job a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := []string{"--", "sh", "-c", c.script}
			if c.script == "" {
				command = []string{"--", "./not-there"}
			}
			p, in := newMeter(t, 1, slices.Concat(c.flags, command)...)
			p.Env = append(p.Env, "SSL_CERT_FILE_BEFORE="+in.Cert)
			p.start()
			p.exits(c.code)
			check.Equal(t, p.out.String(), c.stdout, "stdout")
			said := stderrOf(p)
			check.Equal(t, strings.Contains(said, c.stderr), true, cmp.Or(said, "nothing said"))
			if name == "quiet" {
				check.Equal(t, said, "", "stderr")
			}
			check.Equal(t, strings.Count(said, "warning:"), strings.Count(c.stderr, "warning:"), said)
			left := must.Get(filepath.Glob(filepath.Join(tempOf(p), "*")))(t)
			check.Equal(t, len(left), 0, "files are left")
		})
	}
}

func tempOf(p *program) string {
	for _, one := range slices.Backward(p.Env) {
		if dir, found := strings.CutPrefix(one, "TMPDIR="); found {
			return dir
		}
	}
	return ""
}

// The job's label is on the charges, and what its table says holds.
func TestMeterLabels(t *testing.T) {
	t.Parallel()
	p, in := newMeter(t, 6, "--job", "nightly", "--region", "US", "--", "curl", "-sS", "https://api.example.com/v1/a", "https://api.example.com/v1/a")
	config := fmt.Sprintf(meterConfig, 6) + "[job.nightly]\nbudget = \"shop/main\"\nschedule = \"@daily\"\ncommand = [\"true\"]\nregions = [\"US\"]\nfloor = 5\n"
	must.Do(t, os.WriteFile(filepath.Join(p.Dir, "costs.toml"), []byte(config), 0o600))
	p.start()
	p.exits(75)
	check.Equal(t, len(in.Requests()), 1, "requests")
	ledger := newProgram(t, "", "ledger", "shop/main", "--by", "job")
	ledger.Dir = p.Dir
	ledger.start()
	ledger.exits(0)
	check.Equal(t, strings.Contains(ledger.out.String(), "nightly"), true, ledger.out.String())
}

// What a server sends beside its answers, which may be a secret of the program's, is in no line.
func TestMeterHidesWhatServersSendUnasked(t *testing.T) {
	t.Parallel()
	const key, http1 = "-sS -H X-Key:$TEST_KEY ", "--http1.1 -H Connection:Upgrade -H Upgrade:websocket " // which HTTP/2 does not have
	p, _ := newMeter(t, 10, "-q", "--", "sh", "-c", "for n in 1 2 3; do curl "+key+http1+"https://api.example.com/v1/unasked; curl "+key+"https://api.example.com/v1/a; done")
	p.start()
	p.exits(0)
	check.Equal(t, stderrOf(p), "", "stderr")
}

// Signals that come while meter closes, from somebody impatient, cut nothing short.
func TestMeterIsSignalledAgain(t *testing.T) {
	t.Parallel()
	p, in := newMeter(t, 10, "--", "curl", "-sS", "https://api.example.com/v1/slow")
	p.start()
	in.Await(1)
	p.signal(syscall.SIGTERM)
	again := time.AfterFunc(100*time.Millisecond, func() {
		_ = p.Process.Signal(syscall.SIGTERM)
		_ = p.Process.Signal(syscall.SIGINT)
	})
	defer again.Stop()
	p.exits(143)
	check.Contains(t, stderrOf(p), "quotactl: curl: 1 call, 1 unit of shop/main")
	spent := newProgram(t, "https://upstream.invalid", "ledger", "shop/main")
	spent.Dir = p.Dir
	spent.start()
	spent.exits(0)
	check.Contains(t, spent.out.String(), "total          1  100.0%      1     0")
}

// A meter that was killed leaves certificates, which the next one removes, and no key.
func TestMeterKilled(t *testing.T) {
	t.Parallel()
	p, _ := newMeter(t, 10, "--", "sh", "-c", "echo ready >&2; read line")
	held := must.Get(p.StdinPipe())(t)
	p.start()
	p.logged("ready")
	left := must.Get(filepath.Glob(filepath.Join(tempOf(p), "*", "*")))(t)
	check.Equal(t, len(left) > 0, true, "there are files")
	for _, path := range left {
		text := must.Get(os.ReadFile(path))(t)
		check.Equal(t, strings.Contains(string(text), "PRIVATE KEY"), false, path)
	}
	p.signal(syscall.SIGKILL)
	must.Do(t, held.Close()) // the shell ends
	_ = p.Wait()
	check.Equal(t, len(must.Get(filepath.Glob(filepath.Join(tempOf(p), "*")))(t)), 1, "folders left")
	next, _ := newMeter(t, 10, "-q", "--", "true")
	next.Env = append(next.Env, "TMPDIR="+tempOf(p))
	next.start()
	next.exits(0)
	check.Equal(t, len(must.Get(filepath.Glob(filepath.Join(tempOf(p), "*")))(t)), 0, "folders left")
}
