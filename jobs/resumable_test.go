package jobs

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/checkpoint"
	"github.com/quotactl/quotactl/internal/must"
)

// resumable is a world of one region of four pages, whose runs can be resumed for an hour,
// and its upstream.
type resumable struct {
	*world
	upstream *recorded
	refuse   int // the number of the request, from 1 on, that is answered with a fault
	status   int // of the fault; 0: 403
}

func newResumable(t *testing.T, s setup) *resumable {
	t.Helper()
	s.job += "\ncheckpoint = \"1h\"\n" + oneRegion
	r := &resumable{upstream: &recorded{}}
	if s.upstream == nil {
		s.upstream = r.upstream
	}
	r.world = newWorld(t, s)
	r.upstream.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.refuse > 0 && r.upstream.count() == r.refuse {
			w.WriteHeader(cmp.Or(r.status, http.StatusForbidden))
			return
		}
		r.sandbox.ServeHTTP(w, q)
	})
	return r
}

// asked are the tokens of the requests since the last time; "-" is none.
func (r *resumable) asked() []string {
	r.upstream.mu.Lock()
	defer r.upstream.mu.Unlock()
	var list []string
	for _, q := range r.upstream.requests {
		token := q.query.Get("pageToken")
		if token == "" {
			token = "-"
		}
		list = append(list, token)
	}
	r.upstream.requests = nil
	return list
}

// cut runs a pass that fails at its request of this number.
func (r *resumable) cut(at int) Run {
	r.t.Helper()
	r.upstream.forget()
	r.refuse = at
	p := r.once()
	r.refuse = 0
	if run := p.Runs[0]; run.Outcome != Failed || run.Pages != at-1 {
		r.t.Fatalf("run %+v, want it cut after %d pages", run, at-1)
	}
	return p.Runs[0]
}

// checkpoint is what is kept of the region; nil for nothing.
func (r *resumable) checkpoint() *fetchCheckpoint {
	r.t.Helper()
	text, err := r.store.JobValue(context.Background(), "trending", "checkpoint/US")
	must.Do(r.t, err)
	if text == nil {
		return nil
	}
	value, err := checkpoint.Read(text)
	must.Do(r.t, err)
	from, why := (&fetchRun{
		run: &run{job: r.list[0], record: &Run{Region: "US"}, now: time.Now}, output: &output{folder: r.root()},
	}).readCheckpoint(checkpoint.Value{Expires: time.Now().Add(time.Hour).UnixMicro(), Fetch: value.Fetch}.Text())
	if from == nil {
		r.t.Fatal(why)
	}
	return from
}

// root is the folder of the outputs.
func (w *world) root() *os.Root {
	w.t.Helper()
	path := filepath.Join(w.dir, "data")
	must.Do(w.t, os.MkdirAll(path, 0o700))
	root, err := os.OpenRoot(path)
	must.Do(w.t, err)
	w.t.Cleanup(func() { _ = root.Close() })
	return root
}

// holds compares a file with the pages of the region from one on, 0 being the first.
func (r *resumable) holds(path string, from int) {
	r.t.Helper()
	got := readFile(r.t, path)
	lines := strings.SplitAfter(served(r.t, "US"), "\n")
	if want := strings.Join(lines[from:], ""); got != want {
		r.t.Errorf("%s has %d lines, want those from %d on", path, strings.Count(got, "\n"), from)
	}
}

// holdsFirst compares a file with so many pages, the first.
func (r *resumable) holdsFirst(path string, pages int) {
	r.t.Helper()
	got := readFile(r.t, path)
	lines := strings.SplitAfter(served(r.t, "US"), "\n")
	if want := strings.Join(lines[:pages], ""); got != want {
		r.t.Errorf("%s has %d lines, want %d", path, strings.Count(got, "\n"), pages)
	}
}
