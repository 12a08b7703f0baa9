package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// docWay is a folder with what a page of docs tells to write, and the upstream
// that its programs call.
type docWay struct {
	*docJob
	page string
}

func newDocWay(t *testing.T, page string, quota int64) *docWay {
	t.Helper()
	w := &docWay{&docJob{t: t, dir: t.TempDir()}, page}
	w.write("costs.toml", strings.ReplaceAll(w.block("toml", "costs.toml"), "www.googleapis.com", "127.0.0.1"))
	began := time.Now() // the upstream's day does not end during the test
	var err error
	if w.upstream, err = sandbox.New(sandbox.Config{Quota: quota, Now: func() time.Time { return began }}); err != nil {
		t.Fatal(err)
	}
	must.Do(t, w.upstream.Listen(t.Context(), ""))
	t.Cleanup(func() { check.NoError(t, w.upstream.Close()) })
	w.env = append(os.Environ(), "YOUTUBE_API="+w.upstream.URL(), "YOUTUBE_API_KEY="+testKey,
		"GORACE=atexit_sleep_ms=0", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	return w
}

func (w *docWay) block(info ...string) string {
	w.t.Helper()
	blocks, _ := split(documents(w.t)[w.page])
	return docBlock(w.t, blocks, info...)
}

// shell runs a block of commands, whose output is what the page shows, but for the
// day and the seconds.
func (w *docWay) shell(name string) {
	w.t.Helper()
	w.write(name+".run", "exec 2>&1\n"+w.block("sh", name))
	got := string(w.run(0, "sh", name+".run"))
	if want := w.block("text", name); timeless(got) != timeless(want) {
		w.t.Errorf("%s: %s said\n%s\nwant\n%s", w.page, name, got, want)
	}
}

var (
	anInstant = regexp.MustCompile(`20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z`)
	aRate     = regexp.MustCompile(`\d+(\.\d+)? (units|calls) an hour`)
	aSpan     = regexp.MustCompile(`(\d+h)?(\d+m)?\d+(\.\d+)?s,`)
)

func timeless(text string) string {
	text = aRate.ReplaceAllString(text, "RATE")
	return aSpan.ReplaceAllString(anInstant.ReplaceAllString(text, "INSTANT"), "SPAN,")
}

// What docs/shell.md tells to write and run, against an upstream whose quota
// somebody else has nearly spent.
func TestDocumentedShell(t *testing.T) {
	w := newDocWay(t, "docs/shell.md", 150)
	w.write("search.sh", w.block("sh", "search.sh"))
	w.shell("twice")
	if cats, err := os.ReadFile(filepath.Join(w.dir, "cats.json")); err != nil || !strings.HasPrefix(strings.TrimSpace(string(cats)), "{") {
		t.Errorf("the first search: %q, %v", cats, err)
	}
	if counted := w.upstream.Usage(); counted.Requests != 2 || counted.Rejected != 1 {
		t.Errorf("the upstream counted %+v, want two requests, one of them rejected", counted)
	}
	w.run(0, "quotactl", "unlock", "youtube/key1", "--limit", "pacific-day")
	w.shell("lock")
}

// What docs/shell.md tells of exec: the request is the upstream's, the charge the
// ledger's, and a call that does not fit is not made.
func TestDocumentedShellExec(t *testing.T) {
	w := newDocWay(t, "docs/shell.md", 10_000)
	w.shell("exec")
	w.spent(1)
	if page, err := os.ReadFile(filepath.Join(w.dir, "videos.json")); err != nil || !strings.HasPrefix(strings.TrimSpace(string(page)), "{") {
		t.Errorf("the command's file: %q, %v", page, err)
	}
	w.run(0, "quotactl", "lock", "youtube/key1", "--for", "1h")
	w.run(0, "sh", "-c", strings.Replace(w.block("sh", "exec"), `echo "exit code $?"`, "[ $? -eq 75 ]", 1))
	w.spent(1)
}

// The crontab of docs/shell.md, with the variables that cron gives: the call is made and
// charged, a lack of units is no reason to write, and it reports all other errors with their
// exit codes.
func TestDocumentedShellCrontab(t *testing.T) {
	w := newDocWay(t, "docs/shell.md", 10_000)
	w.write("videos.sh", w.block("sh", "videos.sh"))
	w.write("youtube.key", testKey+"\n")
	program := must.Get(exec.LookPath("quotactl"))(t)
	crontab := strings.NewReplacer("/home/ann/videos", w.dir, "PATH=", "PATH="+filepath.Dir(program)+":").Replace(w.block("crontab"))
	w.env = []string{"HOME=" + t.TempDir(), "YOUTUBE_API=" + w.upstream.URL(), "GORACE=atexit_sleep_ms=0", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1"}
	var command string
	for line := range strings.Lines(crontab) {
		line = strings.TrimSpace(line)
		if _, after, fires := strings.Cut(line, "*/15 * * * * "); fires {
			command = after
			continue
		}
		w.env = append(w.env, line)
	}
	if len(w.env) != 7 || command == "" || strings.Contains(command, "%") { // which cron takes for the end of the line
		t.Fatalf("the crontab has the variables %q and the command %q", w.env[5:], command)
	}
	fires := func(code int, want string) {
		t.Helper()
		if said := string(w.run(code, "/bin/sh", "-c", command)); !strings.HasPrefix(said, want) || (want == "") != (said == "") {
			t.Errorf("it said %q, want %q", said, want)
		}
	}
	fires(0, "")
	w.spent(1)
	if page, err := os.ReadFile(filepath.Join(w.dir, "videos.json")); err != nil || !strings.HasPrefix(strings.TrimSpace(string(page)), "{") {
		t.Errorf("the file: %q, %v", page, err)
	}
	w.run(0, "quotactl", "lock", "youtube/key1", "--for", "1h")
	fires(0, "")
	w.spent(1)
	w.run(0, "quotactl", "unlock", "youtube/key1")
	path := w.env
	w.env = append(slices.Clone(path), "PATH=/nowhere:/bin:/usr/bin")
	fires(127, "quotactl or curl was not found: see PATH in the crontab: ")
	w.env = append(slices.Clone(path), "QUOTACTL_STORE=redis://127.0.0.1:1")
	fires(exitUnavailable, "the store did not answer, nothing was called: ")
	w.env = append(slices.Clone(path), "YOUTUBE_API="+w.upstream.URL()+"/nothing")
	fires(22, "exit code 22: ")
}

// Two searches at once hand over each its own response, and leave no file behind.
func TestDocumentedShellTwoAtOnce(t *testing.T) {
	w := newDocWay(t, "docs/shell.md", 10_000)
	var asked atomic.Int64
	both := make(chan struct{}) // is closed when both have asked
	upstream := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both:
		case <-r.Context().Done():
		}
		_, _ = fmt.Fprintf(out, "{%q: true}\n", r.FormValue("q"))
	}))
	t.Cleanup(upstream.Close)
	temporary := t.TempDir()
	w.env = append(w.env, "YOUTUBE_API="+upstream.URL, "TMPDIR="+temporary)
	w.write("search.sh", w.block("sh", "search.sh"))
	w.run(0, "sh", "-c", "./search.sh cats >cats.json & ./search.sh dogs >dogs.json; wait $!")
	for _, what := range []string{"cats", "dogs"} {
		if got, err := os.ReadFile(filepath.Join(w.dir, what+".json")); err != nil || string(got) != "{\""+what+"\": true}\n" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(temporary, "*"))
	if _, fixed := os.Stat(filepath.Join(w.dir, "answer.http")); err != nil || len(left) != 0 || fixed == nil {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// The program of docs/go.md, as it stands there.
func TestDocumentedGo(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	w := newDocWay(t, "docs/go.md", 10_000)
	built := buildGo(t, w.block("go", "main.go"))
	if got, want := string(w.run(0, built)), w.block("text", "main.go"); got != want {
		t.Errorf("it said\n%s\nwant\n%s", got, want)
	}
	w.spent(3)
}

// The program's budget may have no units that every operation spends: there is no
// number to print then.
func TestDocumentedGoWithoutOneNumber(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	w := newDocWay(t, "docs/go.md", 10_000)
	w.write("costs.toml", strings.Replace(strings.ReplaceAll(w.block("toml", "costs.toml"), "www.googleapis.com", "127.0.0.1"),
		"[upstream.youtube.limit.pacific-day]\n", "[upstream.youtube.limit.pacific-day]\noperations = [\"videos.list\"]\n", 1)+`
[upstream.youtube.limit.searches]
limit      = 1000
window     = "24h"
operations = ["search.list"]
`)
	check.Equal(t, string(w.run(0, buildGo(t, w.block("go", "main.go")))), "US 200\nGB 200\nDE 200\n", "it said")
}

// The test of docs/go.md passes as it stands, and fails for a job that is not metered.
func TestDocumentedGoTest(t *testing.T) {
	t.Parallel()
	w := newDocWay(t, "docs/go.md", 1)
	w.write("main.go", w.block("go", "main.go"))
	w.write("costs.toml", w.block("toml", "costs.toml"))
	passes := func(text string) (string, bool) {
		w.write("main_test.go", text)
		test := exec.CommandContext(t.Context(), "go", "test", "-count=1", filepath.Join(w.dir, "main.go"), filepath.Join(w.dir, "main_test.go"))
		test.Dir, test.Env = filepath.Join("..", ".."), append(os.Environ(), "YOUTUBE_API="+w.upstream.URL()) // as a shell may have it
		out, err := test.CombinedOutput()
		return string(out), err == nil
	}
	text := w.block("go", "main_test.go")
	if out, ok := passes(text); !ok {
		t.Errorf("it fails:\n%s", out)
	}
	unmetered := strings.Replace(text, "&http.Client{Transport: transport}", "&http.Client{Transport: &u}\n\t\t_ = transport", 1)
	if out, ok := passes(unmetered); ok || !strings.Contains(out, "one more: <nil>") {
		t.Errorf("a job that is not metered passes it:\n%s", out)
	}
}

// A request that was cancelled settles what it cost, as docs/go.md has it.
func TestDocumentedGoSettlesWhenCancelled(t *testing.T) {
	t.Parallel()
	w := newDocWay(t, "docs/go.md", 1)
	built := buildGo(t, `package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/open"
)

var cancelRequest context.CancelFunc

func search(context.Context) (units int64, sent bool) {
	cancelRequest()
	return 7, len(os.Args) < 2
}

func reserve(ctx context.Context, b *budget.Budget) error {
`+w.block("go", "reserve")+`
}

func main() {
	b, err := open.Budget(context.Background(), "costs.toml", "youtube/key1")
	if err == nil {
		var ctx context.Context
		ctx, cancelRequest = context.WithCancel(context.Background())
		err = reserve(ctx, b)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	status, err := b.Status(context.Background())
	fmt.Println(status.Limits[0].Used, err)
}
`)
	check.Equal(t, string(w.run(0, built)), "7 <nil>\n", "after a call of 7 units it has used")
	check.Equal(t, string(w.run(0, built, "not sent")), "7 <nil>\n", "after a call that was not sent, too, it has used")
}

// The fragments of docs/go.md compile.
func TestDocumentedGoFragments(t *testing.T) {
	t.Parallel()
	w := newDocWay(t, "docs/go.md", 1)
	buildGo(t, `package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/jobs/client"
)

func main() { fmt.Println(charge != nil, reserve != nil, lease != nil, run != nil, resume != nil) }

func fetch(context.Context, []byte) (next []byte, err error) { return nil, nil }

func run(store driver.Store, spec budget.Spec) error {
`+w.block("go", "run")+`
	fmt.Println(b)
	return err
}

func resume(ctx context.Context) error {
`+w.block("go", "checkpoint")+`
}

func search(context.Context) (units int64, sent bool) { return 1, true }

func charge(ctx context.Context, b *budget.Budget) error {
`+w.block("go", "charge")+`
	fmt.Println(receipt)
	return nil
}

func reserve(ctx context.Context, b *budget.Budget) error {
`+w.block("go", "reserve")+`
}

func more(context.Context) bool { return false }

func lease(ctx context.Context, b *budget.Budget) error {
`+w.block("go", "lease")+`
}
`)
}
