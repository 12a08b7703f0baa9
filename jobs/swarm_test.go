package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// The swarm: so many daemons, jobs, and ticks to come.
var (
	swarmDaemons   = effort.Of(4, 6, 10)
	swarmJobs      = effort.Of(30, 30, 50)
	swarmTicks     = effort.Of(150, 300, 1000)
	swarmKills     = effort.Of(10, 15, 40) // at least
	swarmAmid      = effort.Of(2, 3, 10)   // of these, at least, those that come amid a run
	swarmSucceeded = effort.Of(15, 30, 100)
	swarmAnswer    = effort.Of(800, 600, 400) // the longest of the upstream, in ms: few daemons are to be as busy as many
)

const (
	swarmEvery = 2 * time.Second
	swarmBeat  = time.Second
)

// Ten daemons on one store, killed and stopped at random: each tick has one record,
// none is run twice, and none is missing.
func TestTenDaemons(t *testing.T) {
	effort.Processes(t)
	t.Parallel()
	for name, url := range map[string]func(dir string) string{
		"sqlite": func(dir string) string { return "sqlite:" + filepath.Join(dir, "quotactl.db") },
		"redis":  func(string) string { return redistest.Start(t).URL(0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := effort.Seed(t)
			s := newSwarm(t, url, rand.New(rand.NewPCG(seed, 0)))
			for i := range swarmDaemons {
				s.start(i)
			}
			s.torment(time.Duration(swarmTicks/swarmJobs)*swarmEvery + 2*time.Second)
			s.stopAll()
			s.settle()
			s.check()
		})
	}
}

// swarm is the daemons, the store and the upstream that they share.
type swarm struct {
	t       *testing.T
	rng     *rand.Rand
	dir     string
	url     string
	config  *config.Config
	list    []*Job
	daemons map[int]*exec.Cmd
	killed  int
	amid    int // how many were killed while they waited for an answer
	stopped int

	mu       sync.Mutex
	asked    map[string][]string // the daemons that asked, by job and tick
	answered int                 // how often the upstream's answer went out
	open     map[string]int      // the requests that wait for an answer, by daemon
}

