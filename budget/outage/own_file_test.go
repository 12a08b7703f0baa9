package outage

import (
	"fmt"
	"os"
	"os/exec"
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
	m := &memory{
		dir: h.dir, wall: wallClock, boot: func() (string, int64, error) { return "boot", 1, nil },
		budgets: map[string]*remembered{}, warn: func(_ string, err error) { h.t.Error(err) },
	}
	h.t.Cleanup(m.sweeps.Wait) // before its directory goes
	return m
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
	list, _, why, _ := h.open().loadOwn(up)
	check.NoError(h.t, why)
	for _, s := range list {
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

// The file stays small however often it is written, and by however many processes.
func TestOwnFileStaysSmall(t *testing.T) {
	h := &hostMemory{t: t, dir: t.TempDir()}
	most := int64(0)
	for range 60 {
		m := h.open()
		for range 200 {
			h.charge(m)
		}
		h.close(m)
		most = max(most, must.Get(os.Stat(m.ownFile(up)))(t).Size())
	}
	check.Equal(t, h.written(), int64(2*h.n), "units are written")
	if most < 5_000 || most > 100_000 {
		t.Errorf("the file had up to %d bytes", most)
	}
}

// Charges that cannot be written leave the file as it was, and are written the next time; a
// process that ends while another one holds the lock appends its charges.
//
// The limit on files is the process's, so that a process of its own has it: the log of this one,
// which go test asks for, is larger.
func TestOwnFileIsNotWritable(t *testing.T) {
	if os.Getenv("QUOTACTL_TEST_FILE_LIMIT") == "" {
		alone := exec.CommandContext(t.Context(), must.Get(os.Executable())(t), "-test.run", "^"+t.Name()+"$")
		alone.Env = append(os.Environ(), "QUOTACTL_TEST_FILE_LIMIT=1")
		if out, err := alone.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	h := &hostMemory{t: t, dir: t.TempDir()}
	m := h.open()
	h.charge(m)
	path := m.ownFile(up)
	before := must.Get(os.ReadFile(path))(t)
	var was syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	h.charge(m)
	full := was
	full.Cur = uint64(len(before)) + 60 // room for a part
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full))
	m.mu.Lock()
	r := m.of(up)
	err := m.save(up, r)
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
	after := must.Get(os.ReadFile(path))(t)
	if err == nil || string(after) != string(before) {
		t.Fatalf("%v: the file was %q and is %q", err, before, after)
	}
	must.Do(t, m.save(up, r))
	m.mu.Unlock()
	must.Equal(t, h.written(), 4)
	held, err := os.OpenFile(filepath.Join(h.dir, "memory.lock"), os.O_RDWR, 0)
	if err == nil {
		err = syscall.Flock(int(held.Fd()), syscall.LOCK_EX)
	}
	must.Do(t, err)
	h.charge(m)
	h.close(m)
	must.Do(t, held.Close())
	must.Equal(t, h.written(), 6)
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
		m.mu.Lock()
		must.Do(t, m.saveOwn(up, m.of(up), false))
		m.mu.Unlock()
		list, _, _, _ := h.open().loadOwn(up)
		for i, one := range list {
			check.Equal(t, one.Lacked, i == 1 && lacking != nil, "the ledger lacks", one.ID)
		}
	}
	must.Equal(t, h.written(), 4)
}
