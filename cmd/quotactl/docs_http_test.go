package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/serve"
)

// httpBlock is the one block of docs/http.md of a language and a name.
func httpBlock(t *testing.T, language, name string) string {
	t.Helper()
	blocks, _ := split(documents(t)["docs/http.md"])
	var found []string
	for _, b := range blocks {
		if slices.Equal(b.info, []string{language, name}) {
			found = append(found, b.text)
		}
	}
	must.Equal(t, len(found), 1, "docs/http.md has … blocks", language, name)
	return found[0]
}

// docPort is the port of the document.
const docPort = "9090"

// What changes from run to run: the seconds of a wait.
var waitSeconds = regexp.MustCompile(`(;t=|Retry-After: )\d+`)

// The programs of docs/http.md, as they stand there but for the port, against the
// daemon that it starts: their output is what it shows.
func TestDocumentedHTTP(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sh", "curl", "jq", "python3", "php"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("the programs of docs/http.md need %s: .ci/needs installs it or says how", tool)
		}
	}
	command := strings.Fields(strings.Replace(httpBlock(t, "sh", "daemon"), docPort, "0", 1))
	must.Equal(t, command[0], "quotactl", "the daemon is started by", command)
	d := startServing(t, patientConfig(httpBlock(t, "toml", "costs.toml")), command[1:]...)
	_, port, _ := strings.Cut(strings.TrimPrefix(d.address(), "http://"), ":")
	run := func(language, name, file string, program ...string) string {
		t.Helper()
		text := strings.ReplaceAll(httpBlock(t, language, name), docPort, port)
		must.Do(t, os.WriteFile(filepath.Join(d.Dir, file), []byte(text), 0o600))
		cmd := exec.CommandContext(t.Context(), program[0], append(program[1:], file)...)
		cmd.Dir = d.Dir
		cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "http_proxy=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	for _, name := range []string{"charge", "reserve", "status", "why", "lease"} {
		var got, want any
		out := run("sh", name, name+".sh", "sh")
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%s: %s: %v", name, out, err)
		}
		must.Do(t, json.Unmarshal([]byte(httpBlock(t, "json", name)), &want))
		if members, ok := got.(map[string]any); ok && (name == "charge" || name == "lease") {
			members["at"] = want.(map[string]any)["at"]
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s, want %s", name, out, httpBlock(t, "json", name))
		}
	}
	for name, program := range map[string][]string{"charge.py": {"python3"}, "limit.php": {"php"}} {
		language := map[string]string{"charge.py": "python", "limit.php": "php"}[name]
		got := waitSeconds.ReplaceAllString(run(language, name, name, program...), "${1}N")
		if want := waitSeconds.ReplaceAllString(httpBlock(t, "text", name), "${1}N"); got != want {
			t.Errorf("%s said\n%s\nwant\n%s", name, got, want)
		}
	}
	d.signal(syscall.SIGTERM)
	d.exits(exitDone)
}

// The Python program asks again, under the same id, when an answer is lost: when the
// connection ends before it, or within it, be it a decision or a problem.
func TestDocumentedHTTPLosesAnswers(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string][]string{} // ids by operation
	answered := 0
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var charge struct{ Operation, ID string }
		check.NoError(t, json.NewDecoder(r.Body).Decode(&charge))
		mu.Lock()
		defer mu.Unlock()
		status, body := http.StatusOK, `{"allowed": true, "remaining": 1}`
		if charge.Operation == "videos.lis" {
			status, body = http.StatusUnprocessableEntity, `{"detail": "unknown"}`
		}
		ids := append(asked[charge.Operation], charge.ID)
		if asked[charge.Operation] = ids; answered == 0 && len(ids) == 1 {
			panic(http.ErrAbortHandler) // it ends before the answer
		}
		half := answered == 0 && len(ids) == 2 || status != http.StatusOK && len(ids) == 1
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		if half {
			_, _ = io.WriteString(w, body[:5])
			panic(http.ErrAbortHandler)
		}
		answered++
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(daemon.Close)
	program := filepath.Join(t.TempDir(), "charge.py")
	text := strings.ReplaceAll(httpBlock(t, "python", "charge.py"), "127.0.0.1:"+docPort, daemon.Listener.Addr().String())
	must.Do(t, os.WriteFile(program, []byte(text), 0o600))
	cmd := exec.CommandContext(t.Context(), "python3", program)
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1", "http_proxy=")
	const want = "videos.list charged, 1 left\nsearch.list charged, 1 left\nvideos.list charged, 1 left\nunknown\n"
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("it said\n%s\n%v, want\n%s", out, err, want)
	}
	for operation, calls := range map[string][]int{"videos.list": {3, 1}, "search.list": {1}, "videos.lis": {2}} {
		ids, next := asked[operation], 0
		for _, tries := range calls {
			if len(ids) < next+tries || len(slices.Compact(slices.Clone(ids[next:next+tries]))) != 1 {
				t.Fatalf("%s was asked for under the ids %q, want calls of %v requests", operation, ids, calls)
			}
			next += tries
		}
		check.Equal(t, len(ids), next, operation, "was asked for under the ids", ids, "want calls of", calls, "requests")
	}
}

// Each problem has a heading of its own, where its type leads.
func TestDocumentedProblems(t *testing.T) {
	page := documents(t)["docs/http.md"]
	d := startServing(t, serveConfig, "run", "--listen", "0")
	_, body := d.call(http.MethodGet, "/v1/openapi.json", "")
	var description struct {
		Components struct {
			Schemas struct {
				Problem struct {
					Properties struct{ Reason struct{ Enum []string } }
				}
			}
		}
	}
	must.Do(t, json.Unmarshal([]byte(body), &description))
	reasons := description.Components.Schemas.Problem.Properties.Reason.Enum
	if len(reasons) < 20 {
		t.Errorf("%d reasons are described", len(reasons))
	}
	for _, reason := range reasons {
		if reason != "exhausted" && !hasHeading(page, reason) {
			t.Errorf("docs/http.md has no heading for %s", reason)
		}
	}
	// The unit file links to the same branch of the repository.
	branch, isDocs := strings.CutSuffix(serve.ProblemPage, "docs/http.md#")
	if unit := unitFile(t)["[Unit]Documentation"]; !isDocs || len(unit) != 1 || !strings.HasPrefix(unit[0], branch+"docs/") {
		t.Errorf("types lead to %s, the unit file to %q", serve.ProblemPage, unit)
	}
}
