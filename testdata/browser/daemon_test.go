package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// token is what daemons ask for that have a token.
const token = "a-token-that-nobody-guesses"

// world is a folder with a configuration, and the daemon that runs in it.
type world struct {
	t   testing.TB
	dir string
	env []string

	daemon *exec.Cmd
	url    string // the daemon's, without a path

	mu  sync.Mutex
	log strings.Builder // the daemon's
}

// newWorld makes a folder with a configuration.
func newWorld(t testing.TB, config string, env ...string) *world {
	t.Helper()
	effort.Processes(t)
	w := &world{t: t, dir: t.TempDir(), env: append(os.Environ(), env...)}
	w.write("costs.toml", config)
	return w
}

// write writes a file into the world's folder, and returns its path.
func (w *world) write(name, text string) (path string) {
	w.t.Helper()
	path = filepath.Join(w.dir, name)
	must.Do(w.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// host is the daemon's address, as 127.0.0.1:8080.
func (w *world) host() string { return strings.TrimPrefix(w.url, "http://") }

// command is quotactl in the world's folder.
func (w *world) command(args ...string) *exec.Cmd {
	command := exec.CommandContext(w.t.Context(), quotactl, args...)
	command.Dir, command.Env = w.dir, w.env
	return command
}

// run runs quotactl, which must end with a code, and returns what it printed.
func (w *world) run(code int, args ...string) string {
	w.t.Helper()
	out, err := w.command(args...).CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	} else if got := exit.ExitCode(); err == nil && code != 0 || err != nil && got != code {
		w.t.Fatalf("quotactl %s: %v, not exit code %d\n%s", strings.Join(args, " "), err, code, out)
	}
	return string(out)
}

var listensOn = regexp.MustCompile(`msg="?listening.* address=(\S+)`)

// start starts the daemon on a free port, with further flags, and waits until it is ready. It
// ends with the test, by SIGTERM.
func (w *world) start(args ...string) {
	w.t.Helper()
	// Its context outlives the test's, which is done before the daemon is stopped.
	ctx, kill := context.WithCancel(context.Background())
	w.daemon = exec.CommandContext(ctx, quotactl, append([]string{"run", "--listen", "127.0.0.1:0"}, args...)...)
	w.daemon.Dir, w.daemon.Env = w.dir, w.env
	log := must.Get(w.daemon.StderrPipe())(w.t)
	must.Do(w.t, w.daemon.Start())
	address := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.read(log, address)
	}()
	w.t.Cleanup(func() {
		defer kill()
		timer := time.AfterFunc(time.Minute, kill)
		defer timer.Stop()
		_ = w.daemon.Process.Signal(syscall.SIGTERM) // fails if it has ended, which Wait tells
		<-ended
		err := w.daemon.Wait()
		if w.t.Failed() || err != nil {
			w.t.Logf("the daemon ended with %v\n%s", err, w.logged())
		}
	})
	select {
	case w.url = <-address:
	case <-ended:
		w.t.Fatalf("the daemon ended before it listened:\n%s", w.logged())
	}
	for deadline := time.Now().Add(time.Minute); ; {
		why := w.unready()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the daemon is not ready: %s", why)
		}
	}
}

// unready is why the daemon is not ready; "" if it is.
func (w *world) unready() string {
	w.t.Helper()
	request := must.Get(http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+"/readyz", nil))(w.t)
	request.Header.Set("Authorization", "Bearer "+token) // one without a token ignores it
	answer, err := http.DefaultClient.Do(request)
	must.Do(w.t, err)
	defer func() { _ = answer.Body.Close() }() // it was read
	why := must.Get(io.ReadAll(answer.Body))(w.t)
	if answer.StatusCode == http.StatusOK {
		return ""
	}
	return string(why)
}

// read keeps the daemon's log, and sends the address that it names.
func (w *world) read(log io.Reader, address chan<- string) {
	for lines := bufio.NewScanner(log); lines.Scan(); {
		w.mu.Lock()
		fmt.Fprintln(&w.log, lines.Text())
		w.mu.Unlock()
		if found := listensOn.FindStringSubmatch(lines.Text()); found != nil {
			select {
			case address <- strings.TrimSuffix(found[1], "/"):
			default: // a gateway's comes later
			}
		}
	}
}

func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}
