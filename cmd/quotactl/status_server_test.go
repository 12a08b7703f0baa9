package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/jobs"
)

// hostile is what a daemon may say of one budget, with what a terminal would obey in every text.
const hostile = `{"at":"2026-11-27T21:00:00.000000Z","store":"s\u001b[2J","budgets":[{"budget":"b\u001b]0;x\u0007","remaining":1,
"locked_until":"2026-11-28T21:00:00.000000Z","locked_why":"w\u009b2J\n","other_shares":[{"host":"h\r\b","none":true,"last":"2026-11-27T21:00:00.000000Z"}],
"limits":[{"name":"l\u007f","kind":"rolling","quota":5,"headroom":1,"limit":4,"used":3,"remaining":1,"counts":"units","mode":"enforce","window_seconds":60,"operations":[],
"shares":[{"share":"s\u001b","jobs":["j"],"guarantee":1,"in_force":1,"used":0,"kept":1,"borrowed":0}],"held":[{"job":"j\u001b[1m","region":"r","amount":1,"until":null}]}]}],
"jobs":[{"job":"j\u001bM","budget":"b","next":null,"last":{"outcome":"o\u001bc","runs":[]},"paused":{"note":"n\u001b[8m","by":"y","at":"2026-11-27T21:00:00.000000Z"},"active":[]}],
"daemons":[],"alerts":[{"alert":"a\u001b","failing":1,"failing_since":"2026-11-27T21:00:00.000000Z","error":"e\u001b[2J"}]}`

// Whatever a daemon answers, status neither ends the program nor writes what a terminal would obey.
func FuzzOverviewOfAServer(f *testing.F) {
	f.Add([]byte(hostile))
	f.Add([]byte(`{"at":"2026-11-27T21:00:00.000000Z","budgets":[{"budget":"b","limits":[{"quota":1},{"kind":"bucket"},{"kind":"calendar"}]}]}`))
	f.Add([]byte(`{"at":"2026-11-27T21:00:00.000000Z","alerts":[{"failing":1}],"jobs":[{"last":1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }))
		defer server.Close()
		asked := must.Get(look.NewServer(server.URL, ""))(t)
		seen, body, err := asked.Overview(t.Context(), nil)
		for _, on := range []screen.Screen{screen.Pipe(), {Terminal: true, Width: 60, Height: 20, Zone: time.UTC, Now: time.Unix(0, 0)}} {
			said := ""
			if err == nil {
				said = string(body) + statusText(on, seen, true) + statusText(on, seen, false)
			}
			if at := strings.IndexFunc(said, func(r rune) bool { return screen.Obeyed(r) && r != '\n' && r != '\t' && r != '\r' }); at >= 0 {
				t.Errorf("status writes %q", said[max(0, at-20):min(len(said), at+20)])
			}
		}
	})
}

// Status says that a server refused the token, or is not a daemon.
func TestStatusOfAServerThatRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		code   int
		says   string
	}{
		"no token":     {401, `{"reason":"no_token","detail":"send this daemon's token\u001b[2J"}`, exitFailed, "the daemon refuses: send this daemon's token?[2J"},
		"store away":   {503, `{"reason":"unavailable","detail":"the store is away"}`, exitUnavailable, "the store is away"},
		"another page": {200, `<html>`, exitFailed, "is http://127.0.0.1"},
		"a redirect":   {302, ``, exitFailed, "the daemon refuses: status 302"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			check.Equal(t, r.Header.Get("Authorization"), "Bearer a-token-that-may-look", name)
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		stdout, stderr, code := runIn(t, func(variable string) (string, bool) { return "a-token-that-may-look", variable == "READ" }, time.Now(), "status", "--server", server.URL, "--token-env", "READ")
		server.Close()
		check.Equal(t, code, c.code, name, stdout, stderr)
		check.Contains(t, stderr, c.says, name)
	}
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte("a-token-that-may-look"), 0o600))
	for _, wrong := range [][]string{{"--server", "jobs.internal"}, {"--server", "http://a:b@c"}, {"--token-env", "READ"}, {"--server", "http://localhost", "--sandbox"}, {"--server", "http://localhost", "--token-env", "NONE"}, {"--server", "http://jobs.internal", "--token-file", token}} {
		_, stderr, code := runIn(t, noEnv, time.Now(), append([]string{"status"}, wrong...)...)
		check.Equal(t, code, exitUsage, wrong, stderr)
	}
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	_, stderr, code := runIn(t, noEnv, time.Now(), "status", "--server", untrusted.URL)
	check.Equal(t, code, exitFailed, stderr)
	check.Contains(t, stderr, "its certificate is not trusted here", "a certificate of nobody")
	_, stderr, code = runIn(t, noEnv, time.Now(), "status", "--server", "http://127.0.0.1:1")
	check.Equal(t, code, exitUnavailable, stderr)
}

// What is wrong with an alert is as wide as the terminal.
func TestAlertsOnATerminal(t *testing.T) {
	since := jobs.Instant{Time: time.Unix(0, 0)}
	o := look.Overview{At: time.Unix(0, 0), Alerts: []alert.Health{{Alert: "team", Failing: 1, Since: &since, Error: strings.Repeat("no answer ", 20)}}}
	text := statusText(screen.Screen{Terminal: true, Width: 60, Height: 20, Zone: time.UTC, Now: time.Unix(0, 0)}, o, false)
	check.Contains(t, text, "✗ alert team: a message could not be delivered")
	for line := range strings.SplitSeq(text, "\n") {
		check.Equal(t, len([]rune(line)) <= 60, true, line)
	}
}

// What a daemon says of its store is shown as what is read there.
func TestStatusOfAServerShowsTheSame(t *testing.T) {
	o := everything(t)
	for _, job := range o.Jobs { // as the store has it
		for i := range job.Active {
			job.Active[i].Progress = must.Get(json.Marshal(job.Progress[i]))(t)
		}
	}
	text := must.Get(json.Marshal(o.JSON()))(t)
	told := must.Get(look.Decode(text))(t)
	check.Equal(t, string(must.Get(json.Marshal(told.JSON()))(t)), string(text), "JSON")
	for _, on := range []screen.Screen{screen.Pipe(), {Terminal: true, Width: 100, Height: 40, Zone: time.UTC, Now: o.At}} {
		check.Equal(t, statusText(on, told, true), statusText(on, o, true), "text")
	}
}
