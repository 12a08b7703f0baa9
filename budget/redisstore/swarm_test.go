package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/redistest"
)

// A swarm is eight clients that charge for calls, each through a store of its
// own, going round the budgets, while the test does things to the servers. They
// ask for more than there is, so that the limit is what holds them.
const (
	swarmClients = 8
	swarmWindow  = time.Second
	swarmLimit   = 20
)

type swarm struct {
	t       testing.TB
	url     string
	budgets map[string]*spending
	stopped chan struct{}
	clients sync.WaitGroup
	rounds  [swarmClients]atomic.Int64 // grants of each client
}

// spending is what is known of one budget outside of its ledger.
type spending struct {
	upstream upstream
	refusals atomic.Int64 // exhausted
	away     atomic.Int64 // out of reach

	mu      sync.Mutex           // guards both below
	granted map[string]int64     // at, by id
	open    map[string]time.Time // when ids were first asked for whose outcome is unknown, or that were refused last
}

func swarmLimits() []limit.Limit {
	return []limit.Limit{{Name: "second", Limit: swarmLimit, Counts: limit.CountUnits, Window: limit.RollingWindow(swarmWindow)}}
}

func startSwarm(t testing.TB, url string, budgets ...string) *swarm {
	t.Helper()
	s := &swarm{t: t, url: url, budgets: map[string]*spending{}, stopped: make(chan struct{})}
	for _, name := range budgets {
		s.budgets[name] = &spending{granted: map[string]int64{}, open: map[string]time.Time{}}
	}
	for c := range swarmClients {
		store := openStore(t, url, redisstore.Options{Timeout: redisstore.DefaultTimeout})
		s.clients.Go(func() { s.run(c, store, budgets) })
	}
	t.Cleanup(s.stop)
	return s
}

// stop ends the clients; it may be called again.
func (s *swarm) stop() {
	select {
	case <-s.stopped:
	default:
		close(s.stopped)
	}
	s.clients.Wait()
}

// try is one call that a client wants to make, until it is granted.
type try struct {
	id    string
	asked time.Time // first
	again time.Time // not before
}

func (s *swarm) run(c int, store *redisstore.Store, budgets []string) {
	wants := make([]try, len(budgets))
	next, pause := 0, time.NewTicker(2*time.Millisecond) // a client works a little between calls
	defer pause.Stop()
	for n := 0; ; n++ {
		select {
		case <-s.stopped:
			return
		case <-pause.C:
		}
		i := (c + n) % len(budgets)
		w := &wants[i]
		if w.id == "" {
			w.id, w.asked = fmt.Sprint(c, "-", next), time.Now()
			next++
		}
		if time.Now().Before(w.again) {
			continue
		}
		if s.ask(store, budgets[i], w) {
			*w = try{}
			s.rounds[c].Add(1)
		}
	}
}

// ask asks for one unit. True when it was granted, and the call made.
func (s *swarm) ask(store *redisstore.Store, name string, w *try) bool {
	b := s.budgets[name]
	b.mu.Lock()
	b.open[w.id] = w.asked
	b.mu.Unlock()
	got, err := store.Decide(context.Background(), driver.Batch{
		Budget: name, Now: time.Now().UnixMicro(), Limits: swarmLimits(),
		Items: []driver.Item{{ID: w.id, Operation: "op", Units: 1}},
	})
	if err == nil && got.Items[0].Result == driver.OutcomeUnknown {
		err = got.Items[0].Err
	}
	switch {
	case errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrStoreConfig):
		b.away.Add(1)
		w.again = time.Now().Add(20 * time.Millisecond)
	case err != nil:
		s.t.Errorf("charge %s of %s: %v", w.id, name, err)
	case got.Items[0].Result == driver.Refused:
		b.refusals.Add(1)
		w.again = time.Now().Add(time.Duration(got.Items[0].RetryAt-got.Now) * time.Microsecond)
	case got.Items[0].Result == driver.Late, got.Items[0].Result == driver.Interrupted:
		b.away.Add(1)
	case got.Items[0].Result != driver.Granted || got.Items[0].Units != 1:
		s.t.Errorf("charge %s of %s: %+v", w.id, name, got.Items[0])
	default:
		b.upstream.call(w.id, 1, w.asked)
		b.mu.Lock()
		b.granted[w.id] = got.Items[0].At
		delete(b.open, w.id)
		b.mu.Unlock()
		return true
	}
	return false
}

// goesOn waits until every client was granted more calls than it has been, and
// every budget that is named more than fit into one window, and refused some.
func (s *swarm) goesOn(what string, budgets ...string) {
	s.t.Helper()
	var before [swarmClients]int64
	for c := range before {
		before[c] = s.rounds[c].Load()
	}
	calls := map[string]int{}
	for _, name := range budgets {
		calls[name] = len(s.budgets[name].upstream.calls())
	}
	redistest.Await(s.t, "the clients go on: "+what, func() bool {
		for c := range before {
			if s.rounds[c].Load() <= before[c] {
				return false
			}
		}
		for name, n := range calls {
			if len(s.budgets[name].upstream.calls()) <= n+swarmLimit || s.budgets[name].refusals.Load() == 0 {
				return false
			}
		}
		return true
	})
}

// settle sends what is unknown or refused again, from one patient client, and
// then wants the ledger to hold what was granted and nothing else, and the
// upstream to have seen no more than the limit in any window. It returns the
// ids that were granted and are missing, which only a failover may lose.
func (s *swarm) settle(name string, ledger func() map[string]int64) (missing []string) {
	s.t.Helper()
	b := s.budgets[name]
	store := openStore(s.t, s.url, redisstore.Options{})
	for id, asked := range maps.Clone(b.open) {
		w := try{id: id, asked: asked}
		s.ask(store, name, &w)
	}
	held := ledger()
	for id := range held {
		if _, ok := b.granted[id]; !ok {
			s.t.Errorf("%s holds %s, which was refused", name, id)
		}
	}
	for id := range b.granted {
		if _, ok := held[id]; !ok {
			missing = append(missing, id)
		}
	}
	calls := map[string]bool{}
	for _, call := range b.upstream.calls() {
		if calls[call.id] {
			s.t.Errorf("%s: %s was called twice", name, call.id)
		}
		calls[call.id] = true
	}
	if most := b.upstream.most(swarmWindow); most > swarmLimit+int64(len(missing)) {
		s.t.Errorf("%s: the upstream saw %d units within %s, the limit is %d (and %d were lost)", name, most, swarmWindow, swarmLimit, len(missing))
	}
	if b.refusals.Load() == 0 {
		s.t.Errorf("%s: nothing was refused, so the limit was not tried", name)
	}
	s.t.Logf("%s: %d calls, %d times exhausted, %d times out of reach, %d lost", name, len(calls), b.refusals.Load(), b.away.Load(), len(missing))
	return missing
}

// attempts is how many answers the clients have had.
func (s *swarm) attempts() int64 {
	n := int64(0)
	for _, b := range s.budgets {
		n += b.refusals.Load() + b.away.Load() + int64(len(b.upstream.calls()))
	}
	return n
}
