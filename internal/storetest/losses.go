package storetest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// Lossy is the data of a store, which a test can lose.
type Lossy struct {
	// Open opens a store on the data, as another process would. Its clock is in µs.
	Open func(clock func() int64) driver.Store
	// Lose are the ways in which all of the data, or part of it, is lost.
	Lose map[string]func()
	// Keep takes a snapshot and returns the function that restores it.
	Keep func() (restore func())
	// Alone: no process may have the data open during a loss or a snapshot.
	Alone bool
}

// Losses walks at random over losses of a store's data, charges, looks and restarts of
// two processes on each of several hosts. It checks every answer against the answers that
// the host got before: units that it knew to be used are never granted again, and
// everything granted stays within the limit, or with several hosts within the quota.
func Losses(t *testing.T, data Lossy, hosts int) {
	t.Helper()
	effort.Unraced(t)
	seed := effort.Seed(t)
	steps := effort.Of(500, 800, 10_000)
	w := &lossWalk{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 2)), data: data,
		counts: map[string]int{}, limits: lossLimits(t),
	}
	for range hosts {
		h := &lossHost{dir: t.TempDir(), known: make([]fact, len(w.limits))}
		w.hosts = append(w.hosts, h)
	}
	w.clock.Store(noon)
	w.step = -1
	w.charge(w.hosts[0])
	for _, h := range w.hosts { // a host that knows nothing has nothing to report
		w.look(h)
	}
	for w.step = range steps {
		w.act()
	}
	w.closeAll()
	for _, seen := range []string{"granted", "refused", "looked", "lost", "rolled back", "restarted", "lost again before a grant"} {
		if steps >= 5000 && w.counts[seen] == 0 {
			t.Errorf("seed %d: nothing was %s in %d steps: %v", seed, seen, steps, w.counts)
		}
	}
	if steps >= 5000 && hosts > 1 && (w.counts["recovering"] == 0 || w.counts["within the part"] == 0) {
		t.Errorf("seed %d: no loss held anything back: %v", seed, w.counts)
	}
	t.Logf("seed %d: %d steps: %v", seed, steps, w.counts)
}

// fact is what a host knows about a limit.
type fact struct{ used, at int64 }

// lossHost is a host with its processes.
type lossHost struct {
	met       bool // it has had an answer from the ledger
	dir       string
	processes [2]driver.Store // nil: not running
	known     []fact
	silent    bool // it has not called since the last loss
}

type lossWalk struct {
	t      *testing.T
	seed   uint64
	rng    *rand.Rand
	data   Lossy
	hosts  []*lossHost
	limits []limit.Limit
	clock  atomic.Int64 // in µs; the hosts' timers read it too
	step   int
	counts map[string]int

	granted []spending
	kept    []func()
	partial bool     // the last loss may be one that not all hosts can notice
	barren  bool     // no charge was granted since the last loss
	trace   []string // the last steps
}

// spending is a charge that was truly made.
type spending struct {
	at, units int64
	search    bool
}

const (
	lossBudget    = "loss/key"
	lossAllowance = 6
)

// everyCall is how many of the limits count every call; the others count searches.
const everyCall = 2

// lossLimits are a limit of each kind that counts over time.
func lossLimits(t *testing.T) []limit.Limit {
	refill := must.Get(limit.NewRefill(1, 10*time.Second))(t)
	return []limit.Limit{
		{Name: "hour", Quota: 130, Headroom: 30, Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)},
		calendar(t, "day", 1200, limit.Day, "America/Los_Angeles"),
		{Name: "search", Quota: 80, Headroom: 30, Limit: 50, Counts: limit.CountUnits, Window: limit.RollingWindow(3 * time.Hour), Operations: []string{"search"}},
		{Name: "burst", Quota: 70, Headroom: 10, Limit: 60, Counts: limit.CountUnits, Window: limit.BucketWindow(refill), Operations: []string{"search"}},
	}
}

// process is one of a host's processes, started if it is not running.
func (w *lossWalk) process(h *lossHost) driver.Store {
	n := w.rng.IntN(len(h.processes))
	if h.processes[n] == nil {
		h.processes[n] = w.open(h)
	}
	return h.processes[n]
}

