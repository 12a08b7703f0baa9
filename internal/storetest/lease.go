package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// leaseSpan is that of the children's leases: longer than a test, on any machine.
const leaseSpan = time.Hour

// takes has a child take single units from a lease, with several goroutines, until it is
// refused. It prints each take with an instant just before it.
func takes(ctx context.Context, b *budget.Budget, o orders) error {
	l, err := b.Lease(ctx, budget.Call{Operation: "op", Labels: budget.Labels{Job: o.Name, Run: o.Name}}, o.Lease, leaseSpan)
	if errors.Is(err, budget.ErrExhausted) { // the others were faster
		return nil
	}
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	failed := make(chan error, o.Goroutines)
	for g := range o.Goroutines {
		all.Go(func() {
			for i := 0; ; i++ {
				at := time.Now()
				err := l.Take(ctx, 1)
				if errors.Is(err, budget.ErrExhausted) {
					return
				}
				if err != nil {
					failed <- err
					return
				}
				fmt.Printf("%s-%d-%d@%d\n", o.Name, g, i, at.UnixMicro())
			}
		})
	}
	all.Wait()
	close(failed)
	return errors.Join(<-failed, l.Close(ctx))
}

// I1: processes with leases on one budget take exactly the limit, and the ledger has what each
// took.
func testLeasesOfProcesses(t *testing.T, shared Shared) {
	const most = 20_000
	address := shared.Address(t)
	var children []*child
	for i := range 4 {
		children = append(children, start(t, orders{Address: address, Limit: most, Name: fmt.Sprint("l", i), Goroutines: 4, Lease: int64(100 + 37*i)}))
	}
	taken := map[string]int64{}
	sum := int64(0)
	for i, c := range children {
		name := fmt.Sprint("l", i)
		for c.lines.Scan() {
			taken[name]++
			sum++
		}
		if err := c.cmd.Wait(); err != nil {
			t.Fatalf("a process failed: %v: %s", err, c.stderr.String())
		}
	}
	t.Logf("taken per process: %v", taken)
	must.Equal(t, sum, most, "four processes took … units")
	must.Equal(t, sharedUsed(t, shared, address, most), most, "the ledger has … units")
	store := must.Get(shared.Open(context.Background(), address))(t)
	defer func() { _ = store.Close() }()
	spent := must.Get(store.Spent(context.Background(), driver.SpentQuery{Budget: sharedBudget, Now: time.Now().UnixMicro(), By: driver.ByJob}))(t)
	for _, row := range spent.Rows {
		must.Equal(t, row.Units, taken[row.Name], "the ledger has for ", row.Name)
	}
}

// I5: what a process took from a lease stays charged when it is killed with SIGKILL; so does
// what the lease had left.
func testLeaseKilled(t *testing.T, shared Shared) {
	const most, units = 1_000_000, 5000
	address := shared.Address(t)
	c := start(t, orders{Address: address, Limit: most, Name: "killed", Goroutines: 4, Lease: units})
	n := int64(0)
	for ; n < 700 && c.lines.Scan(); n++ {
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatalf("kill: %v: %s", err, c.stderr.String())
	}
	for c.lines.Scan() {
		n++
	}
	_ = c.cmd.Wait() // killed, as wanted
	used := sharedUsed(t, shared, address, most)
	if n < 700 || used < n || used > n+2*units {
		t.Fatalf("%d units were taken, and the ledger has %d: want them, and what a lease or two had left", n, used)
	}
}

// A lock stops the takes of another process within a second.
func testLockStopsLeases(t *testing.T, shared Shared) {
	const most = 1_000_000_000
	address := shared.Address(t)
	c := start(t, orders{Address: address, Limit: most, Name: "locked", Goroutines: 2, Lease: most / 10})
	last := int64(0)
	scan := func() bool {
		if !c.lines.Scan() {
			return false
		}
		_, at, _ := strings.Cut(c.lines.Text(), "@")
		last = max(last, must.Get(strconv.ParseInt(at, 10, 64))(t))
		return true
	}
	for range 1000 {
		must.Equal(t, scan(), true, c.stderr.String())
	}
	store := must.Get(shared.Open(context.Background(), address))(t)
	b := must.Get(budget.New(store, sharedSpec(most), budget.WithClosers(store)))(t)
	defer func() { _ = b.Close() }()
	must.Get(b.Lock(context.Background(), budget.LockOrder{Until: budget.Until{After: time.Hour}, ByHand: true}))(t)
	locked := time.Now().UnixMicro()
	for scan() {
	}
	must.Do(t, c.cmd.Wait())
	if after := time.Duration(last-locked) * time.Microsecond; after > time.Second {
		t.Errorf("the last take was made %s after the lock", after)
	}
}

// AwaitNewCharge takes nothing, again and again, until a lease has charged anew since first. It
// fails if a take that begins a second later is still made from first. Takes may fail with
// allowed. A machine under load may not have looked within the second: then the take has to.
func AwaitNewCharge(t testing.TB, looks *Looks, l *budget.Lease, first budget.Receipt, allowed error) {
	t.Helper()
	late := time.Now().Add(time.Second)
	for l.Receipt().ID == first.ID {
		select {
		case <-looks.Looked():
		case <-time.After(time.Until(late)):
		}
		over := time.Now().After(late)
		err := l.Take(t.Context(), 0)
		switch {
		case err != nil && !errors.Is(err, allowed):
			t.Fatal(err)
		case err == nil && over && l.Receipt().ID == first.ID:
			t.Fatal("after a second the lease still hands out what it had charged")
		}
	}
}

// After a reset a lease hands out nothing of what it charged before, whatever windows show
// the reset.
func testResetStopsLeases(t *testing.T, shared Shared) {
	day := limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t))
	for name, window := range map[string]limit.Window{
		"rolling": limit.RollingWindow(time.Hour), "short": limit.RollingWindow(time.Millisecond),
		"calendar": day, "bucket": limit.BucketWindow(must.Get(limit.NewRefill(1, time.Hour))(t)),
	} {
		address := shared.Address(t)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			store := must.Get(shared.Open(ctx, address))(t)
			spec := sharedSpec(1000)
			spec.Limits[0].Window = window
			looks := TellLooks(store)
			b := must.Get(budget.New(looks, spec, budget.WithClosers(store)))(t)
			defer func() { _ = b.Close() }()
			l := must.Get(b.Lease(ctx, budget.Call{Operation: "op"}, 400, leaseSpan))(t)
			must.Do(t, l.Take(ctx, 1))
			first := l.Receipt()
			must.Get(driver.Apply(ctx, store, driver.Reset{Budget: sharedBudget}))(t)
			must.Get(b.Charge(ctx, budget.Call{Operation: "op"}))(t)
			AwaitNewCharge(t, looks, l, first, nil)
			must.Do(t, l.Close(ctx))
		})
	}
}
