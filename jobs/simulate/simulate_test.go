package simulate

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/memstore"
)

// TestSimulate lives a month and prints it by days, beside the same month with a
// crontab. The environment may say SIMULATE_SEED, else it is random; SIMULATE_DAYS,
// which takes the month's first days alone; SIMULATE_LOG, a file for the daemons'
// log; SIMULATE_STORE, which may be sqlite; and SIMULATE_SEEDS, how many months are
// lived, from the seed on: of several each prints a line.
func TestSimulate(t *testing.T) {
	seed, days := setting(t, "SIMULATE_SEED", uint64(rand.Uint32())), int(setting(t, "SIMULATE_DAYS", 0))
	seeds := max(1, setting(t, "SIMULATE_SEEDS", 1))
	if seeds == 1 {
		show(t, draw(seed, days))
		return
	}
	for i := range seeds {
		t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
			t.Parallel()
			m := draw(seed+i, days)
			ours := live(t, m, "")
			sum := ours.sum()
			t.Logf("seed %d: yield %.4f, %d requests, %d rejected; ticks: %s", m.seed, ours.yield(), sum.Requests, sum.Rejected, sum.outcomes())
			check(t, m, ours)
		})
	}
}

// show lives one month and prints all of it.
func show(t *testing.T, m month) {
	t.Helper()
	out := t.Output()
	_, _ = fmt.Fprintf(out, "%s\n\n", m)
	began := time.Now()
	ours := live(t, m, os.Getenv("SIMULATE_LOG"))
	took := time.Since(began)
	_, _ = fmt.Fprintf(out, "%s\n%s\n%d days in %.0f s\n", table(m, ours, alone(t, m)), ours.told, m.days, took.Seconds())
	check(t, m, ours)
}

func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: give a number", name, text)
	}
	return n
}

// whole is how many days make a month: a fault weighs more in fewer.
const whole = 28

// check holds a month to what is promised.
func check(t *testing.T, m month, c *tally) {
	t.Helper()
	const least = 0.94
	if got := c.yield(); got < least && len(c.days) >= whole {
		t.Errorf("yield %.4f, want %.2f at least", got, least)
	}
	for i, d := range c.days {
		most := int64(limit)
		if m.away(m.midnight(i), m.midnight(i+1)) {
			most += allowance
		}
		if d.Rejected > 0 || d.Units > most {
			t.Errorf("%s: the upstream counted %d units and rejected %d requests, want at most %d and none", m.midnight(i).Format(time.DateOnly), d.Units, d.Rejected, most)
		}
		if counted := d.Requests - d.Rejected - d.Failed - d.Dropped; counted != d.answered || d.kept > d.Units {
			t.Errorf("%s: the upstream counted %d answers and %d units, but gave %d, and %d units are kept", m.midnight(i).Format(time.DateOnly), counted, d.Units, d.answered, d.kept)
		}
	}
}

// live lives a month with daemons.
func live(t *testing.T, m month, logPath string) (c *tally) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		folder := inMemory(t)
		clock := begin(m)
		w := &machine{
			t: t, month: m, clock: clock, network: newNetwork(t, m, clock),
			folder: folder, config: writeConfig(t, folder), log: slog.New(slog.DiscardHandler),
		}
		switch kind := os.Getenv("SIMULATE_STORE"); kind {
		case "sqlite":
		case "":
			w.memory = memstore.New(clock.micros)
		default:
			t.Fatalf("SIMULATE_STORE=%s: it may be sqlite, or not set", kind)
		}
		if logPath != "" {
			file, err := os.Create(logPath)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }()
			w.log = slog.New(slog.NewTextHandler(file, nil))
		}
		for i := range w.daemons {
			w.daemons[i] = &daemon{machine: w, number: i}
			w.daemons[i].start()
		}
		own, err := w.open(w.daemons[0].clocks())
		if err != nil {
			t.Fatal(err)
		}
		w.hosts = append(w.hosts, own)
		ledger := w.ledger(t, own)
		events := append(w.events(), event{m.end().Add(-time.Second), w.drain})
		for i := range m.days {
			events = append(events, event{m.midnight(i + 1).Add(-2 * time.Second), func() { w.agrees(t, ledger) }})
		}
		slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
		for _, e := range events {
			clock.until(e.at)
			e.do()
		}
		w.network.under.Wait()
		if len(m.outages) > 0 && w.reach.unanswered.Load() == 0 || len(m.partings) > 0 && w.reach.parted.Load() == 0 {
			t.Errorf("of %d outages and %d partings some kept no answer from anybody", len(m.outages), len(m.partings))
		}
		c = newTally(m)
		w.account(t, own, c)
		c.count(w.network)
		w.close()
	})
	return c
}

// inMemory is a folder that is gone with the test, where the machine has one in
// memory: nothing here depends on a disk's speed.
func inMemory(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "simulate")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	return folder
}

// alone lives it with a crontab.
func alone(t *testing.T, m month) (c *tally) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { c = crontab(t, m) })
	return c
}
