package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// scanSecrets are all that a store, credentials and an environment may hold.
func scanSecrets(t *testing.T) *secrets {
	t.Helper()
	s := newSecrets(t)
	for _, name := range []string{"query", "header", "star", "store", "wrong", "proxy", "unrelated"} {
		s.add(name)
	}
	return s
}

// in is the secrets as a subtest looks for them.
func (s *secrets) in(t *testing.T) *secrets {
	inner := *s
	inner.t = t
	return &inner
}

// scanStore is a store by its [store] table or QUOTACTL_STORE.
type scanStore struct {
	table string
	env   []string
	code  int // of commands that need it, when it does not serve
}

// scanStores are the ways to give a password, one that is wrong, and a port
// where nobody listens. The passwords in URLs are as URLs write them.
func scanStores(s *secrets, address, hidden string) map[string]scanStore {
	at := func(name, address string) string {
		return "redis://:" + url.QueryEscape(s.byName[name]) + "@" + address + "/0"
	}
	table := func(store string, more ...string) string {
		return fmt.Sprintf("url = %q\n%s\n", store, strings.Join(more, "\n"))
	}
	redis := "redis://" + address + "/0"
	const patient = "timeout = \"1m\"\n" // of a server that is there: the machine may be busy
	return map[string]scanStore{
		"SQLite":                {table: table("sqlite:q.db", patient)},
		"password_env":          {table: table(redis, patient, `password_env = "SCAN_STORE"`)},
		"password_file":         {table: table(redis, patient, fmt.Sprintf("password_file = %q", filepath.Join(hidden, "store")))},
		"URL":                   {table: table(at("store", address), patient)},
		"QUOTACTL_STORE":        {table: patient, env: []string{"QUOTACTL_STORE=" + at("store", address)}},
		"wrong password":        {table: table(at("wrong", address), patient), code: exitUsage},
		"wrong password in env": {table: patient, env: []string{"QUOTACTL_STORE=" + at("wrong", address)}, code: exitUsage},
		"wrong port":            {table: table(at("store", "127.0.0.1:1")), code: exitUnavailable},
		"wrong cluster port":    {table: table("redis+cluster://:" + url.QueryEscape(s.byName["store"]) + "@127.0.0.1:1"), code: exitUnavailable},
		"wrong sentinel port":   {table: table("redis+sentinel://:" + url.QueryEscape(s.byName["store"]) + "@127.0.0.1:1/main"), code: exitUnavailable},
	}
}

// excepted are the files that hold secrets rightly: a good answer of an upstream is kept
// unchanged, and a configuration may hold the store's URL.
var excepted = []string{"data/*/mirror", "data/*/token", "data/star/object", "costs.toml"}

// I9: whatever is run, with whatever store, level and format, however it goes
// wrong, no secret is in what quotactl says, keeps, or is called with.
func TestNoSecretLeaves(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	s := scanSecrets(t)
	server := startRedis(t)
	must.Do(t, server.lock(t.Context(), s.byName["store"]))
	turn := 0
	for name := range scanStores(s, "", "") {
		t.Run(name, func(t *testing.T) {
			w := newScanned(t, s.in(t))
			store := scanStores(s, server.Addr, w.hidden)[name]
			w.env = append(w.env, store.env...)
			w.config("costs.toml", store.table)
			if name == "SQLite" { // whose configuration names no password that could be known
				w.write(w.hidden, "say.store", "")
			}
			w.commands(store.code, &turn)
			if scanned := w.absentBelow(w.dir, excepted...); store.code == 0 && scanned < 10 {
				t.Errorf("%d files were scanned", scanned)
			}
		})
	}
	client := server.client()
	if keys := s.absentInRedis(client); keys < 3 {
		t.Errorf("%d keys were scanned", keys)
	}
	check.NoError(t, client.Close())
}

// logFlags are each level in each format, by turns.
func logFlags(turn int) []string {
	level := []string{"debug", "info", "warn", "error"}[turn%4]
	return []string{"--log-level", level, "--log-format", []string{"text", "json"}[turn/4%2]}
}

// commands runs every command that ends by itself.
func (w *scanned) commands(code int, turn *int) {
	w.t.Helper()
	do := func(code int, words string) string {
		w.t.Helper()
		*turn++
		return w.quotactl(code, append(strings.Fields(words), logFlags(*turn)...)...)
	}
	do(exitDone, "check")
	do(exitDone, "check --json")
	failed := exitFailed
	if code != 0 {
		failed = code
	}
	const fetches = " query header star tls dial proxied"
	for _, words := range []string{"run --once" + fetches, "run --once --json" + fetches} {
		if said := do(failed, words); code == 0 && (!strings.Contains(said, "[secret]") || !strings.Contains(said, "proxyconnect")) {
			w.t.Errorf("quotactl %s: no error held a secret, or none was a proxy's:\n%s", words, said)
		}
	}
	w.quotactl(code, "run", "--once", "command", "--log-level", "debug")
	w.quotactl(code, "run", "--once", "command", "--log-format", "json")
	for _, words := range []string{
		"status", "status --json", "status api/query", "ledger api/query", "ledger api/query --by run --json", "ledger api/shop1 --by region",
		"charge api/query get --id one", "charge api/header get --json --id two --reserve 5m", "settle api/header two 2", "settle api/header two 2 --json",
		"charge api/shop1 get --id three --reserve 5m", "release api/shop1 three", "charge api/query get --dry-run", "next", "next --json",
		"jobs", "jobs --json", "runs --log", "runs --log --json", "trigger query --note x", "pause query --note x", "resume query",
	} {
		expected := code
		if code == exitUnavailable && (strings.HasPrefix(words, "settle") || strings.HasPrefix(words, "release")) {
			expected = exitDone // they are written down
		}
		do(expected, words)
	}
	do(exitUsage, "charge api/query nothing")
	do(exitUsage, "charge nothing/query get")
	if code != 0 {
		return
	}
	for _, name := range []string{"query", "header", "star"} {
		if w.upstream.asked(w.byName[name]) < len(kinds()) {
			w.t.Errorf("the upstream was sent %s %d times: the errors are of something else", name, w.upstream.asked(w.byName[name]))
		}
	}
	arguments, err := filepath.Glob(filepath.Join(w.dir, "arguments.*"))
	must.Do(w.t, err)
	check.Equal(w.t, len(arguments), 4, "the arguments of processes")
	for _, file := range arguments {
		if text := string(w.filesBelow(w.dir)[file]); !strings.Contains(text, "quotactl") || !strings.Contains(text, "tell.sh") {
			w.t.Errorf("%s has no arguments: %q", file, text)
		}
	}
}
