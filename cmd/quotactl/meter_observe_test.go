package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/upstreamtest"
)

// newObserver prepares a quotactl meter without a configuration, in front of APIs.
func newObserver(t *testing.T, args ...string) (*program, *upstreamtest.Internet) {
	t.Helper()
	p, _ := newMeter(t, 1, args...)
	must.Do(t, os.Remove(filepath.Join(p.Dir, "costs.toml")))
	in := upstreamtest.Start(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "600")
		w.Header().Set("RateLimit-Policy", `"default";q=700;w=60`)
		w.Header().Set("X-RateLimit-Name", "of-"+observedKey)
		if req.URL.Path == "/v1/full" {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = fmt.Fprintln(w, "answer to", req.URL.Path)
	}, "api.example.com", "other.example.com", "api.openai.com", "slack.com", "www.googleapis.com")
	p.Env = append(p.Env, "HTTPS_PROXY="+in.Proxy.String(), "SSL_CERT_FILE="+in.Cert, "EXAMPLE_API_KEY="+observedKey)
	return p, in
}

const (
	observedKey = "correct-horse-battery"
	otherKey    = "sk_test_4eC39HqLyjWDarjtT1zdp7dc" // in no variable
)

const sixCalls = `
get() { curl -sSo /dev/null "$@"; }
get https://api.example.com/v1/customers/cus_OabcDEFghijKLM -H "Authorization: Bearer $EXAMPLE_API_KEY"
get https://api.example.com/v1/customers/cus_9s6XKzkNRiz8i3 -H "Authorization: Bearer $EXAMPLE_API_KEY"
get -d x "https://api.example.com/v1/items?api_key=` + otherKey + `"
get --http1.1 -H "X-Auth-Token: ` + otherKey + `" https://api.example.com/v1/full
get https://api.example.com/hooks/$EXAMPLE_API_KEY/run
get -u ann:` + otherKey + ` https://api.example.com/bot123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11/sendMessage
`

// The whole way: a program is observed, its draft is accepted, and meter charges by it what arrives.
// Neither the table nor the draft has a secret.
func TestObserve(t *testing.T) {
	t.Parallel()
	p, in := newObserver(t, "--observe=api.example.com", "--draft", "draft.toml", "--", "sh", "-c", sixCalls+"get https://other.example.com/; echo done; exit 3")
	p.start()
	p.exits(3)
	check.Equal(t, p.out.String(), "done\n", "stdout")
	check.Equal(t, len(in.Requests()), 7, "requests")
	const want = `CALLS  ANSWERS  CALL
    1  2xx      GET api.example.com/hooks/{id}/run
    2  2xx      GET api.example.com/v1/customers/{id}
    1  429      GET api.example.com/v1/full
    1  2xx      POST api.example.com/v1/items
    1  2xx      GET api.example.com/{id}/sendMessage
  api.example.com: credential in Authorization Bearer and path and Authorization
                   Basic and X-Auth-Token and query api_key, as in
                   $EXAMPLE_API_KEY; Ratelimit-Policy q 700; Ratelimit-Policy w
                   60; Retry-After 0; X-Ratelimit-Limit 600
CONNECTIONS  NOT OPENED
          1  other.example.com
quotactl: --observe=HOST opens the connections to a host, and --observe='*' those to all
quotactl: wrote draft.toml: fill in what its comments say; then run quotactl check -c draft.toml
`
	said := stderrOf(p)
	check.Equal(t, said, want, "stderr")
	draft := string(must.Get(os.ReadFile(filepath.Join(p.Dir, "draft.toml")))(t))
	for _, secret := range []string{observedKey, otherKey, "ABC-DEF1234", "YW5uOnNrX3Rlc3Rf"} {
		check.Equal(t, strings.Contains(said+draft, secret), false, secret, "is shown")
	}
	made := must.Get(filepath.Glob(filepath.Join(p.Dir, "*.db*")))(t)
	check.Equal(t, len(made), 0, "stores")
	check.Equal(t, chargedBy(t, p, "sh", "-c", sixCalls), callCounts{
		"get.hooks.id.run": 1, "get.v1.customers.id": 2, "get.v1.full": 1, "post.v1.items": 1, "get.id.sendmessage": 1,
	}.text(), "charged")
	check.Equal(t, len(in.Requests()), 13, "requests")
}

// callCounts is calls by operation.
type callCounts map[string]int