// open starts another process of a host.
func (w *lossWalk) open(h *lossHost) driver.Store {
	clock := w.clock.Load
	return outage.New(w.data.Open(clock), outage.Options{
		Dir: h.dir, Allowance: lossAllowance, Hosts: int64(len(w.hosts)), Timeout: patience, Log: slog.New(slog.DiscardHandler),
		Clocks: &sqlitestore.Clocks{Wall: clock, Boot: func() (string, int64, error) { return "boot", clock() - noon + 1, nil }},
	})
}

func (w *lossWalk) stop(h *lossHost) {
	for n, p := range h.processes {
		if p == nil {
			continue
		}
		must.Do(w.t, p.Close())
		h.processes[n] = nil
	}
}

func (w *lossWalk) closeAll() {
	for _, h := range w.hosts {
		w.stop(h)
	}
}

// act takes one step. More than a second passes with each, so that a host's processes
// have read what the others wrote.
func (w *lossWalk) act() {
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	if w.anySilent() {
		h = w.next()
	}
	w.clock.Add(1_100_000 + w.rng.Int64N(second))
	if !w.anySilent() && w.rng.IntN(12) == 0 {
		w.clock.Add(w.rng.Int64N(3 * hour))
	}
	switch n := w.rng.IntN(100); {
	case n < 55:
		w.charge(h)
	case n < 75:
		w.look(h)
	case n < 82:
		w.counts["restarted"]++
		w.did("host %s restarts", filepath.Base(h.dir))
		w.stop(h)
	case n < 86:
		w.snapshot()
	default:
		w.lose()
	}
}

// next is the next silent host to act. All act within the minute. After a loss that only
// some hosts can notice, the host with the newest answer acts first; TestWhatRemains
// covers the other orders.
func (w *lossWalk) next() *lossHost {
	silent := slices.DeleteFunc(slices.Clone(w.hosts), func(h *lossHost) bool { return !h.silent })
	if !w.partial {
		return silent[w.rng.IntN(len(silent))]
	}
	return slices.MaxFunc(silent, func(a, b *lossHost) int { return cmp.Compare(a.known[0].at, b.known[0].at) })
}

func (w *lossWalk) anySilent() bool {
	for _, h := range w.hosts {
		if h.silent {
			return true
		}
	}
	return false
}

func (w *lossWalk) snapshot() {
	if w.data.Alone {
		w.closeAll()
	}
	w.did("a snapshot")
	w.kept = append(w.kept, w.data.Keep())
	w.kept = w.kept[max(0, len(w.kept)-3):]
}

func (w *lossWalk) lose() {
	if w.anySilent() && (w.partial && len(w.hosts) > 1 || w.rng.IntN(4) > 0) {
		return // several losses in a row happen, but not always
	}
	if w.data.Alone {
		w.closeAll()
	}
	if w.barren {
		w.counts["lost again before a grant"]++
	}
	w.barren = true
	for _, h := range w.hosts {
		h.silent = true
	}
	if w.partial = len(w.kept) > 0 && w.rng.IntN(2) == 0; w.partial {
		n := w.rng.IntN(len(w.kept))
		w.kept[n]()
		w.did("the data is put back to snapshot %d of %d", n, len(w.kept))
		w.counts["rolled back"]++
		return
	}
	ways := make([]string, 0, len(w.data.Lose))
	for way := range w.data.Lose {
		ways = append(ways, way)
	}
	slices.Sort(ways)
	way := ways[w.rng.IntN(len(ways))]
	w.data.Lose[way]()
	w.did("%s", way)
	w.counts["lost"]++
	w.counts["lost: "+way]++
}

func (w *lossWalk) charge(h *lossHost) {
	batch := driver.Batch{Budget: lossBudget, Now: w.clock.Load(), Limits: w.limits}
	for i := range 1 + w.rng.IntN(3) {
		item := driver.Item{ID: fmt.Sprintf("%d-%d", w.step, i), Operation: "list", Units: 1 + w.rng.Int64N(12)}
		if w.rng.IntN(3) == 0 {
			item.Operation = "search"
		}
		batch.Items = append(batch.Items, item)
	}
	searches := slices.ContainsFunc(batch.Items, func(i driver.Item) bool { return i.Operation == "search" })
	if !searches && w.rng.IntN(2) == 0 { // like a caller whose limits cover one operation
		batch.Limits = w.limits[:everyCall]
	}
	got, err := w.process(h).Decide(context.Background(), batch)
	w.did("host %s charges %+v: %+v", filepath.Base(h.dir), batch.Items, got)
	if err != nil {
		w.fail("decide: %v", err)
	}
	wasSilent := w.anySilent()
	for i, d := range got.Items {
		switch {
		case d.Result == driver.Granted:
			w.barren = false
			w.counts["granted"]++
			if wasSilent && len(w.hosts) > 1 {
				w.counts["within the part"]++
			}
			w.granted = append(w.granted, spending{d.At, d.Units, batch.Items[i].Operation == "search"})
		case d.Recovering:
			w.counts["recovering"]++
		case d.Result == driver.Refused:
			w.counts["refused"]++
		default:
			w.fail("item %d: %+v", i, d)
		}
	}
	h.silent = h.silent && len(batch.Limits) < len(w.limits) // it has not reported the other limits
	for i, used := range got.Used {
		w.hold(h, i, used, got.Mark.Seen)
	}
	w.within(got.Mark.Seen)
}

