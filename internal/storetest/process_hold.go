package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

const (
	// heldUnits is what each pass holds, heldAtOnce how many passes can: more are under way.
	heldUnits, heldAtOnce = 10, 4
	// heldLease is the lease of the holds.
	heldLease = time.Second
)

// holdSpec is a budget that a few passes hold entirely, and whose units return soon; all
// counts what was ever charged.
func holdSpec() budget.Spec {
	return budget.Spec{
		Name: sharedBudget, Limits: []limit.Limit{rolling("short", heldAtOnce*heldUnits, 300*time.Millisecond), rolling("all", 1_000_000, time.Hour)},
		Costs: map[string]budget.Cost{"op": {Units: 1}}, Timeout: patience,
	}
}

// holdsOn has goroutines begin pass after pass that holds units, draws from them and ends, until
// the process is killed. It prints the id of each charge that was acknowledged.
func holdsOn(ctx context.Context, b *budget.Budget, o orders) error {
	var all sync.WaitGroup
	failed := make(chan error, o.Goroutines)
	for g := range o.Goroutines {
		all.Go(func() {
			for n := int64(1); ; n++ {
				if err := holdOnce(ctx, b, o.Name, int64(g)*1_000_000+n); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	err := <-failed
	all.Wait()
	return err
}

// holdOnce is one pass.
func holdOnce(ctx context.Context, b *budget.Budget, job string, number int64) error {
	call := budget.Call{Operation: "op", Fence: number, Labels: budget.Labels{Job: job}}
	refused := func(err error) bool {
		var refused *budget.RefusedError
		if !errors.As(err, &refused) || !errors.Is(err, budget.ErrExhausted) {
			return false
		}
		<-time.After(min(refused.RetryAfter, 20*time.Millisecond))
		return true
	}
	_, err := b.Hold(ctx, budget.Call{Fence: number, Labels: call.Labels}, []budget.Need{{Operation: "op", Units: heldUnits, Calls: heldUnits}}, 0, heldLease)
	if err != nil {
		if refused(err) {
			return nil
		}
		return err
	}
	for range rand.IntN(2 * heldUnits) {
		units := rand.Int64N(3)
		call.ID, call.Units = fmt.Sprintf("%s-%d-%d", job, number, rand.Int64()), &units
		switch rand.IntN(5) {
		case 0:
			r, err := b.Reserve(ctx, call, heldLease)
			switch {
			case refused(err):
			case err != nil:
				return err
			case rand.IntN(2) == 0:
				err = r.Release(ctx)
			default:
				fmt.Println(call.ID)
				err = r.Settle(ctx, rand.Int64N(units+1)) // never up: that would pass the limit
			}
			if err != nil && !refused(err) && !errors.Is(err, budget.ErrExpired) { // a busy machine
				return err
			}
		case 1:
			if _, err := b.RenewHolds(ctx, job, number, heldLease); err != nil {
				return err
			}
		default:
			_, err := b.Charge(ctx, call)
			if err == nil {
				fmt.Println(call.ID)
			} else if !refused(err) {
				return err
			}
		}
	}
	if rand.IntN(4) == 0 { // its hold ends with its lease
		return nil
	}
	_, err = b.EndHold(ctx, job, number, "")
	return err
}

// Processes that hold are killed with SIGKILL: at no instant are their units counted beside what
// they have drawn, at most the lease later nothing of theirs is held, and what was acknowledged
// stays, each charge once.
func testHoldsKilled(t *testing.T, shared Shared) {
	w := &holdWatch{t: t, acknowledged: map[string]bool{}, killed: map[string]int64{}}
	address := shared.Address(t)
	w.store = must.Get(shared.Open(t.Context(), address))(t)
	defer func() { _ = w.store.Close() }()
	kills := effort.Of(3, 4, 60)
	begin := func(n int) *child {
		return start(t, orders{Address: address, Name: fmt.Sprint("h", n), Goroutines: 3, Hold: true})
	}
	children := []*child{begin(0), begin(1), begin(2)}
	for n := range kills + len(children) {
		c := children[0]
		children = children[1:]
		if n < kills {
			children = append(children, begin(n+3))
		}
		for read := 0; read < 20+rand.IntN(40) && c.lines.Scan(); read++ {
			w.acknowledged[c.lines.Text()] = true
			w.look()
		}
		if err := c.cmd.Process.Kill(); err != nil {
			t.Fatalf("kill: %v: %s", err, c.stderr.String())
		}
		for c.lines.Scan() { // what it had printed before it died
			w.acknowledged[c.lines.Text()] = true
		}
		_ = c.cmd.Wait() // killed, as wanted
		must.Equal(t, c.stderr.String(), "", "what a process said")
		w.look() // is answered when the store has carried out all that the process had sent
		w.killed[fmt.Sprint("h", n)] = w.look().Now
	}
	for len(w.look().Holds) > 0 {
		<-time.After(10 * time.Millisecond)
	}
	w.settled()
	t.Logf("%d kills, %d looks, of which %d at holds and %d where no other pass could hold; %d charges", kills+3, w.looks, w.seen, w.full, len(w.acknowledged))
	if w.seen == 0 || w.full == 0 {
		t.Error("no hold was seen, or none was in the way of another: the test shows nothing")
	}
}

// holdWatch looks at the ledger of processes that hold and are killed.
type holdWatch struct {
	t            *testing.T
	store        Store
	acknowledged map[string]bool
	killed       map[string]int64 // when a process was dead, by its name
	looks        int
	seen, full   int // looks at holds, and at a limit in which no other pass can hold
	entries      map[string]int64
}

// look fails if anything is counted twice, or held that must have ended.
func (w *holdWatch) look() driver.View {
	w.t.Helper()
	limits := holdSpec().Limits
	view := must.Get(w.store.Look(w.t.Context(), driver.Look{Budget: sharedBudget, Now: time.Now().UnixMicro(), Limits: limits}))(w.t)
	w.looks++
	if len(view.Holds) > 0 {
		w.seen++
	}
	for i, l := range limits {
		sum := view.Limits[i].Used
		for _, h := range view.Holds {
			sum += h.Amount(l)
		}
		if sum > l.Limit {
			w.t.Fatalf("%s has used %d and held %+v of %d", l.Name, view.Limits[i].Used, view.Holds, l.Limit)
		}
		if i == 0 && sum > l.Limit-heldUnits {
			w.full++
		}
	}
	for _, h := range view.Holds {
		if dead, is := w.killed[h.Job]; is && h.Until > dead+heldLease.Microseconds() {
			w.t.Fatalf("%s was dead at %d, and holds until %d", h.Job, dead, h.Until)
		}
		if left := h.Left[0]; left.Units < 0 || left.Units > heldUnits || left.Calls < 0 || left.Calls > heldUnits {
			w.t.Fatalf("a hold of %d has %+v left", heldUnits, left)
		}
	}
	return view
}

// settled compares what the ledger has used with its entries, and these with what was
// acknowledged; and holds all that there is.
func (w *holdWatch) settled() {
	w.t.Helper()
	w.entries = map[string]int64{}
	used := w.look().Limits[1].Used
	must.Do(w.t, w.store.Export(w.t.Context(), driver.Export{Budget: sharedBudget, Now: time.Now().UnixMicro()}, w))
	sum := int64(0)
	for _, units := range w.entries {
		sum += units
	}
	check.Equal(w.t, used, sum, "used, and the sum of the entries")
	for id := range w.acknowledged {
		if _, kept := w.entries[id]; !kept {
			w.t.Errorf("the acknowledged charge %s is lost", id)
		}
	}
	b := must.Get(budget.New(w.store, holdSpec()))(w.t)
	needs := []budget.Need{{Operation: "op", Units: heldAtOnce * heldUnits, Calls: 1}}
	for {
		_, err := b.Hold(w.t.Context(), budget.Call{Fence: 1, Labels: budget.Labels{Job: "last"}}, needs, 0, heldLease)
		var refused *budget.RefusedError
		if !errors.As(err, &refused) {
			must.Do(w.t, err)
			return
		}
		<-time.After(refused.RetryAfter)
	}
}

// Head and Row take the entries of an export.
func (w *holdWatch) Head(driver.LedgerHead) error { return nil }

func (w *holdWatch) Row(row driver.Row) error {
	if row.State == driver.RowHistory {
		return nil
	}
	if _, twice := w.entries[row.ID]; twice || strings.HasPrefix(row.ID, " ") {
		return fmt.Errorf("entry %s is there twice, or nobody's", row.ID)
	}
	w.entries[row.ID] = row.Units
	if row.State == driver.RowReleased {
		w.entries[row.ID] = 0
	}
	return nil
}
