package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// daemonConfig is a job that is not due, and patient with the upstream at %s.
const daemonConfig = `
[store]
timeout = "1m"
[upstream.youtube.costs]
"videos.list" = 1
[upstream.youtube.limit.daily]
limit  = 100
window = "24h"
[upstream.youtube.credential.key1]
secret_env = "TEST_KEY"
[job.trending]
budget   = "youtube/key1"
schedule = "0 0 1 1 *"
regions  = ["US", "GB"]
timeout  = "1h"
grace    = "1h"
[job.trending.fetch]
operation = "videos.list"
url       = "%s/youtube/v3/videos?chart=mostPopular&maxResults=50&regionCode={region}"
secret    = { query = "key" }
next_page = { param = "pageToken", from = "nextPageToken" }
output    = "data/{region}/{tick}.ndjson"
`

const testKey = "a-real-s3cret"

// patience is how long a test waits for anything of another process before it fails.
const patience = 5 * time.Minute

// program is quotactl as a process of its own, which the test's end kills.
type program struct {
	*exec.Cmd
	t    *testing.T
	log  string // the file of its stderr
	file *os.File
	out  bytes.Buffer
}

func startProgram(t *testing.T, upstream string, args ...string) *program {
	t.Helper()
	p := newProgram(t, upstream, args...)
	p.start()
	return p
}

// newProgram is quotactl before its start, in a folder of its own.
func newProgram(t *testing.T, upstream string, args ...string) *program {
	t.Helper()
	effort.Processes(t)
	p := &program{t: t, Cmd: exec.CommandContext(t.Context(), "quotactl", args...)}
	p.Dir = t.TempDir()
	p.Env = append(os.Environ(), "TEST_KEY="+testKey)
	must.Do(t, os.WriteFile(filepath.Join(p.Dir, "costs.toml"), fmt.Appendf(nil, daemonConfig, upstream), 0o600))
	p.log = filepath.Join(p.Dir, "stderr")
	var err error
	if p.file, err = os.Create(p.log); err != nil {
		t.Fatal(err)
	}
	p.Stderr, p.Stdout = p.file, &p.out
	return p
}

func (p *program) start() {
	p.t.Helper()
	must.Do(p.t, errors.Join(p.Start(), p.file.Close()))
}

// logged waits until the log matches.
func (p *program) logged(pattern string) {
	p.t.Helper()
	expression := regexp.MustCompile(pattern)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(patience)
	for {
		text, err := os.ReadFile(p.log)
		if err == nil && expression.Match(text) {
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			p.t.Fatalf("the log never matched %s:\n%s", pattern, text)
		}
	}
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	must.Do(p.t, p.Process.Signal(s))
}

// exits waits for the end and holds it to a code.
func (p *program) exits(code int) {
	p.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	select {
	case err := <-ended:
		var exited *exec.ExitError
		if err != nil && !errors.As(err, &exited) {
			p.t.Fatal(err)
		}
	case <-time.After(patience):
		p.t.Fatal("it did not end")
	}
	text := must.Get(os.ReadFile(p.log))(p.t)
	if got := p.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d, want %d:\n%s", got, code, text)
	}
	if strings.Contains(string(text)+p.out.String(), "s3cret") {
		p.t.Errorf("the secret got out:\n%s%s", text, &p.out)
	}
}

// becomes waits until something is so.
func becomes(t *testing.T, what string, so func() bool) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.After(patience); !so(); {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("it never was so: %s", what)
		}
	}
}

// The daemon says what it will do, starts with a pass when told to, and the
// first signal, whichever it is, drains it.
func TestTheFirstSignalDrains(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		p := startProgram(t, "https://upstream.invalid", "run", "--sandbox", "--now")
		p.logged(`msg="pass ended".* outcome=succeeded`)
		p.signal(signal)
		p.exits(exitDone)
		p.logged(`msg=job job=trending budget=youtube/key1 schedule="0 0 1 1 \*" timezone=UTC regions=2 next=20[0-9]+-01-01T00:00:00Z\n`)
		p.logged(`msg="run ended" job=trending budget=youtube/key1 region=US run=trending/20[0-9]+T[0-9]+Z/US operation=videos.list outcome=succeeded pages=4 units=4 output=data/US/`)
		p.logged("stop signal received")
		if p.out.Len() > 0 {
			t.Errorf("the daemon wrote to stdout: %s", &p.out)
		}
	}
}

// The first signal waits for the pages under way, the second does not.
func TestTheSecondSignalStopsAtOnce(t *testing.T) {
	for _, args := range [][]string{{"run", "--now"}, {"run", "--once"}, {"run", "--once", "--json"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			upstream := must.Get(sandbox.New(sandbox.Config{Latency: time.Hour}))(t)
			server := httptest.NewServer(upstream)
			defer server.Close()
			p := startProgram(t, server.URL, append(args, "--log-level", "debug")...)
			p.logged("msg=charged")
			p.signal(syscall.SIGTERM)
			p.logged("stop signal received")
			p.signal(syscall.SIGTERM)
			p.exits(exitInterrupted)
			p.logged("(?m)^quotactl: interrupted")
			if args[1] == "--now" {
				p.logged("outcome=(skipped|drained) reason=interrupted")
			} else if !strings.Contains(p.out.String(), "interrupted") {
				t.Errorf("stdout does not tell that the run was interrupted:\n%s", &p.out)
			}
		})
	}
}

// A drained --once is done, and says what was left out.
func TestADrainedOnceIsDone(t *testing.T) {
	upstream := must.Get(sandbox.New(sandbox.Config{Latency: 300 * time.Millisecond}))(t)
	server := httptest.NewServer(upstream)
	defer server.Close()
	p := startProgram(t, server.URL, "run", "--once", "--log-level", "debug")
	p.logged("msg=charged")
	p.signal(syscall.SIGTERM)
	p.exits(exitDone)
	if !regexp.MustCompile(`(?m)^  US  drained  stop  [1-4] pages?  [1-4] units?  data/US/.*\.partial\n  GB  skipped  drained  0 pages  0 units\n`).MatchString(p.out.String()) {
		t.Errorf("stdout:\n%s", &p.out)
	}
	if counted := upstream.Usage(); counted.Rejected != 0 || counted.Units == 0 {
		t.Errorf("the upstream counted %+v", counted)
	}
}

// grep is the lines of a text that hold a word, comments aside.
func grep(text, word string) string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}
