package outage

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// breaker keeps the processes of a host from asking a store that does not
// answer. It is open while its file is there. Time is cut into slots of the
// interval by the boot clock, and who makes the file of a slot may probe in it:
// one a host and interval, whatever becomes of the prober.
type breaker struct {
	dir      string
	ownDir   bool // the directory is this breaker's alone, and goes when it is shut
	interval time.Duration
	boot     func() (string, int64, error)

	mu     sync.Mutex // guards all below
	alone  *outageState
	tried  int64 // the last slot this process asked for
	probed int64 // the last slot it got, where there is no directory
}

// outageState is what the breaker's file says.
type outageState struct {
	Boot  string    `json:"boot"`
	Slot  int64     `json:"slot"`  // in which the store was last found away
	Since time.Time `json:"since"` // for people
	Cause string    `json:"cause"`
}

// allowed is what the breaker lets a call do.
type allowed int

const (
	ask         allowed = iota // ask the store
	keepAway                   // do not
	probeBeside                // do not, but have it probed
)

func (b *breaker) file() string { return filepath.Join(b.dir, "breaker") }

func (b *breaker) slotFile(slot int64) string {
	return filepath.Join(b.dir, "probe."+strconv.FormatInt(slot, 10))
}

// read is the state, and whether the breaker is open.
func (b *breaker) read() (outageState, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state()
}

// state is as read; b.mu is held. A file that cannot be read, or is of an earlier
// boot, keeps nobody away.
func (b *breaker) state() (outageState, bool) {
	if b.alone != nil {
		return *b.alone, true
	}
	if b.dir == "" {
		return outageState{}, false
	}
	var state outageState
	data, err := os.ReadFile(b.file())
	if err != nil || json.Unmarshal(data, &state) != nil {
		return outageState{}, false
	}
	if id, _, err := b.boot(); err != nil || id != state.Boot {
		return outageState{}, false
	}
	return state, true
}

// slot is the slot that it is now.
func (b *breaker) slot() (slot int64, boot string) {
	id, since, err := b.boot()
	if err != nil { // as good as any: each call then asks for a slot of its own
		return time.Now().UnixMicro() / b.interval.Microseconds(), ""
	}
	return since / b.interval.Microseconds(), id
}

// allow tells what a call may do. Where nobody probed in the last interval, the
// call itself is the probe: calls that come so rarely have no one else to wait
// for.
func (b *breaker) allow() allowed {
	b.mu.Lock()
	defer b.mu.Unlock()
	state, open := b.state()
	if !open {
		return ask
	}
	slot, _ := b.slot()
	if slot <= state.Slot || slot == b.tried {
		return keepAway
	}
	b.tried = slot
	last, mine := b.claim(slot)
	switch {
	case !mine:
		return keepAway
	case max(last, state.Slot) < slot-1:
		return ask
	}
	return probeBeside
}

// claim takes a slot: whether it is this process's, and the last one that was
// taken before.
func (b *breaker) claim(slot int64) (last int64, mine bool) {
	if b.alone != nil {
		last, b.probed = b.probed, slot
		return last, true
	}
	f, err := os.OpenFile(b.slotFile(slot), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		// Taken, or the breaker was shut meanwhile; a directory that became
		// unwritable must not keep the store away for ever.
		return 0, !errors.Is(err, fs.ErrExist)
	}
	_ = f.Close() // it is empty
	old, _ := filepath.Glob(filepath.Join(b.dir, "probe.*"))
	for _, path := range old {
		n, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(path), "probe."), 10, 64)
		if err != nil || n >= slot {
			continue
		}
		last = max(last, n)
		_ = os.Remove(path) // another prober may have been quicker
	}
	return last, true
}

// open opens the breaker, or notes that the store is still away; false when it
// was open.
func (b *breaker) open(cause error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	slot, boot := b.slot()
	state, was := b.state()
	if was && state.Slot == slot {
		return false
	}
	if !was {
		state = outageState{Boot: boot, Since: time.Now()}
	}
	state.Slot, state.Cause = slot, cause.Error()
	data, err := json.Marshal(state)
	if err == nil && b.dir != "" {
		err = b.write(data)
	}
	if err != nil || b.dir == "" {
		b.alone = &state // of this process alone
	}
	return !was
}

// shut shuts the breaker; false when it was shut. It costs one look where there
// is nothing to shut.
func (b *breaker) shut() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.alone != nil {
		b.alone = nil
		return true
	}
	if b.dir == "" || os.Remove(b.file()) != nil {
		return false
	}
	b.tidy()
	return true
}

// writeTries is how often the file is written where others take the directory
// away, which they do once for each time that one is shut.
const writeTries = 10

// write writes the file.
func (b *breaker) write(data []byte) (err error) {
	for range writeTries {
		if _, err = makeDir(b.dir); err == nil {
			err = writeFile(b.file(), data, false)
		}
		if !b.ownDir || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// tidy takes away what a shut breaker leaves.
func (b *breaker) tidy() {
	old, _ := filepath.Glob(filepath.Join(b.dir, "probe.*"))
	for _, path := range old {
		_ = os.Remove(path)
	}
	if b.ownDir {
		_ = os.Remove(b.dir) // unless something else lies there: it was opened anew, say
	}
}

// idle reports whether the breaker is not in use, and knows nothing but what lies
// in its directory.
func (b *breaker) idle() bool {
	if !b.mu.TryLock() {
		return false
	}
	defer b.mu.Unlock()
	return b.alone == nil
}

// abandoned reports whether the breaker is shut, or nobody has probed for it in
// abandonedAfter: it is shut then. When another process opens it at that very
// moment, its budget asks the store once more.
func (b *breaker) abandoned() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	state, open := b.state()
	if slot, _ := b.slot(); open && time.Duration(slot-state.Slot)*b.interval < abandonedAfter+b.interval {
		return false
	}
	b.alone = nil
	if b.ownDir {
		_ = os.Remove(b.file()) // of an earlier boot, or none
		b.tidy()
	}
	return true
}
