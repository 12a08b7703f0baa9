package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// gate is an upstream whose pages wait until they are let through.
type gate struct {
	*sandbox.Server
	asked chan struct{} // has one for each request
	open  chan struct{}
}

func newGate(t *testing.T) (*gate, string) {
	t.Helper()
	upstream := must.Get(sandbox.New(sandbox.Config{}))(t)
	g := &gate{Server: upstream, asked: make(chan struct{}, 100), open: make(chan struct{})}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	return g, server.URL
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.asked <- struct{}{}
	select {
	case <-g.open:
	case <-r.Context().Done():
	}
	g.Server.ServeHTTP(w, r)
}

// wholePages fails unless the program's files are the upstream's pages, each
// on a whole line of its own, and as many as were asked for.
func (p *program) wholePages(suffix string, pages int64) {
	p.t.Helper()
	found := must.Get(filepath.Glob(filepath.Join(p.Dir, "data/*/*")))(p.t)
	lines := int64(0)
	for _, path := range found {
		if !strings.HasSuffix(path, suffix) {
			p.t.Errorf("%s does not end in %s", path, suffix)
		}
		text := must.Get(os.ReadFile(path))(p.t)
		for line := range strings.Lines(string(text)) {
			if lines++; !strings.HasSuffix(line, "\n") || !json.Valid([]byte(line)) {
				p.t.Errorf("%s has a page that is not whole: %.80s", path, line)
			}
		}
	}
	if lines != pages || lines == 0 {
		p.t.Errorf("%d pages in %v, want %d", lines, found, pages)
	}
}

// A daemon that gets its stop signal in the middle of a page finishes it, asks for
// no other, and is done.
func TestADaemonToldToStopFinishesItsPages(t *testing.T) {
	upstream, address := newGate(t)
	p := startProgram(t, address, "run", "--now")
	<-upstream.asked // of both regions
	<-upstream.asked
	p.signal(syscall.SIGTERM)
	p.logged("stop signal received")
	close(upstream.open)
	p.exits(exitDone)
	if counted := upstream.Usage(); counted.Requests != 2 || counted.Rejected != 0 {
		t.Errorf("the upstream counted %+v, want the two pages that were under way", counted)
	}
	p.wholePages(".ndjson.partial", 2)
	p.logged(`msg="pass ended".* outcome=drained reason=stop units=2`)
}

// Ctrl-C stops the reader of a pipe as well, and first. The log then goes
// nowhere, but the drain goes on.
func TestADrainOutlivesTheReaderOfItsLog(t *testing.T) {
	upstream, address := newGate(t)
	p := newProgram(t, address, "run", "--now")
	read, write, err := os.Pipe()
	must.Do(t, err)
	p.Stderr = write
	p.start()
	must.Do(t, write.Close())
	<-upstream.asked
	<-upstream.asked
	must.Do(t, read.Close())
	p.signal(os.Interrupt)
	close(upstream.open)
	p.exits(exitDone)
	// The signal and the pages race: a page may have been asked for after the
	// first two. Whole they all are.
	p.wholePages("", upstream.Usage().Requests)
}

// A pass goes to its end when nobody reads what it tells, which is an error
// then.
func TestAPassOutlivesTheReaderOfItsAnswer(t *testing.T) {
	for _, args := range [][]string{{"run", "--once", "--sandbox"}, {"run", "--once", "--sandbox", "--json"}} {
		p := newProgram(t, "https://upstream.invalid", args...)
		read, write, err := os.Pipe()
		must.Do(t, err)
		p.Stdout = write
		must.Do(t, read.Close()) // before the first word
		p.start()
		must.Do(t, write.Close())
		p.exits(exitFailed)
		p.wholePages(".ndjson", 8)
		p.logged(`(?m)^quotactl: write the answer: .*broken pipe\n\z`)
		if text, err := os.ReadFile(p.log); err != nil || strings.Count(string(text), "broken pipe") != 1 {
			t.Errorf("it is not said once: %v\n%s", err, text)
		}
	}
}