func (w *lossWalk) look(h *lossHost) {
	view, err := w.process(h).Look(context.Background(), driver.Look{Budget: lossBudget, Now: w.clock.Load(), Limits: w.limits})
	if err != nil {
		w.fail("look: %v", err)
	}
	w.did("host %s looks: %+v", filepath.Base(h.dir), view)
	w.counts["looked"]++
	h.silent = false
	for i, limit := range view.Limits {
		w.hold(h, i, limit.Used, view.Mark.Seen)
	}
}

// hold checks an answer about a limit against what the host knew before.
func (w *lossWalk) hold(h *lossHost, i int, used, at int64) {
	w.t.Helper()
	was, limit := h.known[i], w.limits[i]
	if least := w.least(limit, was, at); used < least {
		w.fail("host %s heard that limit %s had used %d at %d; at %d, %d µs later, it has used %d, less than the %d that still count",
			filepath.Base(h.dir), limit.Name, was.used, was.at, at, at-was.at, used, least)
	}
	h.known[i] = fact{used, at}
}

// least is how much of what was used earlier must still count at an instant. The part
// that the host did not know then may be the part that counts longest.
func (w *lossWalk) least(l limit.Limit, was fact, at int64) int64 {
	if was.at == 0 {
		return 0
	}
	if l.Window.Kind == limit.Bucket {
		level := limit.Level{Used: was.used - 1, At: was.at} // it was rounded up
		return max(0, l.Window.Refill.Drain(level, at).Used)
	}
	then, still := w.spent(l, l.Window.Cut(was.at), was.at), w.spent(l, l.Window.Cut(at), was.at)
	return max(0, still-max(0, then-was.used))
}

// spent is what was truly spent in a limit at instants after from, up to the instant to.
func (w *lossWalk) spent(limit limit.Limit, from, to int64) (sum int64) {
	for _, s := range w.granted {
		if s.at > from && s.at <= to && (len(limit.Operations) == 0 || s.search) {
			sum += s.units
		}
	}
	return sum
}

// within checks what was truly spent against the limits. If several hosts share them,
// each host's outage part comes on top.
func (w *lossWalk) within(at int64) {
	w.t.Helper()
	for _, l := range w.limits {
		bound := l.Limit
		if n := int64(len(w.hosts)); n > 1 {
			part := int64(lossAllowance)
			if l.Quota > 0 {
				part = min(part, l.Headroom/n)
			}
			bound += n * part
		}
		spent := int64(0)
		switch {
		case l.Window.Kind != limit.Bucket:
			spent = w.spent(l, l.Window.Cut(at), at)
		case len(w.hosts) > 1: // no host has a part of a bucket
			continue
		default:
			level := limit.Level{}
			for _, s := range w.granted {
				if s.search {
					level = l.Window.Refill.Drain(level, s.at)
					level.Used += s.units
				}
			}
			spent = l.Window.Refill.Drain(level, at).Used
		}
		if spent > bound {
			w.fail("%d of limit %s are spent, and it has %d", spent, l.Name, bound)
		}
	}
	// Charges that have left all windows are no longer needed.
	for len(w.granted) > 0 && w.granted[0].at < at-26*hour {
		w.granted = w.granted[1:]
	}
}

// did keeps a trace of the last steps for the message of a failure.
func (w *lossWalk) did(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("step %d at %d: ", w.step, w.clock.Load())+fmt.Sprintf(format, args...))
	w.trace = w.trace[max(0, len(w.trace)-25):]
}

func (w *lossWalk) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d, step %d at %d, %v: %s; before that:\n%s", w.seed, w.step, w.clock.Load(), w.counts, fmt.Sprintf(format, args...), strings.Join(w.trace, "\n"))
}
