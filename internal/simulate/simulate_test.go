package simulate

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// TestSimulate lives a month and prints it by days, beside the same month with a
// crontab. The tests with small effort live three days, those of .ci/run ten, those with
// full effort two months, from the seed on, each of which prints a line. SIMULATE_LOG names
// a file for the daemons' log.
func TestSimulate(t *testing.T) {
	seed := effort.Seed(t)
	days := effort.Of(3, weighed, 0)
	seeds := effort.Of[uint64](1, 1, 2, 1)
	if seeds == 1 {
		show(t, draw(t, ordinary, seed, days))
		return
	}
	for i := range seeds {
		t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
			t.Parallel()
			m := draw(t, ordinary, seed+i, days)
			ours := live(t, m, "")
			sum := ours.sum()
			t.Logf("seed %d: yield %.4f, %d requests, %d rejected; ticks: %s", m.seed, ours.yield(), sum.Requests, sum.Rejected, sum.outcomes())
			checkMonth(t, m, ours)
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
	checkMonth(t, m, ours)
}

// whole is how many days make a month, and weighed from how many on the yield is held to a
// least one.
const whole, weighed = 28, 10

// checkMonth holds a month to what is promised.
func checkMonth(t *testing.T, m month, c *tally) {
	t.Helper()
	least := 0.94
	if len(c.days) < whole { // a fault weighs more in fewer days
		least = 0.93
	}
	if got := c.yield(); got < least && len(c.days) >= weighed {
		t.Errorf("yield %.4f, want %.2f at least", got, least)
	}
	for i, d := range c.days {
		most := int64(limit)
		if m.away(m.midnight(i), m.midnight(i+1)) {
			most += allowance
		}
		if d.kept < d.least {
			t.Errorf("%s: %d units stand on kept pages, want at least %d: %d failed, %d were not heard of, %d were under way at midnight, %d charged without an answer", m.midnight(i).Format(time.DateOnly), d.kept, d.least, d.failed, d.unheard, d.astride, d.unanswered)
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
			folder: folder, config: writeConfig(t, folder, m.setting), log: slog.New(slog.DiscardHandler),
			store: memstore.New(clock.micros),
		}
		if logPath != "" {
			file := must.Get(os.Create(logPath))(t)
			defer func() { _ = file.Close() }()
			w.log = slog.New(slog.NewTextHandler(file, nil))
		}
		_, list := load(t, w.config)
		w.network.lease = longest(list)
		for i := range w.daemons {
			w.daemons[i] = &daemon{machine: w, number: i}
			w.daemons[i].start()
		}
		ledger := w.ledger(t, w.store)
		events := append(w.events(), event{m.end().Add(-time.Second), w.drain})
		for i := range m.days {
			events = append(events, event{m.midnight(i + 1).Add(-2 * time.Second), func() { w.headrooms = append(w.headrooms, w.agrees(t, ledger)) }})
		}
		slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
		for _, e := range events {
			clock.until(e.at)
			e.do()
		}
		w.network.under.Wait()
		w.waking.Wait()
		if w.reach.unanswered.Load() == 0 || m.noticed() && w.reach.parted.Load() == 0 {
			t.Errorf("of %d outages and %d partings some kept no answer from anybody", len(m.outages), len(m.partings))
		}
		c = newTally(m)
		w.account(t, w.store, c)
		if !m.compared {
			w.promised(t)
		}
		c.count(w.network)
		for i := range c.days {
			c.days[i].least = w.least(t, i, &c.days[i])
		}
		for i, units := range w.headrooms {
			c.days[i].headroom = units
		}
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
	t.Cleanup(func() { check.NoError(t, os.RemoveAll(folder)) })
	return folder
}

// alone lives it with a crontab.
func alone(t *testing.T, m month) (c *tally) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { c = crontab(t, m) })
	return c
}
