package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// secretAddress is looked for wherever it must not be.
const secretAddress = "https://hooks.example.net/T0K3N/s3cret?key=hidden"

const costs = `
[upstream.shop.costs]
"get" = 1
[upstream.shop.limit.daily]
limit = 100
window = "24h"
[upstream.shop.credential.main]
`

// world is a configuration with its store, a webhook, and any number of daemons, in fake time.
type world struct {
	after   *Unreached // what the next daemon goes on with
	t       *testing.T
	store   driver.JobStore
	budgets map[string]*budget.Budget
	cfg     *config.Config
	jobs    []*jobs.Job
	hook    *hook
	log     *logBuffer
	plan    []Forecast
	// forecast, if not nil, is asked instead of plan.
	forecast func(context.Context) ([]Forecast, error)
	counted  map[Result]int
	mu       sync.Mutex
}

// logBuffer is a log that many goroutines write.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// hook is a webhook in this process. answer decides what a request gets; nil: 200.
type hook struct {
	mu     sync.Mutex
	got    []Message // what was answered with 2xx
	tries  int
	answer func(n int, r *http.Request) (status int, header http.Header, err error)
	paths  []string
	bodies []string
}

// RoundTrip implements http.RoundTripper.
func (h *hook) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.tries++
	n, answer := h.tries, h.answer
	h.mu.Unlock()
	status, header := 200, http.Header{}
	if answer != nil {
		if status, header, err = answer(n, r); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paths, h.bodies = append(h.paths, r.URL.Path), append(h.bodies, string(body))
	if status/100 == 2 {
		var m Message
		if json.Unmarshal(body, &m) == nil {
			h.got = append(h.got, m)
		}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader("ok")), Request: r}, nil
}

func (h *hook) messages() []Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got)
}

func (h *hook) tried() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tries
}

// answers sets what requests get from now on.
func (h *hook) answers(answer func(n int, r *http.Request) (int, http.Header, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

// told are the kinds and phases of what was delivered, in order.
func (h *hook) told() (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.got {
		list = append(list, m.Kind+" "+string(m.Phase))
	}
	return list
}

func newWorld(t *testing.T, text string) *world {
	t.Helper()
	file := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	w := &world{t: t, hook: &hook{}, log: &logBuffer{}, counted: map[Result]int{}, budgets: map[string]*budget.Budget{}}
	w.cfg = must.Get(config.Parse(file))(t)
	w.jobs = jobs.Load(w.cfg)
	must.Do(t, w.cfg.Err())
	store := memstore.New(func() int64 { return time.Now().UnixMicro() })
	w.store = store
	for _, name := range w.cfg.Budgets() {
		w.budgets[name] = must.Get(budget.New(store, must.Get(w.cfg.Spec(name))(t)))(t)
	}
	return w
}

// daemon starts a daemon's watcher; the returned function ends it.
func (w *world) daemon() (stop func()) {
	ctx, kill := context.WithCancel(w.t.Context())
	until, end := context.WithCancel(ctx)
	watcher := w.watcher()
	done := make(chan struct{})
	go func() {
		defer close(done)
		watcher.Run(ctx, until)
	}()
	return func() { end(); <-done; kill() }
}

func (w *world) watcher() *Watcher {
	o := Options{
		State: w.store, Env: env, Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Current: func() Now { return Now{w.cfg.Alerts, w.budgets, w.jobs} }, After: w.after,
		Count: func(_ string, r Result) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.counted[r]++
		},
	}
	if w.plan != nil {
		o.Forecast = func(context.Context) ([]Forecast, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.plan, nil
		}
	}
	if w.forecast != nil {
		o.Forecast = w.forecast
	}
	watcher := New(o)
	watcher.sender.client.Transport = w.hook
	return watcher
}

func (w *world) count(r Result) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counted[r]
}

func env(name string) (string, bool) {
	if name == "HOOK" {
		return secretAddress, true
	}
	return "", false
}

// spend charges units of shop/main.
func (w *world) spend(units int64) {
	w.t.Helper()
	must.Get(w.budgets["shop/main"].Charge(w.t.Context(), budget.Call{Operation: "get", Units: &units}))(w.t)
}

// noSecret fails if the address is in the log or in the alert's record.
func (w *world) noSecret(alert string) {
	w.t.Helper()
	found := must.Get(w.store.Job(w.t.Context(), documentOf(alert)))(w.t)
	for _, text := range []string{w.log.String(), string(found.Text)} {
		for _, part := range []string{"hooks.example", "T0K3N", "s3cret", "hidden"} {
			if strings.Contains(text, part) {
				w.t.Errorf("%q is in %s", part, text)
			}
		}
	}
}

func (w *world) tells(want ...string) {
	w.t.Helper()
	check.EqualSlices(w.t, w.hook.told(), want, "told")
}

// awayStore is a store that may be out of reach.
type awayStore struct {
	driver.JobStore
	out      atomic.Bool
	readonly atomic.Bool // only writing fails
}

var errAway = fmt.Errorf("%w: no route", budget.ErrUnavailable)

func (s *awayStore) Job(ctx context.Context, job string) (driver.JobDocument, error) {
	if s.out.Load() {
		return driver.JobDocument{}, errAway
	}
	return s.JobStore.Job(ctx, job)
}

func (s *awayStore) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	if s.out.Load() {
		return nil, errAway
	}
	return s.JobStore.Jobs(ctx, names)
}

func (s *awayStore) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	if s.out.Load() || s.readonly.Load() {
		return false, errAway
	}
	return s.JobStore.SwapJob(ctx, swap)
}

// hangingStore answers no look.
type hangingStore struct{ driver.JobStore }

func (s hangingStore) Jobs(ctx context.Context, _ []string) ([]driver.JobDocument, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
