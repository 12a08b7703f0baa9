package sqlitestore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// killOrders are for a process that charges until it is killed.
type killOrders struct {
	Path string
	Name string // opens its ids
	Seed uint64
}

// killLimits are what the killed processes charge against, none of it ever
// exhausted.
func killLimits() []limit.Limit {
	return []limit.Limit{
		{Name: "exact", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
		{Name: "searches", Limit: limit.MaxUnits, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Hour), Operations: []string{"search"}},
	}
}

// killGoroutines are so many in each process.
const killGoroutines = 2

// chargeUntilKilled charges and settles, and prints each answer once it has it.
func chargeUntilKilled(orders string) error {
	var o killOrders
	if err := json.Unmarshal([]byte(orders), &o); err != nil {
		return err
	}
	ctx := context.Background()
	store, err := sqlitestore.Open(ctx, o.Path, sqlitestore.Options{Timeout: patience})
	if err != nil {
		return err
	}
	failed := make(chan error)
	for g := range killGoroutines {
		go func() {
			random := rand.New(rand.NewPCG(o.Seed, uint64(g)))
			for i := 0; ; i++ {
				if err := killCharge(ctx, store, random, fmt.Sprintf("%s-%d-%d", o.Name, g, i)); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

// killCharge makes one charge, or a reservation that it settles.
func killCharge(ctx context.Context, store *sqlitestore.Store, random *rand.Rand, id string) error {
	now := time.Now().UnixMicro()
	i := driver.Item{ID: id, Operation: []string{"list", "search"}[random.IntN(2)], Units: random.Int64N(5)}
	reserves := random.IntN(4) == 0
	if reserves {
		i.Lease = hour
	}
	got, err := store.Decide(ctx, driver.Batch{Budget: name, Now: now, Limits: killLimits(), Items: []driver.Item{i}})
	if err != nil {
		return err
	}
	if d := got.Items[0]; d.Result != driver.Granted || d.Replayed {
		return fmt.Errorf("charge %s: %+v", id, d)
	}
	if err := say("%s %s %d %d", id, i.Operation, i.Units, i.Lease); err != nil || !reserves {
		return err
	}
	actual := random.Int64N(9)
	done, err := driver.FinishOne(ctx, store, name, now, driver.Finish{ID: id, Units: actual})
	if err != nil {
		return err
	}
	if done.Result != driver.Settled {
		return fmt.Errorf("settle %s: %+v", id, done)
	}
	return say("%s settled %d", id, actual)
}

// acknowledgements are the answers that killed processes got before they died.
type acknowledgements struct {
	mu      sync.Mutex // guards all below
	charged []driver.Item
	settled map[string]int64
}

func (a *acknowledgements) take(line string) error {
	var i driver.Item
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.Contains(line, " settled ") {
		var units int64
		if _, err := fmt.Sscanf(line, "%s settled %d", &i.ID, &units); err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
		a.settled[i.ID] = units
		return nil
	}
	if _, err := fmt.Sscanf(line, "%s %s %d %d", &i.ID, &i.Operation, &i.Units, &i.Lease); err != nil {
		return fmt.Errorf("line %q: %w", line, err)
	}
	a.charged = append(a.charged, i)
	return nil
}

// killOne starts a process and kills it: after so many answers, or for none after
// the pause, while it opens the file.
func killOne(t *testing.T, o killOrders, answers int, pause time.Duration, told *acknowledgements) error {
	cmd := helper(t, "kill", o)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(out)
	dead := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }) // it hangs
	defer dead.Stop()
	for n := 0; ; n++ {
		if n == answers {
			if n == 0 {
				<-time.After(pause)
			}
			if err := cmd.Process.Kill(); err != nil {
				return fmt.Errorf("%s ended before it was killed: %w: %s", o.Name, err, stderr.String())
			}
		}
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			break
		}
		if err == nil {
			err = told.take(strings.TrimSuffix(line, "\n"))
		}
		if err != nil {
			return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
	}
	_ = cmd.Wait() // how it ended is looked at
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL || !dead.Stop() {
		return fmt.Errorf("%s was not killed as wanted: %s: %s", o.Name, cmd.ProcessState, stderr.String())
	}
	return nil
}

// I5: nothing that was acknowledged is missing after 200 kills (60 but in full) of processes that
// share the file, four at a time, and the ledger's parts agree.
func TestKilledTwoHundredTimes(t *testing.T) {
	effort.Processes(t)
	t.Parallel()
	const processes = 4
	kills := effort.Of(60, 100, 200)
	seed := effort.Seed(t)
	path := filepath.Join(t.TempDir(), "q.db")
	told := &acknowledgements{settled: map[string]int64{}}
	var all sync.WaitGroup
	for p := range processes {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(p)))
			for k := range kills / processes {
				answers := random.IntN(40)
				if k%10 == 0 {
					answers = 0
				}
				pause := time.Duration(random.Int64N(int64(80 * time.Millisecond)))
				if err := killOne(t, killOrders{path, fmt.Sprint(p, "-", k), random.Uint64()}, answers, pause, told); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	must.Equal(t, query[string](t, path, "PRAGMA integrity_check"), "ok", "integrity_check")
	if len(told.charged) < 10*kills || len(told.settled) < kills {
		t.Fatalf("only %d charges and %d settlements were acknowledged: the test shows little", len(told.charged), len(told.settled))
	}
	told.allThere(t, path)
	told.sumsAgree(t, path, kills*killGoroutines)
}

// allThere wants each acknowledged charge to be a replay, and each settlement.
func (a *acknowledgements) allThere(t *testing.T, path string) {
	t.Helper()
	store := must.Get(sqlitestore.Open(t.Context(), path, sqlitestore.Options{Timeout: patience}))(t)
	defer func() { _ = store.Close() }()
	for from := 0; from < len(a.charged); from += driver.MaxBatch {
		items := a.charged[from:min(len(a.charged), from+driver.MaxBatch)]
		got := must.Get(store.Decide(t.Context(), driver.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: killLimits(), Items: items}))(t)
		for i, d := range got.Items {
			if d.Result != driver.Granted || !d.Replayed || d.Units != items[i].Units {
				t.Fatalf("acknowledged charge %+v of a killed process is lost: %+v", items[i], d)
			}
		}
	}
	for id, units := range a.settled {
		got, err := driver.FinishOne(t.Context(), store, name, time.Now().UnixMicro(), driver.Finish{ID: id, Units: units})
		if err != nil || got.Result != driver.Settled || !got.Replayed {
			t.Fatalf("acknowledged settlement of %s at %d is lost: %+v, %v", id, units, got, err)
		}
	}
}

// sumsAgree holds the totals against the entries, and the entries against what was
// acknowledged: a process leaves at most as many unacknowledged as may be under
// way.
func (a *acknowledgements) sumsAgree(t *testing.T, path string, underWay int) {
	t.Helper()
	store := must.Get(sqlitestore.Open(t.Context(), path, sqlitestore.Options{}))(t)
	view, err := store.Look(t.Context(), driver.Look{Budget: name, Now: time.Now().UnixMicro(), Limits: killLimits()})
	must.Do(t, errors.Join(err, sqlitestore.WriteOut(store, name), store.Close()))
	entries, units := query[int](t, path, "SELECT count(*) FROM entry"), query[int64](t, path, "SELECT sum(units) FROM entry")
	searches := query[int64](t, path, "SELECT count(*) FROM entry JOIN operation o ON o.b = entry.b AND o.no = entry.lane / 4 AND o.name = 'search'")
	if view.Limits[0].Used != units || view.Limits[1].Used != searches {
		t.Errorf("the limits show %d units and %d searches, the ledger holds %d and %d", view.Limits[0].Used, view.Limits[1].Used, units, searches)
	}
	if n, sum := query[int](t, path, "SELECT n FROM budget"), query[int64](t, path, "SELECT units FROM budget"); n != entries || sum != units {
		t.Errorf("the budget keeps %d entries of %d units, there are %d of %d", n, sum, entries, units)
	}
	const counted = "FROM entry e WHERE e.b = t.b AND e.lane = t.lane AND e.score > t.cut AND e.score <= t.built"
	if wrong := query[int](t, path, "SELECT count(*) FROM total t WHERE t.units <> (SELECT coalesce(sum(e.units), 0) "+counted+
		") OR t.calls <> (SELECT coalesce(sum(e.calls), 0) "+counted+")"); wrong != 0 {
		t.Errorf("%d totals are not the sum of their entries", wrong)
	}
	if more := entries - len(a.charged); more < 0 || more > underWay {
		t.Errorf("%d entries for %d acknowledged charges: want those, and at most %d that were under way", entries, len(a.charged), underWay)
	}
	t.Logf("%d charges of %d units, %d of them acknowledged, %d settlements", entries, units, len(a.charged), len(a.settled))
}
