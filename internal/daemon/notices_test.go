package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
	"github.com/quotactl/quotactl/jobs/schedule"
)

// The daemon's commands find no watchdog variables, so they do not answer it.
func TestTheWatchdogIsTheDaemonsAlone(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "20000000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	check.Equal(t, newNotices(slog.New(slog.DiscardHandler), time.Now, true).watchdog, 20*time.Second, "the watchdog waits")
	for _, name := range []string{"WATCHDOG_USEC", "WATCHDOG_PID"} {
		if value, ok := os.LookupEnv(name); ok {
			t.Errorf("%s is still %q", name, value)
		}
	}
}

// Watchdog notices are sent at half of the manager's time, but only while the scheduler
// checks its clock; the status follows the ticks.
func TestSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		schedule := must.Get(schedule.Parse("*/2 * * * *", "UTC"))(t)
		list := []*jobs.Job{{Name: "pull", Schedule: schedule}}
		began, got := time.Now(), []string{}
		n := &notices{
			log: slog.New(slog.DiscardHandler), now: time.Now, watchdog: 20 * time.Second,
			send: func(state string) error {
				got = append(got, time.Since(began).String()+" "+state)
				return nil
			},
		}
		p := &pulse{first: make(chan struct{})}
		drain := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			n.watch(t.Context(), drain, p, func() []*jobs.Job { return list })
		}()
		time.Sleep(5 * time.Second) // it is not ready by itself
		for range 20 {
			p.beat()
			time.Sleep(2 * time.Second)
		}
		time.Sleep(90 * time.Second) // the last beat was at 43 s
		n.stopping(time.Minute)
		close(drain)
		<-ended
		n.tell("WATCHDOG=1")
		want := []string{
			"5s READY=1\nSTATUS=1 job; next tick 2000-01-01T00:02:00Z, of pull",
			"15s WATCHDOG=1", "25s WATCHDOG=1", "35s WATCHDOG=1", "45s WATCHDOG=1", "55s WATCHDOG=1", "1m5s WATCHDOG=1",
			"2m5s STATUS=1 job; next tick 2000-01-01T00:04:00Z, of pull",
			"2m15s STOPPING=1\nEXTEND_TIMEOUT_USEC=60000000\nSTATUS=stopping: finishing pages under way",
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("its notices are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// The status shows jobs, the next tick and a failed reload.
func TestStatusForTheManager(t *testing.T) {
	now := time.Date(2026, 3, 1, 11, 59, 0, 0, time.UTC)
	job := func(name, spec string) *jobs.Job {
		schedule := must.Get(schedule.Parse(spec, "UTC"))(t)
		return &jobs.Job{Name: name, Schedule: schedule}
	}
	var log bytes.Buffer
	n := &notices{log: slog.New(slog.NewTextHandler(&log, nil)), now: func() time.Time { return now }, send: func(string) error { return nil }}
	for want, list := range map[string][]*jobs.Job{
		"STATUS=no jobs; deciding charges":                            nil,
		"STATUS=1 job; next tick 2026-03-01T12:00:00Z, of noon":       {job("noon", "0 12 * * *")},
		"STATUS=2 jobs; next tick 2026-03-01T12:00:00Z, of noon":      {job("later", "0 13 * * *"), job("noon", "0 12 * * *")},
		"STATUS=2 jobs; next tick 2026-03-01T12:00:00Z, of the first": {job("the first", "0 12 * * *"), job("the second", "0 12 * * *")},
	} {
		if got, _ := n.status(list); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	n.reloaded(nil, errors.New("bad"))
	if n.told != "STATUS=no jobs; deciding charges; the changed configuration is not in force: see the log" {
		t.Errorf("after a failed reload it is %q", n.told)
	}
	n.reloaded(nil, nil)
	check.Equal(t, n.told, "STATUS=no jobs; deciding charges", "after a good one it")
}