func (m callCounts) text() string { return fmt.Sprint(map[string]int(m)) }

// chargedBy runs a command again, metered by the draft, and returns what was charged by operation.
func chargedBy(t *testing.T, p *program, command ...string) string {
	t.Helper()
	config := filepath.Join(p.Dir, "costs.toml")
	must.Do(t, os.WriteFile(config, []byte(patientConfig(string(must.Get(os.ReadFile(filepath.Join(p.Dir, "draft.toml")))(t)))), 0o600))
	run := func(args ...string) string {
		again := newProgram(t, "https://upstream.invalid", args...)
		again.Dir, again.Env = p.Dir, p.Env
		again.start()
		again.exits(0)
		return again.out.String()
	}
	run("check")
	run(append([]string{"meter", "--"}, command...)...)
	charged := callCounts{}
	var status struct{ Budgets []struct{ Budget string } }
	must.Do(t, json.Unmarshal([]byte(run("status", "--json")), &status))
	for _, b := range status.Budgets {
		var ledger struct {
			Rows []struct {
				Name  string
				Calls int
			}
		}
		must.Do(t, json.Unmarshal([]byte(run("ledger", b.Budget, "--json")), &ledger))
		for _, row := range ledger.Rows {
			charged[row.Name] += row.Calls
		}
	}
	return charged.text()
}

// Alone, --observe opens the hosts of presets, whose draft is the presets. Calls that a preset does
// not know are charged, too.
func TestObservePresets(t *testing.T) {
	t.Parallel()
	const script = `
get() { curl -sSo /dev/null "$@"; }
get "https://www.googleapis.com/youtube/v3/videos?key=k1234567890"
get "https://www.googleapis.com/youtube/v3/unheard/7"
get "https://www.googleapis.com/drive/v3/files/1dyUEebJaFnWa3Z4n0BFMVAXQ7mfUH11g"
get -d '{}' https://api.openai.com/v1/embeddings
get -d x -H "Authorization: Bearer xoxb-12345678901" https://slack.com/api/chat.postMessage`
	p, in := newObserver(t, "--observe", "--draft=draft.toml", "--", "sh", "-c", script+"; get https://api.example.com/")
	p.start()
	p.exits(0)
	said := stderrOf(p)
	for _, line := range []string{
		"GET www.googleapis.com/youtube/v3/videos (youtube: videos.list)\n", "POST api.openai.com/v1/embeddings (openai: embeddings)\n",
		"GET www.googleapis.com/youtube/v3/unheard/{id} (youtube:", "(slack: chat.postMessage)\n",
		"GET www.googleapis.com/drive/v3/files/{id}\n", "1  api.example.com\n",
	} {
		check.Contains(t, said, line)
	}
	draft := string(must.Get(os.ReadFile(filepath.Join(p.Dir, "draft.toml")))(t))
	for _, part := range []string{"[upstream.youtube.limit.", "[upstream.openai.limit.tokens]", "[upstream.slack.credential.main]", "GET www.googleapis.com/drive/v3/files/{id}"} {
		check.Contains(t, draft, part)
	}
	check.Equal(t, chargedBy(t, p, "sh", "-c", script), callCounts{
		"videos.list": 1, "unmatched": 1, "get.drive.v3.files.id": 1, "embeddings": 1, "chat.postMessage": 1,
	}.text(), "charged")
	check.Equal(t, len(in.Requests()), 11, "requests")
}

// With '*' all hosts are opened, which is said before the command starts; a configuration that is
// there is not read, and nothing is charged.
func TestObserveAll(t *testing.T) {
	t.Parallel()
	p, _ := newObserver(t, "--observe=*", "--tunnel", "slack.com", "--", "sh", "-c",
		"echo started >&2; curl -sS https://other.example.com/a https://api.example.com/b; curl -sSo /dev/null https://slack.com/")
	must.Do(t, os.WriteFile(filepath.Join(p.Dir, "costs.toml"), []byte("no TOML"), 0o600))
	p.start()
	p.exits(0)
	check.Equal(t, p.out.String(), "answer to /a\nanswer to /b\n", "stdout")
	said := stderrOf(p)
	before, after, _ := strings.Cut(said, "started\n")
	check.Contains(t, before, "this run opens the connections to all hosts: what the command trusts includes a CA that vouches for every name")
	check.Contains(t, after, "GET other.example.com/a\n")
	check.Contains(t, after, "GET api.example.com/b\n")
	check.Contains(t, after, "1  slack.com\n")
}

