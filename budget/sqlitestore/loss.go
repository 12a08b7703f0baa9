package sqlitestore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// loss is the last loss that was noticed on a ledger.
type loss struct {
	notice   int64 // when it was noticed; 0: never
	reported []string
}

// String is the file's form: the notice and the hosts, separated by blanks.
func (l loss) String() string {
	if l.notice == 0 {
		return ""
	}
	return strings.Join(append([]string{strconv.FormatInt(l.notice, 10)}, l.reported...), " ")
}

func parseLoss(text string) (l loss, err error) {
	if f := strings.Fields(text); len(f) > 0 {
		l.reported = f[1:]
		l.notice, err = strconv.ParseInt(f[0], 10, 64)
	}
	return l, err
}

// until is the instant up to which the loss holds charges back if so many hosts share the
// store; 0 if it holds nothing back.
func (l loss) until(hosts int64) int64 {
	if l.notice == 0 || hosts <= 1 || int64(len(l.reported)) >= hosts {
		return 0
	}
	return l.notice + driver.RecoveryWait
}

// refuse attributes a refusal to the loss, unless something else refuses for longer.
func (l loss) refuse(batch driver.Batch, now int64, refusal *driver.Decision) (observed string) {
	until := l.until(batch.Hosts)
	refused := refusal.Result == driver.Refused
	switch {
	case until <= now || batch.WithinPart:
	case batch.Observe:
		return driver.ObservedLock
	case !refused || until > refusal.RetryAt || until == refusal.RetryAt && !refusal.Locked:
		*refusal = driver.Decision{Result: driver.Refused, Limit: -1, RetryAt: until, Recovering: true}
	}
	return ""
}

// report notes that a caller reports a loss. The first report on a ledger begins a
// recovery. So does a report that finds the ledger rolled back, which gets a new id.
func (l *ledger) report(r driver.Recovery) {
	rolledBack := slices.Contains(r.Gone, l.id)
	if rolledBack {
		l.id = rand.Text()
	}
	if rolledBack || l.loss.notice == 0 {
		l.loss = loss{notice: l.last}
	}
	l.changes++
	if r.Host != "" && len(l.loss.reported) < driver.MaxReports && !slices.Contains(l.loss.reported, r.Host) {
		l.loss.reported = append(slices.Clone(l.loss.reported), r.Host)
	}
}

// noted is a host and when it was last noted as at work.
type noted struct {
	host string
	at   int64
}

// hosts are the hosts that decide on the budget, in the order in which they were noted.
type hosts []noted

// String is the file's form: host and instant alternating, separated by blanks.
func (h hosts) String() string {
	list := make([]string, len(h))
	for i, one := range h {
		list[i] = one.host + " " + strconv.FormatInt(one.at, 10)
	}
	return strings.Join(list, " ")
}

func parseHosts(text string) (h hosts, err error) {
	f := strings.Fields(text)
	if len(f)%2 != 0 {
		return nil, errors.New("the hosts at work cannot be read")
	}
	for pair := range slices.Chunk(f, 2) {
		at, err := strconv.ParseInt(pair[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the hosts at work cannot be read: %w", err)
		}
		h = append(h, noted{pair[0], at})
	}
	return h, nil
}

// note notes that a host decides at now. It drops hosts not seen for HostNoted, and the
// oldest if there are too many.
func (l *ledger) note(host string, now int64) {
	at := slices.IndexFunc(l.hosts, func(n noted) bool { return n.host == host })
	if host == "" || at >= 0 && now-l.hosts[at].at < driver.HostRenewed {
		return
	}
	others := slices.DeleteFunc(slices.Clone(l.hosts), func(n noted) bool { return n.host == host || n.at <= now-driver.HostNoted })
	l.hosts = append(others, noted{host, now})
	l.hosts = l.hosts[max(0, len(l.hosts)-driver.MaxHosts):]
}

// atWork is the number of hosts noted within HostNoted.
func (h hosts) atWork(now int64) (n int) {
	for _, one := range h {
		if one.at > now-driver.HostNoted {
			n++
		}
	}
	return n
}

// mark is the ledger's mark at an instant, for callers.
func (l *ledger) mark(now int64) driver.Mark {
	if l.b == 0 {
		return driver.Mark{Seen: now}
	}
	// What was used since postpone noted it last, or a lock that was ended, adds nothing for sure.
	m := driver.Mark{Ledger: l.id, Changes: l.changes, ID: l.newestID, Seen: now, Kept: l.idle() - driver.WindowUseNoted}
	if m.ID != "" {
		m.At = l.newest
	}
	return m
}

// lost reports whether the ledger has lost something that the caller's mark shows.
func (l *ledger) lost(mark driver.Mark, limits []limit.Limit, now int64) (bool, error) {
	lower := l.lower(limits, now)
	other := mark.Ledger != l.id || mark.Changes > l.changes
	born := l.born
	if l.b == 0 {
		born = now
	}
	if mark.Ledger != "" && other && mark.Seen > l.resetAt && !mark.Dropped(born, lower) {
		return true, nil
	}
	if mark.ID == "" || mark.ID == l.witness || mark.At <= max(l.merged, lower) {
		return false, nil // the charge no longer counts in these limits, though it may in others
	}
	ids, err := l.missing([]driver.Mark{mark}, limits, now)
	if err == nil && len(ids) == 0 {
		l.witness = mark.ID
	}
	return len(ids) > 0, err
}

// lower is the instant up to which missing charges do not matter to these limits.
func (l *ledger) lower(limits []limit.Limit, now int64) int64 {
	lower := l.horizon(now)
	for _, lim := range limits {
		if lim.Window.Kind != limit.Bucket {
			lower = min(lower, lim.Window.Cut(now))
		}
	}
	return max(lower, l.gone)
}

// missing returns the ids of the marks' charges that the ledger lacks.
func (l *ledger) missing(marks []driver.Mark, limits []limit.Limit, now int64) (ids []string, err error) {
	lower := max(l.merged, l.lower(limits, now))
	for _, mark := range marks {
		if mark.ID == "" || mark.At <= lower {
			continue
		}
		e, err := l.entryAt(mark.ID)
		if err != nil {
			return nil, err
		}
		if e == nil || e.score <= l.gone { // absent, or forgotten and not removed yet
			ids = append(ids, mark.ID)
		}
	}
	return ids, nil
}
