package storetest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// Shared is a store that several processes may share by its address.
type Shared struct {
	// Address makes a fresh, empty store for the test.
	Address func(t testing.TB) string
	// Open opens it, in this or another process, with its real clock.
	Open func(ctx context.Context, address string) (Store, error)
}

// childVariable contains a child's orders.
const childVariable = "QUOTACTL_STORETEST_CHILD"

// orders say what a child process does: charge from several goroutines until the budget
// is exhausted, and print each id that was acknowledged. With Lease, the units of a lease's
// charges, it takes from a lease instead; with Hold it has passes that hold.
type orders struct {
	Address    string
	Limit      int64
	Name       string
	Goroutines int
	Lease      int64
	Hold       bool
}

// Main runs a package's tests or, in a process that [Processes] started, that process's
// charges. Call it from TestMain.
func Main(m *testing.M, shared Shared) {
	text, isChild := os.LookupEnv(childVariable)
	if !isChild {
		os.Exit(m.Run())
	}
	if err := charges(shared, text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const sharedBudget = "up/shared"

// patience is the timeout of calls that are to be answered, however busy the machine is.
const patience = 5 * time.Minute

func sharedSpec(most int64) budget.Spec {
	return budget.Spec{
		Name: sharedBudget, Limits: []limit.Limit{rolling("w", most, time.Hour)},
		Costs: map[string]budget.Cost{"op": {Units: 1}}, Timeout: patience,
	}
}

// charges is the main function of a child.
func charges(shared Shared, text string) error {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx := context.Background()
	store, err := shared.Open(ctx, o.Address)
	if err != nil {
		return err
	}
	spec := sharedSpec(o.Limit)
	if o.Hold {
		spec = holdSpec()
	}
	b, err := budget.New(store, spec, budget.WithClosers(store))
	if err != nil {
		return err
	}
	if o.Hold {
		return errors.Join(holdsOn(ctx, b, o), b.Close())
	}
	if o.Lease > 0 {
		return errors.Join(takes(ctx, b, o), b.Close())
	}
	var all sync.WaitGroup
	failed := make(chan error, o.Goroutines)
	for g := range o.Goroutines {
		all.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%s-%d-%d", o.Name, g, i)
				_, err := b.Charge(ctx, budget.Call{Operation: "op", ID: id})
				if errors.Is(err, budget.ErrExhausted) {
					return
				}
				if err != nil {
					failed <- err
					return
				}
				fmt.Println(id) // one write, after the store has acknowledged
			}
		})
	}
	all.Wait()
	close(failed)
	return errors.Join(<-failed, b.Close())
}

// child is a started process.
type child struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr strings.Builder
}

func start(t *testing.T, o orders) *child {
	t.Helper()
	text := must.Get(json.Marshal(o))(t)
	c := &child{cmd: exec.Command(os.Args[0], "-test.run=^$")}
	c.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	c.cmd.Stderr = &c.stderr
	out := must.Get(c.cmd.StdoutPipe())(t)
	c.lines = bufio.NewScanner(out)
	must.Do(t, c.cmd.Start())
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

// Processes checks what only several processes on one store can show.
func Processes(t *testing.T, shared Shared) {
	effort.Processes(t)
	t.Run("I1EightProcesses", func(t *testing.T) { testEightProcesses(t, shared) })
	t.Run("I5Killed", func(t *testing.T) { testKilled(t, shared) })
	t.Run("I1Leases", func(t *testing.T) { testLeasesOfProcesses(t, shared) })
	t.Run("I5LeaseKilled", func(t *testing.T) { testLeaseKilled(t, shared) })
	t.Run("HoldsKilled", func(t *testing.T) { testHoldsKilled(t, shared) })
	t.Run("ResetStopsLeases", func(t *testing.T) { testResetStopsLeases(t, shared) })
	t.Run("LockStopsLeases", func(t *testing.T) { testLockStopsLeases(t, shared) })
}

// I1: eight processes on one budget grant exactly the limit.
func testEightProcesses(t *testing.T, shared Shared) {
	const limit = 1000
	address := shared.Address(t)
	var children []*child
	for i := range 8 {
		children = append(children, start(t, orders{Address: address, Limit: limit, Name: fmt.Sprint("p", i), Goroutines: 4, Lease: 0}))
	}
	acknowledged := map[string]bool{}
	var each []int
	for _, c := range children {
		n := 0
		for ; c.lines.Scan(); n++ {
			if id := c.lines.Text(); acknowledged[id] {
				t.Errorf("id %s was granted twice", id)
			}
			acknowledged[c.lines.Text()] = true
		}
		each = append(each, n)
		if err := c.cmd.Wait(); err != nil {
			t.Fatalf("a process failed: %v: %s", err, c.stderr.String())
		}
	}
	t.Logf("granted per process: %v", each)
	must.Equal(t, len(acknowledged), limit, "eight processes were granted … units")
	must.Equal(t, sharedUsed(t, shared, address, limit), limit, "the ledger has … units")
}

// I5: charges that were acknowledged to a process stay when it is killed with SIGKILL.
func testKilled(t *testing.T, shared Shared) {
	const limit = 1_000_000
	address := shared.Address(t)
	var acknowledged []string
	for round := range 4 {
		c := start(t, orders{Address: address, Limit: limit, Name: fmt.Sprint("k", round), Goroutines: 4, Lease: 0})
		for n := 0; n < 50+37*round && c.lines.Scan(); n++ {
			acknowledged = append(acknowledged, c.lines.Text())
		}
		if err := c.cmd.Process.Kill(); err != nil {
			t.Fatalf("kill: %v: %s", err, c.stderr.String())
		}
		for c.lines.Scan() { // what it had printed before it died
			acknowledged = append(acknowledged, c.lines.Text())
		}
		_ = c.cmd.Wait() // killed, as wanted
	}
	if len(acknowledged) < 200 {
		t.Fatalf("only %d charges were acknowledged; the test shows nothing", len(acknowledged))
	}
	store := must.Get(shared.Open(context.Background(), address))(t)
	b := must.Get(budget.New(store, sharedSpec(limit), budget.WithClosers(store)))(t)
	defer func() { _ = b.Close() }()
	for _, id := range acknowledged {
		receipt, err := b.Charge(context.Background(), budget.Call{Operation: "op", ID: id})
		if err != nil || !receipt.Replayed {
			t.Fatalf("acknowledged charge %s of a killed process is lost: %+v, %v", id, receipt, err)
		}
	}
	if used := sharedUsed(t, shared, address, limit); used < int64(len(acknowledged)) {
		t.Fatalf("the ledger has %d units, fewer than the %d acknowledged", used, len(acknowledged))
	}
}

func sharedUsed(t *testing.T, shared Shared, address string, limit int64) int64 {
	t.Helper()
	store := must.Get(shared.Open(context.Background(), address))(t)
	defer func() { _ = store.Close() }()
	view := must.Get(store.Look(context.Background(), driver.Look{Budget: sharedBudget, Now: time.Now().UnixMicro(), Limits: sharedSpec(limit).Limits}))(t)
	return view.Limits[0].Used
}