func newSwarm(t *testing.T, url func(dir string) string, rng *rand.Rand) *swarm {
	s := &swarm{t: t, rng: rng, dir: t.TempDir(), daemons: map[int]*exec.Cmd{}, asked: map[string][]string{}, open: map[string]int{}}
	s.url = url(s.dir)
	t.Cleanup(func() {
		for _, cmd := range s.daemons { // of a test that failed
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		key := r.URL.Query().Get("job") + " " + r.URL.Query().Get("tick")
		daemon := r.Header.Get("Daemon")
		s.asked[key] = append(s.asked[key], daemon)
		s.open[daemon]++
		answer := time.Duration(s.rng.IntN(swarmAnswer)) * time.Millisecond
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			s.open[daemon]--
			s.mu.Unlock()
		}()
		select {
		case <-time.After(answer):
			_, _ = w.Write([]byte("{}"))
			s.mu.Lock()
			s.answered++
			s.mu.Unlock()
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(upstream.Close)
	text := &strings.Builder{}
	fmt.Fprintf(text, `
[store]
url = %q
timeout = "2s"
[upstream.shop.costs]
"get" = 1
[upstream.shop.limit.daily]
limit = 100_000
window = "24h"
[upstream.shop.credential.main]
`, s.url)
	for i := range swarmJobs {
		fmt.Fprintf(text, `
[job.job%02d]
budget = "shop/main"
schedule = "@every %s"
grace = "500ms"
overlap = %q
[job.job%02d.fetch]
operation = "get"
url = "%s/?job={job}&tick={tick}"
output = "{job}/{tick}.ndjson"
`, i, swarmEvery, []string{"allow", "allow", "queue", "skip"}[i%4], i, upstream.URL)
	}
	path := filepath.Join(s.dir, "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(text.String()), 0o600))
	var err error
	s.config, err = config.Parse(path)
	must.Do(t, err)
	if s.list = Load(s.config); s.config.Err() != nil {
		t.Fatal(s.config.Err())
	}
	return s
}

// start starts a daemon. Its outputs are its own, or they would keep a tick from
// being run a second time.
func (s *swarm) start(i int) {
	s.t.Helper()
	cmd := exec.Command(os.Args[0], "daemon", s.config.File, fmt.Sprint(i))
	cmd.Env = append(os.Environ(), asCommand+"=1")
	log, err := os.OpenFile(filepath.Join(s.dir, fmt.Sprintf("%d.log", i)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must.Do(s.t, err)
	cmd.Stderr = log
	must.Do(s.t, errors.Join(cmd.Start(), log.Close()))
	s.daemons[i] = cmd
}

// torment kills daemons and starts them anew, and stops some for a while. A busy
// machine gets more time, and daemons live longer there, until enough came of them.
func (s *swarm) torment(d time.Duration) {
	resume := map[int]time.Time{}
	began := time.Now()
	tooFew := func() bool {
		return s.killed < swarmKills || s.amid < swarmAmid || s.answers() < 2*swarmSucceeded
	}
	for time.Since(began) < d || tooFew() && time.Since(began) < 5*time.Minute {
		slower := 1 + time.Since(began)/d
		s.wait(slower * time.Duration(200+s.number(600)) * time.Millisecond)
		for i, at := range maps.Clone(resume) {
			if time.Now().After(at) {
				s.signal(i, syscall.SIGCONT)
				delete(resume, i)
			}
		}
		i := s.number(swarmDaemons)
		switch {
		case s.number(2) == 0:
			if s.waits(i) {
				s.amid++
			}
			s.signal(i, syscall.SIGKILL)
			_ = s.daemons[i].Wait() // it was killed
			delete(resume, i)
			s.killed++
			s.start(i)
		case resume[i].IsZero() && len(resume) < 3:
			s.signal(i, syscall.SIGSTOP)
			stop := time.Duration(100+s.number(500)) * time.Millisecond
			if s.number(6) == 0 { // until it is declared dead
				stop += 5 * swarmBeat
			}
			resume[i] = time.Now().Add(stop)
			s.stopped++
		}
	}
	for i := range resume {
		s.signal(i, syscall.SIGCONT)
	}
}

func (s *swarm) answers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}

// waits reports whether a daemon waits for an answer of the upstream.
func (s *swarm) waits(i int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[fmt.Sprint(i)] > 0
}

func (s *swarm) number(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *swarm) wait(d time.Duration) { <-time.After(d) }

func (s *swarm) signal(i int, signal syscall.Signal) {
	s.t.Helper()
	if err := s.daemons[i].Process.Signal(signal); err != nil {
		s.t.Fatalf("signal daemon %d: %v", i, err)
	}
}

// stopAll drains what runs.
func (s *swarm) stopAll() {
	s.t.Helper()
	for i := range s.daemons {
		s.signal(i, syscall.SIGTERM)
	}
	for i, cmd := range s.daemons {
		if err := cmd.Wait(); err != nil && err.Error() != "signal: terminated" { // that came before it listened
			text, _ := os.ReadFile(filepath.Join(s.dir, fmt.Sprintf("%d.log", i)))
			s.t.Errorf("daemon %d: %v\n%s", i, err, text[max(0, len(text)-4000):])
		}
		delete(s.daemons, i)
	}
}

// patient opens the store for the test itself, which waits for it longer than a daemon does.
func (s *swarm) patient() open.Backend {
	s.t.Helper()
	settings := s.config.Store
	settings.Timeout = patience
	return must.Get(open.Store(s.t.Context(), s.url, settings))(s.t)
}

// settle has one more daemon find what the others have left behind. The jobs are
// paused, so that it begins nothing.
func (s *swarm) settle() {
	s.t.Helper()
	store := s.patient()
	defer func() { _ = store.Close() }()
	for _, j := range s.list {
		if _, _, _, err := SetPause(s.t.Context(), store, j, "the end"); err != nil {
			s.t.Fatal(err)
		}
	}
	s.start(swarmDaemons)
	redistest.Await(s.t, "no pass under way", func() bool {
		return !slices.ContainsFunc(s.list, func(j *Job) bool { return len(s.stateOf(store, j).Active) > 0 })
	})
	s.stopAll()
}

// check holds the history of every job, and what the upstream was asked for, to what
// is promised.
func (s *swarm) check() {
	s.t.Helper()
	store := s.patient()
	defer func() { _ = store.Close() }()
	const every = int64(swarmEvery / time.Second)
	outcomes, ticks := map[string]int{}, 0
	for _, j := range s.list {
		records, err := History(s.t.Context(), store, j.Name, time.Time{}, time.Time{}, maxHistory)
		must.Do(s.t, err)
		seen := map[int64]int{}
		for _, r := range records {
			last := r.Tick
			if r.Until != nil {
				last = *r.Until
			}
			for tick := r.Tick.Unix(); tick <= last.Unix(); tick += every {
				seen[tick]++
				outcomes[strings.TrimSpace(string(r.Outcome)+" "+r.Reason)]++
			}
		}
		for _, w := range s.stateOf(store, j).Waiting {
			seen[time.UnixMicro(w.Tick).Unix()]++
			outcomes["waits"]++
		}
		if len(seen) == 0 {
			s.t.Errorf("job %s has no records", j.Name)
			continue
		}
		all := slices.Sorted(maps.Keys(seen))
		for tick := all[0]; tick <= all[len(all)-1]; tick += every {
			ticks++
			check.Equal(s.t, seen[tick], 1, "job", j.Name, "the tick of", time.Unix(tick, 0).UTC(), "records")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, by := range s.asked {
		if len(by) > 1 {
			s.t.Errorf("%s was run %d times, by daemons %s", key, len(by), by)
		}
	}
	s.t.Logf("%d ticks, %d asked for; %d daemons killed, %d of them amid a run, %d stopped: %v", ticks, len(s.asked), s.killed, s.amid, s.stopped, outcomes)
	if ticks < swarmTicks || outcomes["succeeded"] < swarmSucceeded || outcomes["lost crashed"] == 0 {
		s.t.Errorf("%d ticks: %v; want %d, %d of them succeeded, some lost", ticks, outcomes, swarmTicks, swarmSucceeded)
	}
}

func (s *swarm) stateOf(in State, j *Job) *state {
	s.t.Helper()
	found, err := in.Job(context.Background(), j.Name)
	must.Do(s.t, err)
	kept, err := readDocument[state](j.Name, found)
	must.Do(s.t, err)
	return kept
}

// daemonProcess is one of the swarm: a configuration, and its number.
func daemonProcess(args []string) error {
	signals, drain := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		close(drain)
	}()
	cfg, err := config.Parse(args[0])
	if err != nil {
		return err
	}
	list := Load(cfg)
	for _, j := range list {
		j.Fetch.Output = filepath.Join(filepath.Dir(cfg.File), args[1], "{job}", "{tick}.ndjson")
	}
	ctx := context.Background()
	store, err := open.Store(ctx, cfg.Store.URL, cfg.Store)
	for errors.Is(err, budget.ErrUnavailable) { // a daemon that is stopped may hold it
		store, err = open.Store(ctx, cfg.Store.URL, cfg.Store)
	}
	if err != nil {
		return err
	}
	spec, err := cfg.Spec("shop/main")
	if err != nil {
		return err
	}
	spec.Timeout = cfg.Store.Timeout
	b, err := budget.New(store, spec)
	if err != nil {
		return err
	}
	r, err := New(list, Options{
		State: store, Budgets: map[string]*budget.Budget{spec.Name: b}, Heartbeat: swarmBeat, Poll: swarmBeat,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Transport: named{args[1], oneRequestTransport()},
	})
	if err != nil {
		return err
	}
	return errors.Join(r.Run(ctx, drain, false), store.Close())
}

// named tells the upstream who asks.
type named struct {
	name string
	http.RoundTripper
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Daemon", n.name)
	return n.RoundTripper.RoundTrip(r)
}
