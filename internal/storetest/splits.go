package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/effort"
)

// manySplits is how many rounds come by everything.
const manySplits = 100

// Splits walks at random over splits of a store, in which hosts charge to both sides and
// which heal to the data of one side; over flushes; and over charges, reservations and
// restarts of two processes on each of three hosts. Nothing leaves a window meanwhile.
// Once all hosts have looked, each limit has used exactly what was truly spent: charges
// that a host made and the ledger lacks are added up, and nothing counts twice.
func Splits(t *testing.T, data Lossy) {
	t.Helper()
	effort.Unraced(t)
	seed := effort.Seed(t)
	rounds := effort.Of(15, manySplits, 300)
	s := &splitWalk{lossWalk: lossWalk{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 3)), data: data, counts: map[string]int{},
		limits: []limit.Limit{
			rolling("day", 1_000_000, 24*time.Hour),
			{Name: "calls", Limit: 1_000_000, Counts: limit.CountCalls, Window: limit.RollingWindow(30 * time.Hour)},
			rolling("search", 1_000_000, 40*time.Hour, "search"),
		},
	}}
	for range 3 {
		s.hosts = append(s.hosts, &lossHost{dir: t.TempDir()})
	}
	s.clock.Store(noon)
	for s.step = range rounds {
		s.some(s.hosts)
		switch s.rng.IntN(6) {
		case 0:
			s.flush()
		case 1:
			s.rollBack()
		default:
			s.split()
		}
		s.heal()
	}
	s.closeAll()
	t.Logf("seed %d: %d rounds: %v", seed, rounds, s.counts)
	for _, seen := range []string{"split", "flushed", "rolled back", "settled", "released", "restarted"} {
		if rounds >= manySplits && s.counts[seen] == 0 {
			t.Errorf("seed %d: nothing was %s in %d rounds: %v", seed, seen, rounds, s.counts)
		}
	}
}

type splitWalk struct {
	lossWalk
	n     int
	truth [3]int64 // what was truly spent, by limit
}

// some has some of the hosts make a few charges.
func (s *splitWalk) some(hosts []*lossHost) {
	for range 1 + s.rng.IntN(8) {
		h := hosts[s.rng.IntN(len(hosts))]
		if s.rng.IntN(2) == 0 { // otherwise it has not yet written down its earlier charges
			s.clock.Add(second)
		}
		s.clock.Add(100_000 + s.rng.Int64N(second/4))
		if s.rng.IntN(8) == 0 {
			s.counts["restarted"]++
			s.stop(h)
		}
		s.spend(h)
	}
}

// spend charges, or makes a reservation and ends it.
func (s *splitWalk) spend(h *lossHost) {
	s.n++
	item := driver.Item{ID: fmt.Sprint("id", s.n), Operation: []string{"list", "search"}[s.rng.IntN(2)], Units: 1 + s.rng.Int64N(12)}
	reserves := s.rng.IntN(3) == 0
	if reserves {
		item.Lease = minute
	}
	process := s.process(h)
	ask := func() (driver.Decisions, error) {
		return process.Decide(context.Background(), driver.Batch{Budget: lossBudget, Now: s.clock.Load(), Limits: s.limits, Items: []driver.Item{item}})
	}
	got, err := ask()
	if err == nil && got.Items[0].Recovering { // not all hosts have reported
		s.clock.Add(driver.RecoveryWait)
		got, err = ask()
	}
	s.did("host %s charges %+v: %+v, %v", filepath.Base(h.dir), item, got, err)
	if err != nil || got.Items[0].Result != driver.Granted {
		s.fail("charge: %+v, %v", got, err)
	}
	h.met = true
	calls := int64(1)
	if reserves {
		f := driver.Finish{ID: item.ID, Release: s.rng.IntN(3) == 0, Units: s.rng.Int64N(20)}
		done, err := driver.FinishOne(context.Background(), process, lossBudget, s.clock.Load(), f)
		s.did("host %s finishes %+v: %+v, %v", filepath.Base(h.dir), f, done, err)
		switch {
		case err == nil && done.Result == driver.Settled:
			item.Units = f.Units
			s.counts["settled"]++
		case err == nil && done.Result == driver.Released:
			item.Units, calls = 0, 0
			s.counts["released"]++
		default:
			s.fail("finish: %+v, %v", done, err)
		}
	}
	if reserves { // so that the process writes down how it ended
		for range 2 { // the first time its timer may fire between the end of the second and the look
			s.clock.Add(1_100_000)
			if _, err := process.Look(context.Background(), driver.Look{Budget: lossBudget, Now: s.clock.Load(), Limits: s.limits}); err != nil {
				s.fail("look: %v", err)
			}
		}
	}
	s.truth[0] += item.Units
	s.truth[1] += calls
	if item.Operation == "search" {
		s.truth[2] += item.Units
	}
}

// keep takes a snapshot; restore restores one.
func (s *splitWalk) keep() func() {
	if s.data.Alone {
		s.closeAll()
	}
	return s.data.Keep()
}

func (s *splitWalk) restore(data func()) {
	if s.data.Alone {
		s.closeAll()
	}
	data()
}

// split has some hosts charge to one side and the others to the other.
func (s *splitWalk) split() {
	s.counts["split"]++
	hosts := slices.Clone(s.hosts)
	s.rng.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	both := s.keep()
	s.did("a split")
	s.some(hosts[:2])
	one := s.keep()
	s.restore(both)
	s.did("the other side")
	s.some(hosts[2:])
	if s.rng.IntN(2) == 0 {
		s.restore(one)
		s.did("the first side stays")
	}
}

func (s *splitWalk) flush() {
	s.counts["flushed"]++
	ways := make([]string, 0, len(s.data.Lose))
	for way := range s.data.Lose {
		ways = append(ways, way)
	}
	slices.Sort(ways)
	way := ways[s.rng.IntN(len(ways))]
	s.restore(s.data.Lose[way])
	s.did("%s", way)
}

func (s *splitWalk) rollBack() {
	s.counts["rolled back"]++
	before := s.keep()
	s.some(s.hosts)
	s.restore(before)
	s.did("rolled back")
}

// heal has all processes of all hosts look, and compares what is used with what was
// spent.
func (s *splitWalk) heal() {
	s.t.Helper()
	var view driver.View
	for round := range 2 {
	hosts:
		for _, at := range s.rng.Perm(len(s.hosts)) {
			h := s.hosts[at]
			looking := slices.DeleteFunc([]driver.Store{s.process(h), h.processes[0], h.processes[1]}, func(p driver.Store) bool { return p == nil })
			for _, process := range looking {
				s.clock.Add(1_100_000)
				var err error
				view, err = process.Look(context.Background(), driver.Look{Budget: lossBudget, Now: s.clock.Load(), Limits: s.limits})
				s.did("host %s looks: %+v, %v", filepath.Base(h.dir), view.Limits, err)
				if errors.Is(err, driver.ErrDamaged) && !h.met && round == 0 { // it knows nothing with which to start the ledger again
					continue hosts
				}
				if err != nil {
					s.fail("look: %v", err)
				}
				h.met = h.met || view.Mark.Ledger != ""
			}
			if round == 0 && s.rng.IntN(3) == 0 && h.met { // before others have noticed
				s.spend(h)
			}
		}
		if view.Recovering > 0 && round == 0 { // it waits for a host that has not charged yet
			s.clock.Add(driver.RecoveryWait)
		}
	}
	for i, limit := range view.Limits {
		if limit.Used != s.truth[i] {
			s.fail("limit %s has used %d, and %d were spent", s.limits[i].Name, limit.Used, s.truth[i])
		}
	}
}
