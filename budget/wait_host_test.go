package budget_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// crowd is the processes of a host: each has a budget of its own, on one store.
type crowd struct {
	t      *testing.T
	dir    string
	store  driver.Store
	limits []limit.Limit
	served chan budget.Receipt
	failed chan error
	began  time.Time
}

// newCrowd has ten units each ten seconds, of which nine were spent at once, one a second before.
func newCrowd(t *testing.T, limits ...limit.Limit) *crowd {
	if limits == nil {
		limits = []limit.Limit{{Name: "ten", Limit: 10, Counts: limit.CountUnits, Window: limit.RollingWindow(10 * time.Second)}}
	}
	return &crowd{t: t, dir: t.TempDir(), store: memstore.New(clock), limits: limits, served: make(chan budget.Receipt, 1000), failed: make(chan error, 1000), began: time.Now()}
}

func (c *crowd) process() *budget.Budget {
	c.t.Helper()
	b := must.Get(budget.New(c.store, budget.Spec{
		Name: "shop/main", Costs: map[string]budget.Cost{"get": {Units: 1}, "other": {Units: 1}}, Limits: c.limits, WaitDir: c.dir,
	}))(c.t)
	c.t.Cleanup(func() { _ = b.Close() })
	return b
}

// wait waits in a process of its own, from now on.
func (c *crowd) wait(ctx context.Context, call budget.Call) {
	c.t.Helper()
	c.waitIn(ctx, c.process(), call)
}

func (c *crowd) waitIn(ctx context.Context, b *budget.Budget, call budget.Call) {
	time.Sleep(time.Microsecond) // no two come at one instant
	go func() {
		receipt, err := b.Wait(ctx, call)
		if err != nil {
			c.failed <- err
			return
		}
		c.served <- receipt
	}()
	synctest.Wait()
}

func (c *crowd) spend(units int64) {
	c.t.Helper()
	must.Get(c.process().Charge(c.t.Context(), of(units, "get", "")))(c.t)
}

func of(units int64, operation, id string) budget.Call {
	return budget.Call{Operation: operation, Units: &units, ID: id}
}

// order is who was served since it was asked last, in the order of the charges.
func (c *crowd) order() (ids []string) {
	var list []budget.Receipt
	for len(c.served) > 0 {
		list = append(list, <-c.served)
	}
	slices.SortFunc(list, func(a, b budget.Receipt) int { return a.At.Compare(b.At) })
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	return ids
}

func (c *crowd) files() []string {
	c.t.Helper()
	return must.Get(filepath.Glob(filepath.Join(c.dir, "*")))(c.t)
}

// A call of many units is not starved by small ones of other processes, and all are served in the
// order in which they came.
func TestWaitInOrderOverProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		for range 10 { // a unit returns each second
			c.spend(1)
			time.Sleep(time.Second)
		}
		c.spend(1) // what returned meanwhile
		c.wait(t.Context(), of(10, "get", "large"))
		want := []string{"large"}
		for i := range 68 {
			id := fmt.Sprint("small", i)
			c.wait(t.Context(), of(1, "get", id))
			want = append(want, id)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(3*time.Second + 200*time.Millisecond) // ten after the last charge
		check.EqualSlices(t, c.order(), []string{"large"}, "served once its units are there")
		time.Sleep(90 * time.Second)
		check.EqualSlices(t, append([]string{"large"}, c.order()...), want, "the order")
		check.Equal(t, len(c.files()), 0, "files that are left")
	})
}

// Units that return at one instant go one by one, and soon, to those that came first.
func TestWaitSpreadOverTheReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.spend(10)
		var want []string
		for i := range 10 {
			id := fmt.Sprint("call", i)
			c.wait(t.Context(), of(1, "get", id))
			want = append(want, id)
		}
		time.Sleep(time.Until(c.began.Add(10*time.Second - time.Microsecond)))
		check.Equal(t, len(c.order()), 0, "served too early")
		time.Sleep(200 * time.Millisecond)
		check.EqualSlices(t, c.order(), want, "the order")
	})
}

