package budget

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hostLine is what the processes of a host tell each other of the calls that wait for one
// budget: a file for the first of each line, in one directory. Its name is
// BUDGET.CAME.PROCESS.NUMBER.LIMIT: when the waiter came, and what it waits for. Its process
// keeps it locked, so that what a killed one leaves is no waiter.
//
// Processes without a directory, and those of several hosts, know nothing of each other.
type hostLine struct {
	dir    string
	budget string
	own    string
}

// The bounds of when a waiter looks again whether those ahead of it in other processes are
// gone: lookEach for each of them, since they are served one after the other, and the less often
// the longer the last of them is overdue.
const (
	lookEach  = 2 * time.Millisecond
	longLook  = time.Second
	unwritten = time.Minute     // after which an empty file is one that its process never wrote
	stoppedBy = 5 * time.Second // after which a waiter that is due, and does not look again, holds nobody up
)

// note is the content of a waiter's file.
type note struct {
	rank
	At      time.Time `json:"at"` // when it was written
	Limit   string    `json:"limit"`
	Asleep  string    `json:"asleep"` // as sleep.limit
	Left    int64     `json:"left"`
	Fits    time.Time `json:"fits"` // on the store's clock
	Until   time.Time `json:"until"`
	Soonest time.Time `json:"soonest"`
	Locked  bool      `json:"locked,omitempty"`
	Cause   string    `json:"cause,omitempty"` // of the lock
}

// newHostLine is the line in a directory, nil for none.
func newHostLine(dir, budget string) *hostLine {
	if dir == "" {
		return nil
	}
	return &hostLine{dir: dir, budget: digest(budget), own: rand.Text()[:8]}
}

func digest(text string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return strconv.FormatUint(h.Sum64(), 36)
}

// ticket is a waiter's file, nil for none.
type ticket struct {
	file *os.File
	path string
}

// show lets the other processes see what p waits for. If the file cannot be written, they do not:
// then the waiters of the host meet, as those of several hosts do.
func (h *hostLine) show(p *place, s *sleep) {
	if h == nil {
		return
	}
	r := s.refused
	locked := errors.Is(r, ErrLocked)
	n := note{p.line.rank, time.Now(), r.Limit, s.limit, r.Remaining, r.RetryAt, s.until, s.soonest, locked, r.Why}
	text, err := json.Marshal(n)
	name := fmt.Sprintf("%s.%020d.%s.%d.%s", h.budget, p.came.UnixNano(), h.own, p.number, digest(s.limit))
	path := filepath.Join(h.dir, name)
	if p.ticket == nil && err == nil {
		p.ticket, err = newTicket(path)
	}
	if err != nil {
		return
	}
	if path != p.ticket.path && os.Rename(p.ticket.path, path) == nil {
		p.ticket.path = path
	}
	if p.ticket.file.Truncate(0) == nil {
		_, _ = p.ticket.file.WriteAt(text, 0) // half a file is read as a waiter that asks
	}
}

func newTicket(path string) (*ticket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); { // only those that look at it lock it too, for a moment
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(path))
	}
	return &ticket{file, path}, nil
}

// drop removes the file.
func (t *ticket) drop() {
	if t != nil {
		_ = errors.Join(os.Remove(t.path), t.file.Close()) // an unlocked file is no waiter
	}
}

// ahead is what the last of the waiters in other processes waits for that came before p and
// that it may not overtake, and how many there are; the limits are what p's call is checked
// against. next is when the first came that may not be overtaken by those behind p.
func (h *hostLine) ahead(p *place, limits []string) (last *sleep, n int, next int64) {
	for range 3 { // a file that is gone may have another name now
		before, next := h.list(p, limits)
		gone := false
		for n := len(before); n > 0; n-- {
			other := readTicket(filepath.Join(h.dir, before[n-1]))
			if other != nil && !other.yields(p.line.rank) && !other.stopped() {
				return other.sleep(), n, next
			}
			gone = gone || other == nil
		}
		if !gone {
			return nil, 0, next
		}
	}
	return nil, 0, 0
}

// list lists the files of those that came before p, and says when the next one after it came.
func (h *hostLine) list(p *place, limits []string) (before []string, next int64) {
	shared := []string{digest("")}
	for _, name := range limits {
		shared = append(shared, digest(name))
	}
	next = math.MaxInt64
	mine := p.came.UnixNano()
	entries, err := os.ReadDir(h.dir) // sorted by name, so by when they came
	if err != nil {
		return nil, next
	}
	at, _ := slices.BinarySearchFunc(entries, h.budget+".", func(e fs.DirEntry, name string) int { return cmp.Compare(e.Name(), name) })
	for _, e := range entries[at:] {
		parts := strings.Split(e.Name(), ".")
		if len(parts) != 5 || parts[0] != h.budget {
			break
		}
		came, err := strconv.ParseInt(parts[1], 10, 64)
		switch {
		case err != nil || parts[2] == h.own || !slices.Contains(shared, parts[4]):
		case came < mine || came == mine && parts[2] < h.own:
			before = append(before, e.Name())
		default:
			next = min(next, came)
		}
	}
	return before, next
}

// stopped reports whether the waiter neither went nor looked again when it should have: its process
// is stopped, or the store takes very long to answer it.
func (n *note) stopped() bool {
	return time.Since(n.Soonest) > stoppedBy && time.Since(n.At) > stoppedBy
}

// sleep is what the waiter sleeps for.
func (n *note) sleep() *sleep {
	refused := &RefusedError{Err: ErrExhausted, Limit: n.Limit, Remaining: n.Left, RetryAt: n.Fits, Why: n.Cause}
	if n.Locked {
		refused.Err = ErrLocked
	}
	return &sleep{refused, n.Asleep, n.Until, n.Soonest}
}

// readTicket reads a waiter's file; nil if the waiter is gone.
func readTicket(path string) *note {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer file.Close() //nolint:errcheck // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil { // its process has ended, or has just made it
		if info.Size() > 0 || time.Since(info.ModTime()) > unwritten {
			_ = os.Remove(path) // somebody else may have
		}
		return nil
	}
	n := &note{}
	if json.NewDecoder(file).Decode(n) != nil { // half a file
		at := info.ModTime()
		if now := time.Now(); at.After(now) {
			at = now
		}
		n = &note{At: at, Until: at, Soonest: at}
	}
	return n
}
