package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// wrongNames would be more than names in a path, a URL or an argument.
var wrongNames = []string{
	"US&key=x", "-rf", "--help", "../../x", "..", ".", "/etc/x", "a/b", `a\b`, "US?x", "US#x", "US%2e%2e", "user@host", "US=1",
	"$(id)", "`id`", "a;b", "a b", "{job}", "a\x01b", "é", "", strings.Repeat("a", 64),
}

const namesConfig = `
[store]
url = "sqlite:q.db"
[upstream.api.costs]
get = 1
[upstream.api.limit.daily]
limit  = 1_000
window = "24h"
[upstream.api.credential."*"]
[job.%q]
budget   = %q
schedule = "@daily"
regions  = [%q]
[job.%[1]q.fetch]
operation = "get"
url       = "%[4]s/{job}/{region}?region={region}&tick={tick}"
output    = "data/{job}/{region}/{tick}.ndjson"
[job.command]
budget   = %[2]q
schedule = "@daily"
regions  = [%[3]q]
command  = ["./tell.sh", "{region}", "{job}", "{tick}", "{run}"]
`

// namesWorld is a folder within another, so that what leaves it is seen.
func namesWorld(t *testing.T, job, budget, region, upstream string) (above, dir string) {
	t.Helper()
	above = t.TempDir()
	dir = filepath.Join(above, "a", "b")
	must.Do(t, os.MkdirAll(dir, 0o700))
	for name, text := range map[string]string{
		"costs.toml": fmt.Sprintf(namesConfig, job, budget, region, upstream),
		"tell.sh":    "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done >words\n",
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700)) //nolint:gosec // a program is among them
	}
	return above, dir
}

// filesIn are the files below a folder.
func filesIn(t *testing.T, folder string) []string {
	t.Helper()
	var names []string
	for name := range (&secrets{t: t}).filesBelow(folder) {
		inside := must.Get(filepath.Rel(folder, name))(t)
		names = append(names, inside)
	}
	slices.Sort(names)
	return names
}

// A name that would be more than one is refused, with what names are, before
// anything is made, asked or started.
func TestWrongNamesGoNowhere(t *testing.T) {
	asked := make(chan string, 1000)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.String() }))
	defer upstream.Close()
	for _, name := range wrongNames {
		for what, names := range map[string][3]string{
			"region": {"pull", "api/main", name}, "job": {name, "api/main", "US"}, "credential": {"pull", "api/" + name, "US"},
		} {
			above, dir := namesWorld(t, names[0], names[1], names[2], upstream.URL)
			for _, args := range [][]string{{"check"}, {"run", "--once"}, {"next"}, {"status"}} {
				w := &wrongly{secrets: &secrets{t: t}, t: t, config: filepath.Join(dir, "costs.toml")}
				if code, said := w.answer(args...); code != exitUsage || !strings.Contains(said, "costs.toml:") {
					t.Errorf("%s %q: quotactl %s: exit code %d, want 2\n%s", what, name, args, code, said)
				}
			}
			check.EqualSlices(t, filesIn(t, above), []string{"a/b/costs.toml", "a/b/tell.sh"}, what, name, "there")
		}
		if name == "" {
			continue // a label that is left out
		}
		_, dir := namesWorld(t, "pull", "api/main", "US", upstream.URL)
		w := &wrongly{secrets: &secrets{t: t}, t: t, config: filepath.Join(dir, "costs.toml")}
		for _, args := range [][]string{
			{"charge", "api/main", "get", "--region=" + name}, {"charge", "api/main", "get", "--job=" + name},
			{"charge", "api/" + name, "get"}, {"charge", "api/main", "--", name}, {"ledger", "api/" + name}, {"status", "api/" + name},
			{"settle", "api/" + name, "id", "1"}, {"release", "api/" + name, "id"}, {"run", "--once", "--", name},
		} {
			if code, said := w.answer(args...); code != exitUsage {
				t.Errorf("quotactl %q: exit code %d, want 2\n%s", args, code, said)
			}
		}
	}
	if len(asked) > 0 {
		t.Errorf("the upstream was asked for %s", <-asked)
	}
}

// The oddest names there may be are names: one folder, one part of a path, one
// value of a query, one argument.
func TestOddNamesAreNames(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.RequestURI)
		_, _ = w.Write([]byte("{}"))
	}))
	defer upstream.Close()
	for _, name := range []string{"a..", "0...b", "1-rf", "x.ndjson.partial", "US_--help", "A.-._", strings.Repeat("z", 63)} {
		above, dir := namesWorld(t, "pull", "api/"+name, name, upstream.URL)
		w := &wrongly{secrets: &secrets{t: t}, t: t, config: filepath.Join(dir, "costs.toml")}
		if code, said := w.answer("run", "--once"); code != exitDone {
			t.Fatalf("%q: exit code %d\n%s", name, code, said)
		}
		data := filesIn(t, filepath.Join(above, "a", "b", "data", "pull", name))
		must.Equal(t, len(data), 1, name, "outputs", data)
		tick := strings.TrimSuffix(data[0], ".ndjson")
		mu.Lock()
		if want := "/pull/" + name + "?region=" + name + "&tick=" + tick; len(asked) != 1 || asked[0] != want {
			t.Errorf("%q: asked for %q, want %s", name, asked, want)
		}
		asked = nil
		mu.Unlock()
		words, err := os.ReadFile(filepath.Join(dir, "words"))
		if got := strings.Split(string(words), "\n"); err != nil || len(got) != 5 || got[0] != name || got[1] != "command" || got[3] != "command/"+got[2]+"/"+name {
			t.Errorf("%q: the command's words are %q, %v", name, got, err)
		}
		output := "a/b/data/pull/" + name + "/" + data[0]
		remembered := must.Get(filepath.Glob(filepath.Join(dir, ".quotactl", "outage", "*", "memory", "api+"+name)))(t)
		must.Equal(t, len(remembered), 1, name, "the budget is remembered in")
		state := filepath.Dir(filepath.Dir(remembered[0]))
		remembered = append(remembered, filepath.Join(state, "host"), filepath.Join(state, "memory.lock"), filepath.Join(state, "swept"), filepath.Join(state, "own", "api+"+name))
		for _, file := range filesIn(t, above) {
			if rest, ok := strings.CutPrefix(file, "a/b/"); file != output && !slices.Contains(remembered, filepath.Join(above, file)) && (!ok || strings.Contains(rest, "/")) {
				t.Errorf("%q: there is %s", name, file)
			}
		}
	}
}