// One that waits for a limit which does not count the call, or for another budget, holds nobody
// up; neither does a lone waiter wait for anybody.
func TestWaitApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ten := limit.Limit{Name: "gets", Operations: []string{"get"}, Limit: 10, Counts: limit.CountUnits, Window: limit.RollingWindow(10 * time.Second)}
		all := limit.Limit{Name: "all", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(10 * time.Second)}
		c := newCrowd(t, all, ten)
		c.spend(10)
		c.wait(t.Context(), of(1, "get", "waits"))
		c.wait(t.Context(), of(1, "other", "goes"))
		check.EqualSlices(t, c.order(), []string{"goes"}, "of another limit")
		elsewhere := must.Get(budget.New(c.store, budget.Spec{Name: "shop/other", Costs: map[string]budget.Cost{"get": {}}, Limits: c.limits, WaitDir: c.dir}))(t)
		must.Get(elsewhere.Wait(t.Context(), budget.Call{Operation: "get"}))(t)
		time.Sleep(time.Until(c.began.Add(10*time.Second - time.Microsecond)))
		check.Equal(t, len(c.order()), 0, "served too early")
		time.Sleep(11 * time.Millisecond)
		check.EqualSlices(t, c.order(), []string{"waits"}, "at its instant")
	})
}

// A waiter whose deadline comes before the one ahead of it can be served fails at once, and says
// which limit the other waits for.
func TestWaitTooLongBehindAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.spend(9)
		c.wait(t.Context(), of(10, "get", "large"))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c.wait(ctx, of(1, "get", "small")) // its unit is there
		err := <-c.failed
		var refused *budget.RefusedError
		if !errors.As(err, &refused) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, budget.ErrExhausted) {
			t.Fatalf("it fails with %v", err)
		}
		check.Equal(t, refused.Limit, "ten", "the limit")
		check.Equal(t, refused.RetryAt, c.began.Add(10*time.Second).UTC(), "when the one ahead fits")
		check.Equal(t, time.Since(c.began), 2*time.Microsecond, "after")
		must.Get(c.process().Charge(t.Context(), of(1, "get", "plain")))(t) // a call that does not wait is in no line
	})
}

// A waiter that gives up, or whose process is killed, holds nobody up.
func TestWaitBehindTheGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.spend(9)
		ctx, cancel := context.WithCancel(t.Context())
		c.wait(ctx, of(10, "get", "large"))
		c.wait(t.Context(), of(1, "get", "small"))
		check.Equal(t, len(c.order()), 0, "served beside a waiter")
		cancel()
		time.Sleep(2 * time.Second)
		check.EqualSlices(t, c.order(), []string{"small"}, "once that has given up")

		ctx, cancel = context.WithCancel(t.Context())
		c.wait(ctx, of(10, "get", "killed"))
		file := c.files()[0]
		left := must.Get(os.ReadFile(file))(t)
		cancel()
		synctest.Wait()
		time.Sleep(10 * time.Second)
		must.Do(t, os.WriteFile(file, left, 0o600)) // as a killed process leaves it: not locked
		must.Do(t, os.WriteFile(filepath.Join(c.dir, "notes.txt"), nil, 0o600))
		c.wait(t.Context(), of(1, "get", "next"))
		check.EqualSlices(t, c.order(), []string{"next"}, "beside what is left")
		check.Equal(t, len(c.files()), 1, "files that are left", strings.Join(c.files(), " "))
	})
}

// Without a directory that can be written, waiters are served as those of several hosts are.
func TestWaitWithoutDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.dir = filepath.Join(c.dir, "file")
		must.Do(t, os.WriteFile(c.dir, nil, 0o600))
		c.spend(10)
		for i := range 5 {
			c.wait(t.Context(), of(2, "get", fmt.Sprint(i)))
		}
		time.Sleep(time.Until(c.began.Add(10*time.Second + 20*time.Millisecond)))
		check.Equal(t, len(c.order()), 5, "served at the instant")
	})
}

