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

// startHope is the time that the daemon asks the service manager for while the store is
// out of reach. Each attempt to open the store asks again.
const startHope = 3 * time.Minute

// The status is updated every statusEvery and at each tick, but not more often than every
// statusLeast.
const (
	statusEvery = time.Minute
	statusLeast = 10 * time.Second
)

// notices reports the daemon's state to the service manager that started it, by the
// protocol of systemd. Without a service manager it does nothing.
type notices struct {
	send func(state string) error
	log  *slog.Logger
	now  func() time.Time
	// watchdog is how long the manager waits for a watchdog notice before it restarts the
	// daemon; 0: no watchdog.
	watchdog time.Duration

	mu      sync.Mutex // guards all below
	told    string     // the status sent last
	trouble string     // added to the status after a failed reload
	failed  bool       // a notice could not be sent; it is logged once
	stopped bool       // no more notices are sent
}

// newNotices finds the service manager in the environment. With tells false, as for
// --once, nothing is ever sent.
func newNotices(log *slog.Logger, now func() time.Time, tells bool) *notices {
	if !tells {
		return &notices{log: log, now: now, send: func(string) error { return nil }}
	}
	n := &notices{log: log, now: now, send: func(state string) error {
		_, err := sdnotify.SdNotify(false, state)
		return err
	}}
	var err error
	// true removes the variables: the commands of jobs must not answer the watchdog.
	if n.watchdog, err = sdnotify.SdWatchdogEnabled(true); err != nil {
		log.Warn("the watchdog setting in the environment cannot be read; the service manager gets no watchdog notices", "error", err)
	}
	return n
}

// waiting reports that the store is out of reach and the start takes longer.
func (n *notices) waiting() {
	n.tell(extend(startHope), "STATUS=waiting for the store, which is out of reach")
}

// reloading reports that a configuration is being read.
func (n *notices) reloading() {
	n.tell(sdnotify.SdNotifyReloading, strings.TrimSpace(sdnotify.SdNotifyMonotonicUsec()))
}

// reloaded reports the end of a reload. list has the jobs now in force; err says why the
// reload failed.
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

// stopping reports that the daemon is stopping and takes at most within. It is the last
// notice.
func (n *notices) stopping(within time.Duration) {
	n.tell(sdnotify.SdNotifyStopping, extend(within), "STATUS=stopping: finishing pages under way")
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped = true
}

// watch reports that the daemon is ready once its scheduler checks its clock. Then it
// reports the next tick, and answers the watchdog as long as the scheduler keeps checking.
// It returns when drain is closed or ctx ends.
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

// status is the line that systemctl status shows, and until when it is right; the zero
// time if no tick follows.
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

// news reports whether a status differs from the one sent last.
func (n *notices) news(status string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.told != status
}

// tell sends states as one notice, if there are any.
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

// extend asks the manager for more time before it considers a start or a stop hung.
func extend(by time.Duration) string {
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(by.Microseconds(), 10)
}
