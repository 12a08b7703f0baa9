package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/effort"
)

// misplaced are configurations in which a person has written a secret where
// none belongs, or left a quote out; SECRET stands for it. Each replaces a part
// of a good one.
var misplaced = []struct{ part, by string }{
	{`secret_env = "KEY"`, `secret_env = "SECRET"`},
	{`secret_env = "KEY"`, `secret_env = SECRET`},
	{`secret_env = "KEY"`, `secret_env = "SECRET`},
	{`secret_env = "KEY"`, `secret_env = 'SECRET`},
	{`secret_env = "KEY"`, `secret_env = """SECRET`},
	{`secret_env = "KEY"`, `secret_env = "\SECRET"`},
	{`secret_env = "KEY"`, `secret_env = "KEY" SECRET`},
	{`secret_env = "KEY"`, `secret_env = "KEY", "SECRET"`},
	{`secret_env = "KEY"`, `secret_env = ["SECRET"]`},
	{`secret_env = "KEY"`, `secret_env = { SECRET }`},
	{`secret_env = "KEY"`, `secret_env = { value = "SECRET" }`},
	{`secret_env = "KEY"`, `secret = "SECRET"`},
	{`secret_env = "KEY"`, `secret SECRET`},
	{`secret_env = "KEY"`, `key = "SECRET"`},
	{`secret_env = "KEY"`, "secret_env = \"KEY\"\nsecret_file = \"SECRET\""},
	{`secret_env = "KEY"`, "secret_env = \"KEY\"\nsecret_env = \"SECRET\""},
	{`secret_env = "KEY"`, `secret_env = 1SECRET`},
	{`secret_env = "KEY"`, `secret_env = 0xSECRET`},
	{`secret_env = "KEY"`, `secret_env = 2026-11-SECRET`},
	{`secret = { query = "key" }`, `secret = "SECRET"`},
	{`secret = { query = "key" }`, `secret = SECRET`},
	{`secret = { query = "key" }`, `secret = ["SECRET"]`},
	{`secret = { query = "key" }`, `secret = { query = "key", value = "SECRET" }`},
	{`secret = { query = "key" }`, `secret = { query = "key", prefix = "SECRET" }`},
	{`secret = { query = "key" }`, `secret = { header = "SECRET" }`},
	{`secret = { query = "key" }`, `secret = { header = "X-Key: SECRET" }`},
	{`secret = { query = "key" }`, `secret = { header = "X-Key", prefix = "SECRETé" }`},
	{"UPSTREAM/ok", "http://user:SECRET@127.0.0.1:1/ok"},
	{"UPSTREAM/ok", "http://127.0.0.1:1/ok?key=SECRET"},
	{"UPSTREAM/ok", "http://127.0.0.1:1/%zz?key=SECRET"},
	{"UPSTREAM/ok", "http://127.0.0.1:1/ok#SECRET"},
	{"UPSTREAM/ok", "http://127.0.0.1:1/ok?other={SECRET}"},
	{"UPSTREAM/ok", "SECRET://127.0.0.1"},
	{"UPSTREAM/ok", "SECRET"},
	{"UPSTREAM/ok", "http://[SECRET]/"},
	{"UPSTREAM/ok", "http://127.0.0.1:SECRET/"},
	{"[store]", "[store]\npassword = \"SECRET\""},
	{"[store]", "[store]\npassword = SECRET"},
	{"[store]", "[store]\npassword_env = \"SECRET\""},
	{"[store]", "[store]\npassword_env = SECRET"},
	{"[store]", "[store]\npassword_env = \"KEY\"\npassword_file = \"SECRET\""},
	{`url = "sqlite:q.db"`, "url = \"redis://127.0.0.1:1\"\npassword_env = \"SECRET\""},
	{`url = "sqlite:q.db"`, "url = \"redis://127.0.0.1:1\"\npassword_env = SECRET"},
	{"sqlite:q.db", "SECRET"},
	{"sqlite:q.db", "http://:SECRET@127.0.0.1:1"},
	{"sqlite:q.db", "redis:SECRET@127.0.0.1:1"},
	{"sqlite:q.db", "redis://:SECRET/x@127.0.0.1:1"},
	{"sqlite:q.db", "redis://me:1/SECRET@127.0.0.1:1"},
	{"sqlite:q.db", "redis://:SECRET?x@127.0.0.1:1"},
	{"sqlite:q.db", "redis://:SECRET%zz@127.0.0.1:1"},
	{"sqlite:q.db", "redis://:SECRET@127.0.0.1:x"},
	{"sqlite:q.db", "redis://:SECRET@127.0.0.1:1,127.0.0.1:2"},
	{"sqlite:q.db", "redis://:SECRET@127.0.0.1:1/x"},
	{"sqlite:q.db", "redis://127.0.0.1:1?password=SECRET"},
	{"sqlite:q.db", "unix://:SECRET@/s"},
	{"sqlite:q.db", "redis+sentinel://:SECRET@127.0.0.1:1"},
	{"sqlite:q.db", "redis+sentinel://me:1/SECRET@127.0.0.1:1"},
	{"sqlite:q.db", "redis+cluster://:SECRET@127.0.0.1:1/0"},
	{"sqlite:q.db", "redis+ring://:SECRET@127.0.0.1:1,"},
	{`url = "sqlite:q.db"`, `url = "redis://:SECRET\@127.0.0.1"`},
	{`url = "sqlite:q.db"`, `url = "redis://:SECRET@127.0.0.1`},
	{`url = "sqlite:q.db"`, `url = redis://:SECRET@127.0.0.1`},
	{`url = "sqlite:q.db"`, `url = ["redis://:SECRET@127.0.0.1"]`},
	{"[store]\n" + `url = "sqlite:q.db"`, `store = "redis://:SECRET@127.0.0.1"`},
}