// A waiter of a process that was stopped holds nobody up once it is due and does not look again; until
// then, one that fails behind it does not say what is left.
func TestWaitBehindTheStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.spend(10)
		ctx, cancel := context.WithCancel(t.Context())
		c.wait(ctx, of(10, "get", "stopped"))
		path := c.files()[0]
		text := must.Get(os.ReadFile(path))(t)
		cancel()
		synctest.Wait()
		check.Equal(t, <-c.failed != nil, true, "it waits no more")
		must.Do(t, os.WriteFile(path, text, 0o600)) // its process has it locked, and writes no more
		file := must.Get(os.Open(path))(t)
		defer file.Close() //nolint:errcheck // it was only read
		must.Do(t, syscall.Flock(int(file.Fd()), syscall.LOCK_EX))

		impatient, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		c.wait(impatient, of(1, "get", "impatient"))
		c.wait(t.Context(), of(1, "get", "next"))
		c.wait(t.Context(), of(1, "get", "third"))
		time.Sleep(time.Until(c.began.Add(14*time.Second + 900*time.Millisecond)))
		check.Equal(t, len(c.order()), 0, "served as long as it may only be slow")
		err := <-c.failed
		must.Is(t, err, budget.ErrExhausted, "it fails")
		must.Is(t, err, context.DeadlineExceeded, "it fails")
		check.Equal(t, err.Error(), "charge shop/main get (1 unit): exhausted: a call ahead of it is due and was not served yet: context deadline exceeded")
		time.Sleep(time.Second)
		check.EqualSlices(t, c.order(), []string{"next", "third"}, "once it is known to be stopped")
		c.wait(t.Context(), of(1, "get", "later"))
		check.EqualSlices(t, c.order(), []string{"later"}, "at once")
	})
}

// A call that leaves units to more important ones, by a floor or in the headroom, holds none of these
// up, neither in its process nor on its host; nor does a call of another share.
func TestWaitBehindTheLessImportant(t *testing.T) {
	ten := limit.Limit{Name: "ten", Limit: 10, Quota: 12, Headroom: 2, Counts: limit.CountUnits, Window: limit.RollingWindow(10 * time.Second)}
	shared := ten
	shared.Shares = []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 4}, {Name: "daily", Jobs: []string{"daily"}, Guarantee: 4}}
	floor, plain, headroom := of(2, "get", "floor"), of(2, "get", "plain"), of(2, "get", "headroom")
	floor.Floor, headroom.UseHeadroom = 5, true
	nightly, daily := of(5, "get", "nightly"), of(2, "get", "daily")
	nightly.Labels.Job, daily.Labels.Job = "nightly", "daily"
	for _, one := range []struct {
		of          limit.Limit
		spent       int64
		ahead, call budget.Call
		goes        bool
	}{
		{ten, 5, floor, plain, true},
		{ten, 9, plain, headroom, true},
		{ten, 5, floor, headroom, true},
		{shared, 2, nightly, daily, true},
		{ten, 9, plain, floor, false},
		{ten, 11, headroom, plain, false},
		{ten, 9, plain, of(1, "get", "small"), false},
	} {
		for _, together := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, one.of)
				spent := of(one.spent, "get", "")
				spent.UseHeadroom = true
				must.Get(c.process().Charge(t.Context(), spent))(t)
				b := c.process()
				other := b
				if !together {
					other = c.process()
				}
				c.waitIn(t.Context(), b, one.ahead)
				must.Equal(t, len(c.order()), 0, one.ahead.ID, "waits")
				ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
				defer cancel()
				c.waitIn(ctx, other, one.call)
				check.Equal(t, len(c.order()) == 1, one.goes, one.call.ID, "goes, behind", one.ahead.ID, "together", together)
				time.Sleep(time.Minute)
				check.Equal(t, len(c.failed), 0, "that fail")
			})
		}
	}
}
