package outage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/effort"
)

// What a host charged itself is kept in few stretches, of which the newest are single
// charges and none is long beside its age; what no window counts any more is let go.
func TestStretchesStayFew(t *testing.T) {
	seed := effort.Seed(t, "QUOTACTL_WALK_SEED")
	rng := rand.New(rand.NewPCG(seed, 1))
	const day = int64(24 * time.Hour / time.Microsecond)
	var list []stretch
	var times []int64
	most := 0
	for at := int64(0); len(times) < effort.Of(20_000, 400_000); {
		at += 1 + rng.Int64N(day/5000)
		list = append(list, stretch{ID: fmt.Sprint(at), From: at, At: at, Amounts: map[string]int64{"day": 3}})
		times = append(times, at)
		if rng.IntN(20) > 0 {
			continue
		}
		list = thin(list, day)
		most = max(most, len(list))
		for i, s := range list {
			from, _ := slices.BinarySearch(times, s.From)
			to, _ := slices.BinarySearch(times, s.At+1)
			apart, long := len(list)-i <= keptApart, s.At-s.From > max(finestStretch, (at-s.At)/stretchAge)
			if s.Amounts["day"] != 3*int64(to-from) || s.ID != fmt.Sprint(s.At) || apart && to-from > 1 || long || s.At <= at-day {
				t.Fatalf("stretch %d of %d at %d is %+v, of %d charges", i, len(list), at, s, to-from)
			}
			if i > 0 && s.From <= list[i-1].At {
				t.Fatalf("stretch %d is %+v, and the one before %+v", i, s, list[i-1])
			}
		}
	}
	if most > 400 {
		t.Fatalf("there are %d stretches", most)
	}
	t.Logf("%d stretches at most", most)
}

// Processes of a host that write at one time lose nothing of what each of them charged:
// one that finds another writing keeps its own for the next time.
func TestOwnOfSeveralProcesses(t *testing.T) {
	dir := t.TempDir()
	open := func() *memory {
		return &memory{
			dir: dir, wall: wallClock, boot: func() (string, int64, error) { return "boot", 1, nil },
			budgets: map[string]*remembered{}, warn: func(_ string, err error) { t.Error(err) },
		}
	}
	n := 0
	charge := func(m *memory) {
		t.Helper()
		n++
		at, id := time.Now().UnixMicro(), fmt.Sprint("id", n)
		batch := budget.Batch{Budget: up, Limits: []budget.Limit{dayOf("day")}, Items: []budget.Item{{ID: id, Operation: "list", Units: 2}}}
		err := m.saw(batch, budget.Decisions{
			Now: at, Items: []budget.Decision{{Result: budget.Granted, Units: 2, At: at}}, Used: []int64{int64(2 * n)},
			Mark: budget.Mark{Ledger: "l", Changes: int64(n), ID: id, At: at, Seen: at},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sum := func() (units int64) {
		for _, s := range open().loadOwn(up) {
			units += s.Amounts["day"]
		}
		return units
	}
	one, other := open(), open()
	charge(one)
	charge(other)
	if got := sum(); got != 4 {
		t.Fatalf("the directory has %d of the 4 that two processes charged", got)
	}
	held, err := os.OpenFile(filepath.Join(dir, "memory.lock"), os.O_RDWR, 0)
	if err == nil {
		err = syscall.Flock(int(held.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	third := open() // which writes at once
	charge(third)
	if got := sum(); got != 4 {
		t.Fatalf("the directory has %d while a third process writes", got)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*memory{one, other, third} {
		charge(m)
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := sum(); got != 12 {
		t.Fatalf("the directory has %d of the 12 that three processes charged", got)
	}
}
