package outage

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// hostMemory is what a host's processes remember, each in a memory of its own.
type hostMemory struct {
	t   *testing.T
	dir string
	n   int // charges made
}

func (h *hostMemory) open() *memory {
	return &memory{
		dir: h.dir, wall: wallClock, boot: func() (string, int64, error) { return "boot", 1, nil },
		budgets: map[string]*remembered{}, warn: func(_ string, err error) { h.t.Error(err) },
	}
}

// charge has a process be granted 2 units.
func (h *hostMemory) charge(m *memory) {
	h.t.Helper()
	h.n++
	at, id := time.Now().UnixMicro(), fmt.Sprint("id", h.n)
	batch := driver.Batch{Budget: up, Limits: []limit.Limit{dayOf("day")}, Items: []driver.Item{{ID: id, Operation: "list", Units: 2}}}
	must.Do(h.t, m.saw(batch, driver.Decisions{
		Now: at, Items: []driver.Decision{{Result: driver.Granted, Units: 2, At: at}}, Used: []int64{int64(2 * h.n)},
		Mark: driver.Mark{Ledger: "l", Changes: int64(h.n), ID: id, At: at, Seen: at},
	}))
}

// written is what the directory holds of the host's own charges, in units.
func (h *hostMemory) written() (units int64) {
	for _, s := range h.open().loadOwn(up) {
		units += s.Amounts["day"]
	}
	return units
}

func (h *hostMemory) close(processes ...*memory) {
	h.t.Helper()
	for _, m := range processes {
		m.close()
	}
}

// Processes of a host that write at one time lose nothing of what each of them charged:
// one that finds another writing keeps its own for the next time.
func TestOwnOfSeveralProcesses(t *testing.T) {
	h := &hostMemory{t: t, dir: t.TempDir()}
	one, other := h.open(), h.open()
	h.charge(one)
	h.charge(other)
	must.Equal(t, h.written(), 4, "the directory has … of the 4 that two processes charged")
	held, err := os.OpenFile(filepath.Join(h.dir, "memory.lock"), os.O_RDWR, 0)
	if err == nil {
		err = syscall.Flock(int(held.Fd()), syscall.LOCK_EX)
	}
	must.Do(t, err)
	third := h.open() // which writes at once
	h.charge(third)
	must.Equal(t, h.written(), 4, "the directory has … while a third process writes")
	must.Do(t, held.Close())
	for _, m := range []*memory{one, other, third} {
		h.charge(m)
		h.close(m)
	}
	must.Equal(t, h.written(), 12, "the directory has … of the 12 that three processes charged")
}

// A line that a process died in takes nothing else along, and the file stays small
// however often it is written.
func TestOwnFileIsAppendedTo(t *testing.T) {
	h := &hostMemory{t: t, dir: t.TempDir()}
	most := int64(0)
	for n := range 60 { // 60 processes, of which some die as they write
		m := h.open()
		for range 200 {
			h.charge(m)
		}
		h.close(m)
		info := must.Get(os.Stat(m.ownFile(up)))(t)
		most = max(most, info.Size())
		if n%3 > 0 {
			continue
		}
		file, err := os.OpenFile(m.ownFile(up), os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = file.WriteString(`{"id":"cut","amounts":{"day":9`)
		}
		must.Do(t, err)
		must.Do(t, file.Close())
	}
	if got, want := h.written(), int64(2*h.n); got != want {
		t.Errorf("the directory has %d of the %d that were charged", got, want)
	}
	if most < 20_000 || most > 2*maxAppended {
		t.Errorf("the file had up to %d bytes", most)
	}
}

// What could be written in part alone is written whole the next time, and counts once; a
// file that cannot be written to is replaced.
func TestOwnFileIsNotWritable(t *testing.T) {
	h := &hostMemory{t: t, dir: t.TempDir()}
	m := h.open()
	h.charge(m)
	path := m.ownFile(up)
	before := must.Get(os.ReadFile(path))(t)
	var was syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	r := m.of(up)
	r.fresh = []stretch{{ID: "a", Amounts: map[string]int64{"day": 2}}, {ID: "b", Amounts: map[string]int64{"day": 2}}}
	full := was
	full.Cur = uint64(len(before)) + 60 // room for one of the lines
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full))
	added := m.appendOwn(up, r)
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
	after, err := os.ReadFile(path)
	if err != nil || added || string(after) != string(before) {
		t.Fatalf("%v, %v: the file was %q and is %q", added, err, before, after)
	}
	must.Do(t, os.Remove(path))
	must.Do(t, os.Symlink(filepath.Join(h.dir, "gone"), path)) // which nobody can open
	if err := m.saveOwn(up, r, false); err != nil || h.written() != 4 {
		t.Fatalf("%v, and %d units are written, want the 4 since", err, h.written())
	}
}

// What the ledger was found to lack, and to hold again, is written down for the host's
// other processes, also in the midst of what is appended.
func TestWhatTheLedgerLacksIsWrittenDown(t *testing.T) {
	h := &hostMemory{t: t, dir: t.TempDir()}
	m := h.open()
	h.charge(m)
	h.charge(m)
	own := m.own(up)
	must.Equal(t, len(own), 2)
	for _, lacking := range [][]stretch{own[1:], nil} {
		m.asked(up, own, lacking)
		must.Do(t, m.saveOwn(up, m.of(up), false))
		for i, one := range h.open().loadOwn(up) {
			check.Equal(t, one.Lacked, i == 1 && lacking != nil, "the ledger lacks", one.ID)
		}
	}
	must.Equal(t, h.written(), 4)
}
