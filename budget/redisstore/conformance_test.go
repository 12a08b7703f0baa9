package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
	"github.com/quotactl/quotactl/internal/storetest"
)

func TestMain(m *testing.M) {
	redisstore.SetDialTimeout(30 * time.Second) // a busy machine may take more than a second to accept
	if config, isCharger := os.LookupEnv(chargerChild); isCharger {
		if err := chargeAndTell(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	storetest.Main(m, shared(nil))
}

// patient is the timeout of calls that are to be answered, however busy the machine is: a call
// may take thousands of runs of a script, and an attempt that is not answered in two fifths of it
// is made again.
const patient = 5 * time.Minute

// opener opens stores on one server, each with a prefix of its own.
func opener(url string) storetest.Open {
	var n atomic.Int64
	return func(t testing.TB, clock func() int64) storetest.Store {
		store := must.Get(redisstore.OpenWithClock(url, redisstore.Options{Prefix: fmt.Sprint("t", n.Add(1)), Timeout: patient}, clock))(t)
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
}

// The suite and the walk run as a user that may do what the documentation says a
// client needs, and nothing else.
func TestConformanceRedis(t *testing.T) {
	t.Parallel()
	storetest.Run(t, opener(leastURL(t, redistest.Start(t), "t*:*", "scan"))) // for Budgets alone
}

// Miniredis runs the same scripts ten times as slowly. Unless the effort is full, the tests
// that make thousands of calls run on the real server alone.
func TestConformanceMiniredis(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	long := []string{"HoldsOnTime", "I6TrueTime", "I7ManyOperations", "SharesCrowded"}
	storetest.Run(t, opener("redis://"+miniredis.RunT(t).Addr()), effort.Of(long, long, nil)...)
}

func TestWalkRedis(t *testing.T) {
	t.Parallel()
	storetest.Walk(t, opener(leastURL(t, redistest.Start(t), "t*:*", "")), 30_000)
}

func TestWalkMiniredis(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	storetest.Walk(t, opener("redis://"+miniredis.RunT(t).Addr()), effort.Of(500, 500, 4000))
}

func TestSoak(t *testing.T) {
	t.Parallel()
	storetest.Soak(t, opener(redistest.Start(t).URL(0)), 60)
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	storetest.Processes(t, shared(redistest.Start(t, "--appendonly", "yes")))
}

// shared is a server's databases, one a test.
func shared(s *redistest.Server) storetest.Shared {
	db := -1
	return storetest.Shared{
		Address: func(testing.TB) string {
			db++
			return s.URL(db)
		},
		Open: func(ctx context.Context, address string) (storetest.Store, error) {
			return redisstore.Open(ctx, address, redisstore.Options{Timeout: patient})
		},
	}
}

// With a few steps a run everything is interrupted and goes on: expiry, the
// building of windows and the walks of refusals.
func TestWalkFewSteps(t *testing.T) {
	t.Parallel()
	open := opener(redistest.Start(t).URL(0))
	storetest.Walk(t, func(t testing.TB, clock func() int64) storetest.Store {
		store := open(t, clock)
		store.(*redisstore.Store).SetMaxSteps(3)
		return store
	}, effort.Of(1000, 1000, 10_000)) // each step takes many runs
}

// A batch that takes several runs notes its caller's share table in the first alone: the
// later ones decide microseconds later, when a table's minute may have come.
func TestManyRunsNoteOnce(t *testing.T) {
	t.Parallel()
	now := int64(1_800_000_000_000_000)
	store := opener(redistest.Start(t).URL(0))(t, func() int64 { return now })
	store.(*redisstore.Store).SetMaxSteps(1)
	limits := []limit.Limit{{Name: "w", Counts: limit.CountUnits, Limit: 100, Window: limit.RollingWindow(time.Minute)}}
	batch := driver.Batch{Budget: "b/k", Now: now, Limits: limits, Table: driver.ShareTable{Host: "a", Digest: "x"}}
	charge := func() {
		t.Helper()
		batch.Now, batch.Items = now, nil
		for i := range 5 {
			batch.Items = append(batch.Items, driver.Item{ID: fmt.Sprint("c", now, i), Operation: fmt.Sprint("op", i), Units: 1})
		}
		for _, d := range must.Get(store.Decide(t.Context(), batch))(t).Items {
			must.Equal(t, d.Result, driver.Granted, "charged")
		}
	}
	noon := now
	charge()
	now += driver.TableRenewed - 3
	charge() // until after the table's minute
	view := must.Get(store.Look(t.Context(), driver.Look{Budget: batch.Budget, Now: now, Limits: limits}))(t)
	check.EqualSlices(t, view.Tables, driver.NotedTables{{ShareTable: batch.Table, First: noon, Last: noon}}, "tables")
}

// Batches that come at the same time are taken in turns, some items each.
func TestSoakFewSteps(t *testing.T) {
	t.Parallel()
	open := opener(redistest.Start(t).URL(0))
	storetest.Soak(t, func(t testing.TB, clock func() int64) storetest.Store {
		store := open(t, clock)
		store.(*redisstore.Store).SetMaxSteps(100)
		return store
	}, 60)
}
