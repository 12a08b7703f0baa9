package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// observedClients are those of TestObservedClients: one a language that this machine has, and at
// full effort all.
func observedClients(t *testing.T) []client {
	if effort.Of(false, false, true) {
		return clients
	}
	list := []client{}
	for _, c := range clients {
		if c.name == "curl, HTTP/2" || c.name == "Go net/http" || c.name == effort.Of("", "gRPC (Go)") {
			list = append(list, c)
		}
	}
	for _, c := range []client{
		{name: "Python", program: []string{"python3", "python/urllib_client.py"}, scenarios: []string{"token", "absolute", "upload", "resumable", "head", "etag", "moved", "away"}},
		{name: "Node", program: []string{"node20", "node/fetch.mjs"}, scenarios: nodeFetch},
		{name: "PHP", program: []string{"php", "php/clients.php"}, scenarios: []string{"curl_token", "curl_upload", "curl_gzip", "curl_moved"}},
		{name: "Ruby", program: []string{"ruby", "ruby/clients.rb"}, scenarios: []string{"net_token", "net_upload", "net_gzip", "openuri_moved"}},
	} {
		if _, err := exec.LookPath(strings.TrimSuffix(c.program[0], "20")); err != nil {
			t.Logf("%s is left out: %v", c.name, err)
			continue
		}
		list = append(list, c)
	}
	return list
}

// What a client is seen to call becomes a configuration that check accepts, by which meter charges
// what the upstreams count: of hosts with a preset by the preset's operations, of all others each
// request by the operation that the draft has for it.
func TestObservedClients(t *testing.T) {
	t.Parallel()
	effort.Processes(t)
	effort.Unraced(t)
	chosen := observedClients(t)
	k := newClientKit(t, chosen)
	for _, c := range chosen {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			first := k.prepare(t)
			draft := filepath.Join(first.dir, "draft.toml")
			must.Do(t, os.Remove(first.config()))
			first.metered(t, c, append(c.flags(), "--observe=*", "--draft="+draft)...)
			first.holds(t, c)
			must.Equal(t, first.code, 0, first.stderr)
			second := k.prepare(t)
			text := string(must.Get(os.ReadFile(draft))(t))
			must.Do(t, os.WriteFile(second.config(), []byte(patientConfig(text)), 0o600))
			second.ask(t, "check") // fails the test if there is an error
			second.metered(t, c, c.flags()...)
			second.holds(t, c)
			second.chargedByDraft(t)
			if t.Failed() {
				t.Logf("%s\n%s", first.stderr, text)
			}
		})
	}
}

// chargedByDraft fails the test unless the ledger has each request that arrived.
func (r *clientRun) chargedByDraft(t *testing.T) {
	t.Helper()
	cfg := must.Get(config.Load(r.config()))(t)
	want, got := map[string]spend{}, map[string]spend{}
	routes, preset := budgethttp.NewRoutes(), map[string]bool{}
	for _, u := range cfg.Upstreams {
		preset[u.Name] = len(u.Feedback.Refusals) > 0
		for operation, cost := range u.Costs {
			for _, pattern := range cost.Match {
				must.Get(routes.Add(pattern, u.Name+" "+operation))(t)
			}
		}
	}
	for _, request := range r.apis.seen() {
		words := strings.Fields(request)
		at := must.Get(url.Parse(words[1]))(t)
		operation, known := routes.Operation(&http.Request{Method: words[0], Host: at.Host, URL: at})
		check.Equal(t, known, true, "an operation of the draft for", request)
		if upstream, _, _ := strings.Cut(operation, " "); !preset[upstream] {
			want[operation] = spend{want[operation].units + 1, want[operation].calls + 1}
		}
	}
	for name, s := range r.apis.counted() {
		if upstream, _, _ := strings.Cut(name, " "); preset[upstream] {
			want[upstream] = spend{calls: want[upstream].calls + s.calls}
		}
	}
	for _, name := range cfg.Budgets() {
		var ledger struct {
			Rows []struct {
				Name               string
				Units, Calls, Open int
			}
		}
		must.Do(t, json.Unmarshal(r.ask(t, "ledger", name, "--json"), &ledger))
		upstream, _, _ := strings.Cut(name, "/")
		for _, row := range ledger.Rows {
			operation := upstream + " " + row.Name
			check.Equal(t, row.Open, 0, "open calls of", operation)
			if preset[upstream] {
				got[upstream] = spend{calls: got[upstream].calls + row.Calls}
			} else {
				got[operation] = spend{row.Units, row.Calls}
			}
		}
	}
	equalSpends(t, got, want, "the ledger beside what arrived")
	check.Equal(t, len(want) > 0, true, "a call arrived")
}
