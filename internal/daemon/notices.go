package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"

	"github.com/quotactl/quotactl/jobs"
)

// startHope is how long a start may go on without a word: each try of a store that
// is out of reach asks for as much again.
const startHope = 3 * time.Minute

// The status is looked at once a minute, and after each tick, but not all the time.
const (
	statusEvery = time.Minute
	statusLeast = 10 * time.Second
)

// notices tells the service manager that started the daemon how it is, by the
// protocol of systemd. Where there is none, nothing is told.
type notices struct {
	send func(state string) error
	log  *slog.Logger
	now  func() time.Time
	// watchdog is how long the manager waits for a sign of life before it starts
	// the daemon anew; 0: it does not.
	watchdog time.Duration

	mu      sync.Mutex // guards all below
	told    string     // the status, as it was last told
	trouble string     // what stands in the status after a failed reload
	failed  bool       // a notice was not sent, which is said once
	stopped bool       // nothing is told any more
}

// newNotices reads from the environment whom to tell. One pass tells nobody.
func newNotices(log *slog.Logger, now func() time.Time, tells bool) *notices {
	if !tells {
		return &notices{log: log, now: now, send: func(string) error { return nil }}
	}
	n := &notices{log: log, now: now, send: func(state string) error {
		_, err := sdnotify.SdNotify(false, state)
		return err
	}}
	var err error
	// The commands of jobs have no watchdog to answer.
	if n.watchdog, err = sdnotify.SdWatchdogEnabled(true); err != nil {
		log.Warn("the watchdog setting in the environment cannot be read; the service manager gets no watchdog notices", "error", err)
	}
	return n
}

// waiting: the store is out of reach, and the start takes longer.
func (n *notices) waiting() {
	n.tell(extend(startHope), "STATUS=waiting for the store, which is out of reach")
}

// reloading: a configuration is being read.
func (n *notices) reloading() {
	n.tell(sdnotify.SdNotifyReloading, strings.TrimSpace(sdnotify.SdNotifyMonotonicUsec()))
}

// reloaded: it was, or was not, and these jobs are followed.
func (n *notices) reloaded(list []*jobs.Job, err error) {
	n.mu.Lock()
	n.trouble = ""
	if err != nil {
		n.trouble = "; the changed configuration is not in force: see the log"
	}
	n.mu.Unlock()
	status, _ := n.status(list)
	n.tell(sdnotify.SdNotifyReady, status)
}

// stopping: the first signal has come, and the rest takes so long at most. Nothing is
// told afterwards.
func (n *notices) stopping(within time.Duration) {
	n.tell(sdnotify.SdNotifyStopping, extend(within), "STATUS=stopping: finishing pages under way")
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped = true
}

// watch tells that the daemon is ready once its scheduler looks at its clock, then
// which tick is next and, as long as the scheduler goes on looking, that it lives;
// until drain is closed or ctx ends.
func (n *notices) watch(ctx context.Context, drain <-chan struct{}, p *pulse, list func() []*jobs.Job) {
	select {
	case <-p.first:
	case <-drain:
		return
	case <-ctx.Done():
		return
	}
	states := []string{sdnotify.SdNotifyReady}
	for {
		status, next := n.status(list())
		if n.news(status) {
			states = append(states, status)
		}
		n.tell(states...)
		states = nil
		wait := statusEvery
		if !next.IsZero() {
			wait = min(wait, max(statusLeast, next.Sub(n.now())))
		}
		if n.watchdog > 0 {
			wait = min(wait, n.watchdog/2)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			if n.watchdog > 0 && p.silent() == 0 {
				states = append(states, sdnotify.SdNotifyWatchdog)
			}
		case <-drain:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// status is what people read in systemctl status, and until when it holds; the zero
// time where no tick comes.
func (n *notices) status(list []*jobs.Job) (text string, until time.Time) {
	now, name := n.now(), ""
	for _, j := range list {
		if next := j.Next(now); !next.IsZero() && (until.IsZero() || next.Before(until)) {
			until, name = next, j.Name
		}
	}
	switch len(list) {
	case 0:
		text = "STATUS=no jobs; deciding charges"
	case 1:
		text = "STATUS=1 job"
	default:
		text = fmt.Sprintf("STATUS=%d jobs", len(list))
	}
	if name != "" {
		text += fmt.Sprintf("; next tick %s, of %s", until.UTC().Format(time.RFC3339), name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return text + n.trouble, until
}

// news reports whether a status is another than was told last.
func (n *notices) news(status string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.told != status
}

// tell sends states as one notice; none when there are none.
func (n *notices) tell(states ...string) {
	if len(states) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return
	}
	for _, state := range states {
		if strings.HasPrefix(state, "STATUS=") {
			n.told = state
		}
	}
	if err := n.send(strings.Join(states, "\n")); err != nil && !n.failed {
		n.failed = true
		n.log.Warn("the service manager could not be notified; further failures are not logged", "error", err)
	}
}

// extend asks for more time before the manager takes a start or a stop for hung.
func extend(by time.Duration) string {
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(by.Microseconds(), 10)
}
