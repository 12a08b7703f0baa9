package redisstore_test

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/linear"
	"github.com/quotactl/quotactl/internal/redistest"
)

// linearTimeout is short: a swallowed reply costs its client as much. It doubles with
// every eighth try, up to 64 times that: on a busy machine an answer takes longer.
const linearTimeout = 100 * time.Millisecond

// linearPlan is a history's plan on a server behind a proxy that spoils replies;
// each client has a store of its own, as on machines of their own.
func linearPlan(t *testing.T, server *redistest.Server, seed uint64, fault func(driver.Store) driver.Store) (linear.Plan, *faultyProxy) {
	t.Helper()
	proxy := startFaultyProxy(t, server.Addr, seed)
	plan := linear.Plan{
		Seed: seed, Clients: 6, Ops: 300, Budgets: []string{"up/a", "up/b"}, Limits: linear.Limits(250, 5),
		Heal: func() { proxy.spoils.Store(false) },
	}
	var stores []driver.Store
	for range plan.Clients {
		stores = append(stores, fault(openStore(t, proxy.url(), redisstore.Options{})))
	}
	plan.Try = func(client int, op linear.Op, before int) (linear.Answer, error) {
		return linear.Ask(stores[client], plan.Limits, op, linearTimeout<<min(before/8, 6))
	}
	return plan, proxy
}

func sound(store driver.Store) driver.Store { return store }

// Lost, reset and late replies, a server that loses its scripts and its clients,
// and one that stops in the middle and goes on.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	seed := effort.Seed(t)
	for round := range uint64(3) {
		server := redistest.Start(t)
		plan, proxy := linearPlan(t, server, seed+round, sound)
		admin := server.Client()
		var stopped atomic.Bool
		goOn := func() {
			if stopped.Swap(false) {
				server.Signal(syscall.SIGCONT)
			}
		}
		plan.Unknown = goOn // a client has given up, others are about to
		plan.Before = func(n int) {
			if stopped.Load() {
				return
			}
			var err error
			switch n % 40 {
			case 10:
				err = admin.ScriptFlush(t.Context()).Err()
			case 20:
				err = admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err()
			case 30:
				stopped.Store(true)
				server.Signal(syscall.SIGSTOP)
			}
			if err != nil {
				t.Errorf("fault %d: %v", n, err)
			}
		}
		heal := plan.Heal
		plan.Heal = func() { heal(); goOn() }
		h := linear.Run(t, plan)
		t.Logf("round %d: sent %d times, %d with unknown outcome, %d replies spoiled", round, h.Tries, h.Unknown, proxy.spoiled.Load())
		if proxy.spoiled.Load() < 5 || h.Unknown < 5 {
			t.Fatal("hardly any fault: the test shows nothing")
		}
		linear.Check(t, h)
		server.Kill()
		_ = admin.Close()
	}
}

// What a store without ids would do under the same lost replies is seen.
func TestWithoutIDsIsNotLinearizable(t *testing.T) {
	t.Parallel()
	plan, proxy := linearPlan(t, redistest.Start(t), effort.Seed(t), linear.WithoutIDs)
	plan.ChargesOnly = true
	proxy.more.Store(50) // the store's own attempts must not find out too often
	linear.CheckFlagged(t, linear.Run(t, plan))
}

// And what a status that lags would.
func TestLaggingStatusIsNotLinearizable(t *testing.T) {
	t.Parallel()
	plan, _ := linearPlan(t, redistest.Start(t), effort.Seed(t), linear.Lagging)
	linear.CheckFlagged(t, linear.Run(t, plan))
}

// restarts has the server killed and started anew on the way.
func restarts(t *testing.T, server *redistest.Server) *linear.History {
	t.Helper()
	plan, _ := linearPlan(t, server, effort.Seed(t), sound)
	plan.Before = func(n int) {
		if n%100 != 50 {
			return
		}
		server.Kill()
		if !server.Start() {
			t.Error("redis-server does not start again")
		}
	}
	return linear.Run(t, plan)
}

// A server that is killed and keeps a log has lost nothing that it answered.
func TestLinearizableOverRestarts(t *testing.T) {
	t.Parallel()
	linear.Check(t, restarts(t, redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")))
}

// One that keeps none is seen to have.
func TestRestartsWithoutLogAreNotLinearizable(t *testing.T) {
	t.Parallel()
	linear.CheckFlagged(t, restarts(t, redistest.Start(t)))
}
