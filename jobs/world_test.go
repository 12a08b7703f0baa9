package jobs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
	"github.com/quotactl/quotactl/jobs/schedule"
)

// secretKey is looked for wherever it must not be.
const secretKey = "AIza-s3cret&key"

// setup is what a test's world is made of; the zero value of a field is the
// usual.
type setup struct {
	limit int64  // units in any 24 hours; 10,000
	cost  string // of videos.list; 1
	job   string // more lines of [job.trending]; a regions line replaces the usual
	fetch string // more lines of [job.trending.fetch]
	more  string // more tables
	quota int64  // the sandbox's
	// upstream answers instead of the sandbox; recorded without a handler hands on to it.
	upstream http.Handler
}

// world is a configuration with its store, its upstream and its log.
type world struct {
	t       *testing.T
	dir     string
	store   *memstore.Store
	sandbox *sandbox.Server
	log     *logBuffer
	list    []*Job
	options Options
	tick    int64 // µs, of the newest record that a test made
}

var allRegions = []string{"US", "GB", "DE", "FR", "IN", "BR", "AU", "CA"}

func newWorld(t *testing.T, s setup) *world {
	t.Helper()
	if s.limit == 0 {
		s.limit = 10_000
	}
	if s.cost == "" {
		s.cost = "1"
	}
	if !strings.Contains(s.job, "regions") {
		s.job += "\nregions = [\"" + strings.Join(allRegions, "\", \"") + "\"]"
	}
	if !strings.Contains(s.job, "schedule") {
		s.job += "\nschedule = \"0 */3 * * *\""
	}
	text := fmt.Sprintf(`
[upstream.youtube.costs]
"videos.list" = %s
[upstream.youtube.limit.daily]
limit = %d
window = "24h"
[upstream.youtube.credential.key1]
secret_env = "YOUTUBE_API_KEY"
[job.trending]
budget = "youtube/key1"
%s
[job.trending.fetch]
operation = "videos.list"
url = "https://upstream.test/youtube/v3/videos?part=snippet,statistics&chart=mostPopular&maxResults=50&regionCode={region}"
secret = { query = "key" }
next_page = { param = "pageToken", from = "nextPageToken" }
output = "data/{job}/{region}/{tick}.ndjson"
%s
%s
`, s.cost, s.limit, s.job, s.fetch, s.more)
	w := &world{t: t, dir: t.TempDir(), log: &logBuffer{}}
	path := filepath.Join(w.dir, "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	cfg := must.Get(config.Parse(path))(t)
	w.list = Load(cfg)
	must.Do(t, cfg.Err())
	w.store = memstore.New(func() int64 { return time.Now().UnixMicro() })
	budgets := map[string]*budget.Budget{}
	for _, name := range cfg.Budgets() {
		spec := must.Get(cfg.Spec(name))(t)
		budgets[name] = must.Get(budget.New(w.store, spec))(t)
	}
	w.sandbox = must.Get(sandbox.New(sandbox.Config{Quota: s.quota}))(t)
	if s.upstream == nil {
		s.upstream = w.sandbox
	}
	if r, is := s.upstream.(*recorded); is && r.Handler == nil {
		r.Handler = w.sandbox
	}
	w.options = Options{
		State: w.store, Budgets: budgets,
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		// Polls of each two seconds are most of what a fake day costs. A test that waits for
		// one sets DefaultPoll.
		Poll:      30 * time.Second,
		Transport: direct{s.upstream},
		Env: func(name string) (string, bool) {
			return " " + secretKey + "\n", name == "YOUTUBE_API_KEY" // blanks are no part of it
		},
	}
	return w
}

func (w *world) runner() *Runner {
	w.t.Helper()
	r, err := New(w.list, w.options)
	must.Do(w.t, err)
	return r
}

// once runs one pass of the only job.
func (w *world) once() Pass {
	w.t.Helper()
	passes := w.runner().Once(w.t.Context(), nil)
	must.Equal(w.t, len(passes), 1, "passes")
	return passes[0]
}

// succeeds runs one pass of the only job, which is to succeed.
func (w *world) succeeds() {
	w.t.Helper()
	if p := w.once(); p.Outcome != Succeeded {
		w.t.Fatalf("pass %s (%s): %v\n%s", p.Outcome, p.Reason, outcomes(p), w.log)
	}
}

// nextIs holds the region that the next pass begins with to what is wanted.
func (w *world) nextIs(region string) {
	w.t.Helper()
	check.Equal(w.t, w.state().begins(w.list[0]), region, "the next pass begins with")
}

// drained runs one pass of the only job, and asks it to stop after a while.
func (w *world) drained(after time.Duration) Pass {
	w.t.Helper()
	drain := make(chan struct{})
	time.AfterFunc(after, func() { close(drain) })
	return w.runner().Once(w.t.Context(), drain)[0]
}

// follow runs a daemon for a while.
func (w *world) follow(startNow bool, d time.Duration) {
	w.t.Helper()
	stop := w.daemon(startNow)
	after(d)
	stop()
}

// busy takes the one slot of the budget until the returned function gives it up.
func (w *world) busy() (free func()) {
	w.t.Helper()
	docs := w.runner().docs
	if taken, err := docs.takeSlot(w.t.Context(), runSlots("youtube/key1"), "busy", 1); err != nil || !taken {
		w.t.Fatal(taken, err)
	}
	return docs.keepSlot(w.t.Context(), w.options.Log, runSlots("youtube/key1"), "busy")
}

// spendOn has the budget spend on another store.
func (w *world) spendOn(store driver.Store) {
	w.t.Helper()
	b, err := budget.New(store, w.options.Budgets["youtube/key1"].Spec())
	must.Do(w.t, err)
	w.options.Budgets["youtube/key1"] = b
}

// files are the paths below data, without the folder.
func (w *world) files() []string {
	w.t.Helper()
	var list []string
	root := filepath.Join(w.dir, "data")
	if _, err := os.Stat(root); os.IsNotExist(err) {
		return nil
	}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		list = append(list, strings.TrimPrefix(path, root+"/"))
		return nil
	})
	must.Do(w.t, err)
	return list
}