// Calls by plain http to this machine are observed if its address is named.
func TestObserveHTTP(t *testing.T) {
	t.Parallel()
	p, _ := newObserver(t, "--observe=http://127.0.0.1:PORT", "--draft=draft.toml", "--", "sh", "-c", "curl -sS http://127.0.0.1:PORT/v1/things/77")
	server := plainServer(t)
	for i, arg := range p.Args {
		p.Args[i] = strings.ReplaceAll(arg, "127.0.0.1:PORT", server)
	}
	p.Env = append(p.Env, "HTTP_PROXY=", "http_proxy=")
	p.start()
	p.exits(0)
	check.Contains(t, stderrOf(p), "GET "+server+"/v1/things/{id}\n")
	check.Equal(t, chargedBy(t, p, "curl", "-sS", "http://"+server+"/v1/things/78"), callCounts{"get.v1.things.id": 1}.text(), "charged")
}

func plainServer(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "things") }))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// Wrong use says what to do, before the command starts.
func TestObserveWrongUse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags []string
		says  string
	}{
		"job":            {[]string{"--observe", "--job=a"}, "--observe charges and refuses nothing: leave --job out"},
		"region":         {[]string{"--observe", "--region=a"}, "leave --region out"},
		"budget":         {[]string{"--observe", "--budget=a/b"}, "leave --budget out"},
		"wait":           {[]string{"--observe", "--wait=1s"}, "leave --wait out"},
		"on-refusal":     {[]string{"--observe", "--on-refusal=stop"}, "leave --on-refusal out"},
		"keep-exit":      {[]string{"--observe", "--keep-exit"}, "leave --keep-exit out"},
		"quiet":          {[]string{"--observe", "-q"}, "leave --quiet out, or add --draft FILE"},
		"draft":          {[]string{"--draft=x.toml"}, "add --observe, or --observe=HOST"},
		"no equals sign": {[]string{"--observe", "api.example.com"}, "the hosts of --observe follow an equals sign: --observe=api.example.com"},
		"an address":     {[]string{"--observe=https://api.example.com/v1"}, "it is not a host: write"},
		"an IP":          {[]string{"--observe=127.0.0.1"}, "certificates are made for names alone"},
		"a space":        {[]string{`--observe=a b`}, "it is not a host"},
		"a folder":       {[]string{"--observe", "--draft=none/x.toml"}, "--draft none/x.toml cannot be written"},
		"a file":         {[]string{"--observe", "--draft=there.toml"}, "--draft there.toml: the file exists already, and is not changed: name another"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := newObserver(t, append(c.flags, "--", "sh", "-c", "touch started")...)
			must.Do(t, os.WriteFile(filepath.Join(p.Dir, "there.toml"), []byte("mine"), 0o600))
			p.start()
			p.exits(2)
			check.Contains(t, stderrOf(p), c.says)
			_, err := os.Stat(filepath.Join(p.Dir, "started"))
			check.Is(t, err, os.ErrNotExist, "the command started")
			check.Equal(t, string(must.Get(os.ReadFile(filepath.Join(p.Dir, "there.toml")))(t)), "mine", "the file")
		})
	}
}

// A draft never takes the place of a file, also not of one that the command has written.
func TestObserveDraftExists(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]int{"0": 2, "3": 3} {
		p, _ := newObserver(t, "--observe=api.example.com", "--draft=draft.toml", "--", "sh", "-c", "echo mine >draft.toml; curl -sS https://api.example.com/; exit "+code)
		p.start()
		p.exits(want)
		check.Contains(t, stderrOf(p), "--draft draft.toml: the file exists already, and is not changed")
		check.Equal(t, string(must.Get(os.ReadFile(filepath.Join(p.Dir, "draft.toml")))(t)), "mine\n", "the file")
	}
}

// Without a call to a host that is opened there is no draft.
func TestObserveNothing(t *testing.T) {
	t.Parallel()
	p, _ := newObserver(t, "--observe=api.example.com", "--draft=draft.toml", "--", "true")
	p.start()
	p.exits(0)
	check.Equal(t, stderrOf(p), "quotactl: no call to a host that is opened was seen\nquotactl: no draft was written: it would have no upstream\n")
	check.Equal(t, len(must.Get(filepath.Glob(filepath.Join(p.Dir, "*.toml")))(t)), 0, "files")
}
