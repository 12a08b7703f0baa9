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
	"syscall"
	"time"
)

// breaker keeps the processes of a host from asking a store that does not answer.
// It is open while its file exists. The boot clock is divided into slots of one
// interval. The process that creates a slot's file may probe in that slot, so a
// host probes at most once an interval, even if the prober dies.
type breaker struct {
	dir      string
	ownDir   bool // the directory is this breaker's alone: closing the breaker removes it
	interval time.Duration
	boot     func() (string, int64, error)
	damaged  func(data []byte, why error) // sets the file aside

	mu     sync.Mutex   // guards all below
	alone  *outageState // the state when there is no file to hold it
	tried  int64        // the last slot this process tried to claim
	probed int64        // the last slot it claimed while alone is set
}

// outageState is the content of the breaker's file.
type outageState struct {
	Boot  string    `json:"boot"`
	Slot  int64     `json:"slot"`  // the last slot in which the store failed to answer
	Since time.Time `json:"since"` // by the wall clock, for people
	Cause string    `json:"cause"`
}

// allowed is what the breaker lets a call do.
type allowed int

const (
	ask         allowed = iota // ask the store
	keepAway                   // do not ask
	probeBeside                // do not ask, but start a probe
)

func (b *breaker) file() string { return filepath.Join(b.dir, "breaker") }

func (b *breaker) slotFile(slot int64) string {
	return filepath.Join(b.dir, "probe."+strconv.FormatInt(slot, 10))
}

// read returns the state, and whether the breaker is open.
func (b *breaker) read() (outageState, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state()
}

// state is read with b.mu held. A file that cannot be read, is damaged or is from an earlier
// boot does not open the breaker.
func (b *breaker) state() (outageState, bool) {
	if b.alone != nil {
		return *b.alone, true
	}
	if b.dir == "" {
		return outageState{}, false
	}
	var state outageState
	data, err := readFile(b.file())
	if err != nil {
		return outageState{}, false
	}
	if err = json.Unmarshal(data, &state); err == nil && state.Cause == "" {
		err = errors.New("it does not say why the store is out of reach")
	}
	if err != nil {
		b.damaged(data, err)
		return outageState{}, false
	}
	if id, _, err := b.boot(); err != nil || id != state.Boot {
		return outageState{}, false
	}
	return state, true
}

// slot returns the current slot and boot.
func (b *breaker) slot() (slot int64, boot string) {
	id, since, err := b.boot()
	if err != nil { // no boot clock: slots by the wall clock do
		return time.Now().UnixMicro() / b.interval.Microseconds(), ""
	}
	return since / b.interval.Microseconds(), id
}

// allow returns what a call may do. If no process probed in the last interval, the
// call itself is the probe: calls are then so rare that nothing else would probe.
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

// claim tries to take a slot. It returns the last slot taken before, and whether
// this process got the slot.
func (b *breaker) claim(slot int64) (last int64, mine bool) {
	if b.alone != nil {
		last, b.probed = b.probed, slot
		return last, true
	}
	f, err := os.OpenFile(b.slotFile(slot), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		// The slot is taken, or the breaker was closed meanwhile. A directory that
		// became unwritable must not keep the breaker open for ever.
		return 0, !errors.Is(err, fs.ErrExist)
	}
	_ = f.Close() // nothing was written to it
	old, _ := filepath.Glob(filepath.Join(b.dir, "probe.*"))
	for _, path := range old {
		n, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(path), "probe."), 10, 64)
		if err != nil || n >= slot {
			continue
		}
		last = max(last, n)
		_ = os.Remove(path) // another prober may have removed it
	}
	return last, true
}

// open opens the breaker, or notes that the store still does not answer. It
// returns false if the breaker was open already.
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
		b.alone = &state // only this process knows
	}
	return !was
}

// shut closes the breaker. It returns false if the breaker was closed already; that
// costs one system call.
func (b *breaker) shut() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.alone != nil {
		b.alone = nil
		return true
	}
	if b.dir == "" || syscall.Unlink(b.file()) != nil { // os.Remove would try rmdir too
		return false
	}
	b.tidy()
	return true
}

// writeTries bounds how often write retries because another process removed the
// directory. A process removes it each time that it finds the breaker closed, so on a busy
// machine several tries in a row may fail.
const writeTries = 100

// write writes the file.
func (b *breaker) write(data []byte) (err error) {
	for range writeTries {
		if _, err = makeDir(b.dir); err == nil {
			err = writeFile(b.file(), data)
		}
		if !b.ownDir || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// tidy removes the slot files of a closed breaker, and its directory if it has one.
func (b *breaker) tidy() {
	old, _ := filepath.Glob(filepath.Join(b.dir, "probe.*"))
	for _, path := range old {
		_ = os.Remove(path)
	}
	if b.ownDir {
		_ = os.Remove(b.dir) // fails if it is not empty: another process opened the breaker again
	}
}

// idle reports whether the breaker is unused now and has no state outside its
// directory.
func (b *breaker) idle() bool {
	if !b.mu.TryLock() {
		return false
	}
	defer b.mu.Unlock()
	return b.alone == nil
}

// abandoned reports whether the breaker is closed. It closes a breaker that no
// process has probed for abandonedAfter. If another process opens it at that moment,
// the budget asks the store once more.
func (b *breaker) abandoned() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	state, open := b.state()
	if slot, _ := b.slot(); open && time.Duration(slot-state.Slot)*b.interval < abandonedAfter+b.interval {
		return false
	}
	b.alone = nil
	if b.ownDir {
		_ = os.Remove(b.file()) // it is old, from an earlier boot, or absent
		b.tidy()
	}
	return true
}
