package jobs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// fakeMeter meters a run that ends as a test says.
type fakeMeter struct {
	run   MeteredRun
	spent chan struct{}

	mu     sync.Mutex // guards all below
	calls  MeteredCalls
	closed int
}

func (m *fakeMeter) Env() []string              { return append(m.run.Env, "METERED=1") }
func (m *fakeMeter) Exhausted() <-chan struct{} { return m.spent }

func (m *fakeMeter) Calls() MeteredCalls {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

func (m *fakeMeter) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed++
	return errors.New("a fault at the end")
}

// meteredWorld has a job whose command runs behind fake meters.
func meteredWorld(t *testing.T, keys, script string, calls MeteredCalls) (*world, *[]*fakeMeter) {
	t.Helper()
	w := commandWorld(t, keys+"\nregions = [\"US\"]", script)
	w.list[0].Meter = true // its upstream names no host
	var all []*fakeMeter
	w.options.Meter = func(_ context.Context, run MeteredRun) (Meter, error) {
		m := &fakeMeter{run: run, spent: make(chan struct{}), calls: calls}
		if calls.Refused != nil && !strings.Contains(script, "exit") { // else it ends before
			close(m.spent)
		}
		all = append(all, m)
		return m, nil
	}
	return w, &all
}

// A refusal for good ends the command and makes its run exhausted, however it ends; a store that did
// not decide is why a command failed, and nothing is said of one that was not.
func TestMeteredRunEnds(t *testing.T) {
	refused := &budget.RefusedError{Err: budget.ErrExhausted, Budget: "youtube/key1", Limit: "daily", RetryAt: time.Now().Add(time.Hour)}
	for name, c := range map[string]struct {
		keys, script string
		calls        MeteredCalls
		want         Run
	}{
		"well":              {"", "exit 0", MeteredCalls{Seen: true}, Run{Outcome: Succeeded}},
		"refused":           {"retries = 2", "sleep 1000", MeteredCalls{Seen: true, Refused: refused}, Run{Outcome: Exhausted, Reason: ReasonLimit}},
		"refused at last":   {"retries = 2\nretry_wait = \"100ms\"", "exit 3", MeteredCalls{Seen: true, Refused: refused}, Run{Outcome: Exhausted, Reason: ReasonLimit}},
		"store away, again": {"retries = 1\nretry_wait = \"100ms\"", "exit 4", MeteredCalls{Seen: true, StoreAway: true}, Run{Outcome: Failed, Reason: ReasonStore, Attempts: 2}},
		"stubborn":          {`grace = "100ms"`, "trap '' TERM; while :; do sleep 1; done", MeteredCalls{Seen: true, Refused: refused}, Run{Outcome: Exhausted, Reason: ReasonLimit}},
		"store away":        {"", "exit 4", MeteredCalls{Seen: true, StoreAway: true}, Run{Outcome: Failed, Reason: ReasonStore, Error: "the command ended with exit code 4; the store did not decide some of its calls"}},
		"store was away":    {"", "exit 0", MeteredCalls{Seen: true, StoreAway: true}, Run{Outcome: Succeeded}},
		"nothing seen":      {"", "exit 0", MeteredCalls{}, Run{Outcome: Succeeded, Warning: "the meter saw no call to youtube/key1"}},
		"not configured":    {"", "exit 0", MeteredCalls{Lacking: []string{"one", "two"}}, Run{Outcome: Succeeded, Warning: "calls were refused: one; two"}},
		"its own exit":      {"", "exit 75", MeteredCalls{Seen: true, StoreAway: true}, Run{Outcome: Exhausted, Reason: "exit 75"}},
		"too late":          {`timeout = "1s"`, "sleep 1000", MeteredCalls{Seen: true}, Run{Outcome: TimedOut, Reason: ReasonTimeout}},
		"tried again":       {"retries = 1\nretry_wait = \"100ms\"", "test -f again || { touch again; exit 3; }", MeteredCalls{Seen: true}, Run{Outcome: Succeeded}},
		"its environment":   {"", "test $METERED = 1", MeteredCalls{Seen: true}, Run{Outcome: Succeeded}},
	} {
		w, all := meteredWorld(t, c.keys, c.script, c.calls)
		got := w.onlyRun()
		check.Equal(t, got.Outcome, c.want.Outcome, name, got)
		check.Equal(t, got.Reason, c.want.Reason, name)
		check.Equal(t, got.Warning, c.want.Warning, name)
		if c.want.Error != "" {
			check.Equal(t, got.Error, c.want.Error, name)
		}
		check.Equal(t, got.Attempts == max(1, c.want.Attempts) || name == "tried again", true, name, got.Attempts, "attempts")
		must.Equal(t, len(*all), 1, name, "meters")
		check.Equal(t, (*all)[0].closed, 1, name, "it is closed")
		check.Contains(t, w.log.String(), "a fault at the end")
	}
}

// The meter knows the run by which it charges, and what it says is in the run's log without secrets.
func TestMeteredRunIsTold(t *testing.T) {
	t.Setenv("QUOTACTL_REGION", "of the daemon")
	w, all := meteredWorld(t, "", "exit 0", MeteredCalls{Lines: []string{"3 calls with a-s3cret-of-youtube"}})
	w.options.Env = func(string) (string, bool) { return "a-s3cret-of-youtube", true }
	got := w.onlyRun()
	m := (*all)[0].run
	check.Equal(t, m.Labels, budget.Labels{Job: "script", Region: "US", Run: m.Labels.Run}, "labels")
	check.Equal(t, strings.HasPrefix(m.Labels.Run, "script/") && m.Fence > 0, true, m.Labels.Run, m.Fence)
	check.Equal(t, slices.Contains(m.Env, "QUOTACTL_REGION=US") && !slices.Contains(m.Env, "QUOTACTL_REGION=of the daemon"), true, "the run's variables come once")
	check.Equal(t, len(m.StandIns), 0, "stand-ins")
	check.Contains(t, strings.Join(got.Log, "\n"), "meter: 3 calls with [secret]")
}

// A command does not run where nothing can meter it, or where its secret cannot be read.
func TestMeterDoesNotStart(t *testing.T) {
	for says, change := range map[string]func(*world){
		"this program does not meter commands": func(w *world) { w.options.Meter = nil },
		"no room": func(w *world) {
			w.options.Meter = func(context.Context, MeteredRun) (Meter, error) { return nil, errors.New("no room") }
		},
		"the environment has no YOUTUBE_API_KEY, the secret of youtube/key1": func(w *world) {
			w.list[0].KeepSecret = true
			w.options.Env = func(string) (string, bool) { return "", false }
		},
	} {
		w, _ := meteredWorld(t, "", "touch ran", MeteredCalls{})
		change(w)
		got := w.onlyRun()
		check.Equal(t, got.Outcome, Failed, says)
		check.Equal(t, got.Reason, ReasonCommand, says)
		check.Contains(t, got.Error, "meter the command: ")
		check.Contains(t, got.Error, says)
		_, err := os.Stat(filepath.Join(w.dir, "ran"))
		check.Equal(t, os.IsNotExist(err), true, says, "and it did not run")
	}
}