const goodConfig = `[store]
url = "sqlite:q.db"
[upstream.api.costs]
get = 1
[upstream.api.limit.daily]
limit  = 1_000
window = "24h"
[upstream.api.credential.main]
secret_env = "KEY"
[job.pull]
budget   = "api/main"
schedule = "@daily"
[job.pull.fetch]
operation = "get"
url       = "UPSTREAM/ok"
secret = { query = "key" }
output    = "data/{tick}.ndjson"
`

// I9: nor is one in what is said of a configuration that holds it where none
// belongs, nor of arguments.
func TestNoSecretLeavesAWrongConfiguration(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	s := newSecrets(t)
	s.add("misplaced")
	// As people have them: letters and digits, maybe after a prefix with a dash.
	plain := regexp.MustCompile(`[^0-9A-Za-z]`).ReplaceAllString(s.byName["misplaced"], "")
	for _, secret := range []string{"sk-" + plain, plain, "ghp_" + plain, plain + "/+==", strings.ToUpper(plain) + "-x", "9" + plain + "!"} {
		s.addText("misplaced", secret)
		for i, m := range misplaced {
			if strings.Contains(m.by, "://") && !strings.Contains(m.by, `\`) { // as URLs write it
				secret = strings.NewReplacer("/", "%2F", "+", "%2B").Replace(secret)
			}
			text := strings.Replace(goodConfig, m.part, m.by, 1)
			if text == goodConfig {
				t.Fatalf("%q is no part of the good one", m.part)
			}
			t.Run(fmt.Sprintf("%d %s", i, m.by), func(t *testing.T) {
				w := newMisplaced(t, s.in(t), strings.NewReplacer("SECRET", secret, "UPSTREAM", "http://127.0.0.1:1").Replace(text))
				for _, args := range [][]string{
					{"check"}, {"check", "--json"}, {"run", "--once"}, {"run", "--once", "--json", "--log-level", "debug"},
					{"status"}, {"status", "--json"}, {"charge", "api/main", "get"}, {"ledger", "api/main"}, {"next"},
				} {
					w.inProcess(args...)
				}
			})
		}
	}
	for _, store := range []string{"SECRET", "http://:SECRET@h", "redis:SECRET@h", "redis://:SECRET@127.0.0.1:1", "redis://:SECRET@h:x", "redis://me:1/SECRET@h", "redis://127.0.0.1:1?password=SECRET"} {
		store = strings.ReplaceAll(store, "SECRET", plain)
		w := newMisplaced(t, s, goodConfig)
		for _, args := range [][]string{
			{"status", "--store", store}, {"status", "--json", "--store=" + store}, {"check", "--store", store}, {"check", "--json", "--store", store},
			{"status", "--stor", store}, {"status", "--stor=" + store}, {"status", "-s", store}, {"status", "-s" + store}, {"status", "-j=" + store},
			{"run", "--once", "--store", store}, {"run", "--once", "--sandbox", "--store", store},
		} {
			w.inProcess(args...)
		}
	}
}