// takesForDead has the passes of the only job declared dead.
func (w *world) takesForDead(r *Runner) {
	w.t.Helper()
	err := r.docs.change(w.t.Context(), w.list[0], func(s *state, _ clocks) (edit, error) {
		s.Active = nil
		return edit{}, nil
	})
	check.NoError(w.t, err)
}

// state is what the store keeps of the only job.
func (w *world) state() *state {
	w.t.Helper()
	found, err := w.options.State.Job(context.Background(), w.list[0].Name)
	must.Do(w.t, err)
	s, err := readDocument[state](w.list[0].Name, found)
	must.Do(w.t, err)
	return s
}

// claimed claims a pass of the only job for a tick, for a holder.
func (w *world) claimed(r *Runner, tick time.Time, holder string) claim {
	w.t.Helper()
	var made claim
	err := r.docs.change(w.t.Context(), w.list[0], func(s *state, at clocks) (edit, error) {
		made = *s.claim(claim{Tick: tick.UnixMicro(), Kind: Scheduled, Budget: w.list[0].Budget}, at, claimant{holder: holder, hold: r.docs.hold()})
		return edit{}, nil
	})
	must.Do(w.t, err)
	return made
}

// scheduled runs a pass of the only job, of a tick of its schedule.
func (w *world) scheduled(tick time.Time) Pass {
	w.t.Helper()
	r := w.runner()
	return r.pass(w.t.Context(), w.t.Context(), w.list[0], w.claimed(r, tick, newHolder()), "", false)
}

// history is what is kept of the only job's ticks, the oldest first: "tick outcome
// reason", the tick as the time since midnight.
func (w *world) history() []string {
	w.t.Helper()
	records, err := History(context.Background(), w.options.State, w.list[0].Name, time.Time{}, time.Time{}, 10_000)
	must.Do(w.t, err)
	var list []string
	for _, r := range slices.Backward(records) {
		text := strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Tick.Sub(midnight), r.Outcome, r.Reason))
		if r.Until != nil {
			text += fmt.Sprintf(", %d until %s", r.Ticks, r.Until.Sub(midnight))
		}
		list = append(list, text)
	}
	return list
}

// used is what the ledger has counted.
func (w *world) used() int64 {
	w.t.Helper()
	status, err := w.options.Budgets["youtube/key1"].Status(context.Background())
	must.Do(w.t, err)
	return status.Limits[0].Used
}

// logged fails unless a line of the log holds all the words.
func (w *world) logged(words ...string) {
	w.t.Helper()
	for line := range strings.Lines(w.log.String()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return
		}
	}
	w.t.Errorf("no line of the log has %q:\n%s", words, w.log)
}

// outcomes is each run's region and outcome: "US succeeded".
func outcomes(p Pass) []string {
	var list []string
	for _, run := range p.Runs {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s", run.Region, run.Outcome, run.Reason)))
	}
	return list
}

// readFile is a file's content.
func readFile(t *testing.T, path string) string {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	return string(text)
}

// parsed is a schedule.
func parsed(t *testing.T, spec, zone string) *schedule.Schedule {
	t.Helper()
	parsed := must.Get(schedule.Parse(spec, zone))(t)
	return parsed
}

// inBubble runs a test by its name, in fake time, beside the others of the same test.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

// after lets fake time pass.
func after(d time.Duration) { <-time.After(d) }

// direct answers requests without a network, so that fake time goes on.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	answered := make(chan bool, 1)
	go func() {
		defer func() { answered <- recover() == nil }()
		d.handler.ServeHTTP(w, r)
	}()
	select {
	case ok := <-answered:
		if !ok {
			return nil, fmt.Errorf("connection reset by %s", r.URL) // an error that tells the URL
		}
		return w.Result(), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// recorded notes the requests on their way to a handler.
type recorded struct {
	http.Handler
	mu       sync.Mutex // guards all below
	requests []request
}

type request struct {
	at     time.Time
	region string
	query  url.Values
	header http.Header
}

func (r *recorded) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, request{time.Now(), q.URL.Query().Get("regionCode"), q.URL.Query(), q.Header})
	r.mu.Unlock()
	r.Handler.ServeHTTP(w, q)
}

// firsts are the regions in the order of their first requests.
func (r *recorded) firsts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for _, q := range r.requests {
		if !slices.Contains(list, q.region) {
			list = append(list, q.region)
		}
	}
	return list
}

func (r *recorded) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests)
}

func (r *recorded) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}

// logBuffer takes a log from many goroutines.
type logBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
