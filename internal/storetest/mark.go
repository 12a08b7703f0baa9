package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// vouch decides and looks with a mark.
func (w *world) vouch(mark driver.Mark, want error) driver.Decisions {
	w.t.Helper()
	_, err := w.store.Look(context.Background(), driver.Look{Budget: w.budget, Now: w.now, Limits: w.limits, Mark: mark})
	w.wantError(err, want)
	d, err := w.store.Decide(context.Background(), driver.Batch{Budget: w.budget, Now: w.now, Limits: w.limits, Mark: mark})
	w.wantError(err, want)
	return d
}

// tells is the mark that a look returns.
func (w *world) tells() driver.Mark {
	w.t.Helper()
	return w.look().Mark
}

// reportLoss reports a loss and returns the mark after it.
func (w *world) reportLoss(r driver.Recovery) driver.Mark {
	w.t.Helper()
	r.Budget, r.Now, r.Limits, r.At = w.budget, w.now, w.limits, w.now
	if r.Used == nil {
		r.Used = make([]int64, len(w.limits))
	}
	got := must.Get(driver.Apply(context.Background(), w.store, r))(w.t)
	return got.Mark
}

// A ledger has an id, which every answer contains. A ledger with another id, or with
// fewer changes, has lost something.
func testMark(t *testing.T, w *world) {
	refill := must.Get(limit.NewRefill(1, time.Hour))(t)
	w.limits = []limit.Limit{rolling("w", 100, 6*time.Hour), {Name: "b", Limit: 100, Counts: limit.CountUnits, Window: limit.BucketWindow(refill)}}
	must.Equal(t, w.tells().Ledger, "", "before the first charge a look tells")
	d := w.granted(item("a", "op", 10))
	first := w.tells()
	if first.Ledger == "" || first.ID != "a" || first.At != d.At || first.Seen != w.now {
		t.Fatalf("a look tells %+v, want a ledger whose newest charge is a of %d, seen at %d", first, d.At, w.now)
	}
	w.now += minute
	if again := w.vouch(first, nil).Mark; again.Ledger != first.Ledger || again.ID != "a" || again.Seen != w.now {
		t.Fatalf("a decision tells %+v, the look before it %+v", again, first)
	}
	if least := first.Seen + 100*hour; first.Kept < least || first.Kept > least+8*24*hour {
		t.Errorf("a ledger that counts up to %d is kept up to %d", least, first.Kept)
	}
	other, fewer := first, first
	other.Ledger, fewer.Changes = "other", first.Changes+1
	w.vouch(other, driver.ErrLost)
	w.vouch(fewer, driver.ErrLost)
	w.granted(lease(item("r", "op", 5), time.Minute))
	first = w.tells()
	w.finish(driver.Finish{ID: "r", Units: 7}, driver.Settled, false)
	if after := w.tells(); after.Changes <= first.Changes {
		t.Fatalf("after a settlement it has changed %d times, before it %d times", after.Changes, first.Changes)
	}
	before := w.tells()
	for _, change := range []struct {
		what string
		make func()
	}{
		{"a lock", func() { w.lock(driver.Lock{Until: w.now + minute}) }},
		{"its end by hand", func() { w.unlock("", true) }},
		{"a report", func() { w.report(driver.Report{Limit: "w", Used: 50}, 33, 33, w.now+6*hour) }},
		{"a report on a bucket", func() { w.report(driver.Report{Limit: "b", Used: 20}, 3, 3, 0) }},
	} {
		change.make()
		after := w.tells()
		if after.Changes <= before.Changes {
			t.Errorf("after %s it has changed %d times, before it %d times", change.what, after.Changes, before.Changes)
		}
		before = after
	}
	// A reset keeps the id: earlier marks are not missed, whichever ledger they are from.
	told := w.tells()
	must.Get(driver.Apply(context.Background(), w.store, driver.Reset{Budget: w.budget}))(t)
	if reset := w.vouch(told, nil).Mark; reset.Ledger != told.Ledger || reset.ID != "" {
		t.Fatalf("after a reset %+v, before it %+v", reset, told)
	}
	w.vouch(other, nil)
	other.Seen, other.Kept = w.now+1, w.now+1
	w.vouch(other, driver.ErrLost)
	other.Kept = w.now // it may have been dropped before this one was born
	w.vouch(other, nil)
	told.Seen, told.Kept, told.Changes = w.now+1, w.now+1, told.Changes+1 // rolled back
	w.vouch(told, driver.ErrLost)
	// On a ledger that does not exist. How long the other one was kept is judged without regard to
	// the present windows, and if it is not known, by how long older versions kept it.
	w.budget = "up/dropped"
	w.vouch(driver.Mark{Ledger: "other", Seen: w.now - minute, Kept: w.now}, nil)
	w.budget = "up/dropped-not"
	w.vouch(driver.Mark{Ledger: "other", Seen: w.now - 60*24*hour, Kept: w.now + 1}, driver.ErrLost)
	w.budget = "up/flushed"
	w.vouch(driver.Mark{Ledger: "other", Seen: w.now - 6*hour - driver.LedgerIdle}, nil)
	w.budget = "up/flushed-too"
	w.vouch(driver.Mark{Ledger: "other", Seen: w.now - 6*hour - driver.LedgerIdle + 1}, driver.ErrLost)
}

// A ledger that turns out to be rolled back gets a new id, once.
func testRolledBack(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, 6*time.Hour)}
	w.granted(item("a", "op", 10))
	was := w.tells()
	w.now += minute
	now := w.reportLoss(driver.Recovery{Mark: was, Gone: []string{"other", was.Ledger}, Used: []int64{30}, Host: "0a"})
	if now.Ledger == was.Ledger || w.used(0) != 30 {
		t.Fatalf("the ledger's id is %s, and was %s; used %d", now.Ledger, was.Ledger, w.used(0))
	}
	w.vouch(was, driver.ErrLost)
	if then := w.reportLoss(driver.Recovery{Mark: was, Gone: []string{was.Ledger}, Used: []int64{20}, Host: "1b"}); then.Ledger != now.Ledger || w.used(0) != 30 {
		t.Fatalf("another host's report makes of %s %s; used %d", now.Ledger, then.Ledger, w.used(0))
	}
	w.vouch(now, nil)
}

// After a loss, hosts that share a store are held back until all have reported, or a
// minute has passed.
func testRecovering(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, 6*time.Hour)}
	lost := driver.Mark{Ledger: "lost", Seen: w.now}
	noticed := w.now + minute
	w.now = noticed
	w.reportLoss(driver.Recovery{Mark: lost, Used: []int64{40}, Host: "0a", Hosts: 3})
	n := 0
	ask := func(change func(*driver.Batch)) driver.Decision {
		t.Helper()
		n++
		b := driver.Batch{Budget: w.budget, Now: w.now, Limits: w.limits, Hosts: 3, Host: "0a", Items: []driver.Item{item(string(rune('a'+n)), "op", 1)}}
		change(&b)
		d := must.Get(w.store.Decide(context.Background(), b))(t)
		return d.Items[0]
	}
	held := func(what string, change func(*driver.Batch)) {
		t.Helper()
		if d := ask(change); d.Result != driver.Refused || !d.Recovering || d.Locked || d.Limit != -1 || d.RetryAt != noticed+driver.RecoveryWait {
			t.Fatalf("%s: %+v, want it held back until %d", what, d, noticed+driver.RecoveryWait)
		}
	}
	free := func(what string, change func(*driver.Batch)) {
		t.Helper()
		must.Equal(t, ask(change).Result, driver.Granted, what)
	}
	as := func(*driver.Batch) {}
	held("a charge", as)
	held("of a host that has not reported", func(b *driver.Batch) { b.Host = "2c" })
	free("within the host's part", func(b *driver.Batch) { b.WithinPart = true })
	free("what happened already", func(b *driver.Batch) { b.Items[0].Recorded = true })
	free("where one host is all", func(b *driver.Batch) { b.Hosts = 1 })
	free("what only observes", func(b *driver.Batch) { b.Observe = true })
	w.now += second
	w.reportLoss(driver.Recovery{Mark: lost, Used: []int64{30}, Host: "0a", Hosts: 3})
	w.reportLoss(driver.Recovery{Mark: lost, Used: []int64{30}, Host: "1b", Hosts: 3})
	held("when two of three have reported, one of them twice", as)
	view := must.Get(w.store.Look(context.Background(), driver.Look{Budget: w.budget, Now: w.now, Limits: w.limits, Hosts: 3}))(t)
	must.Equal(t, view.Recovering, noticed+driver.RecoveryWait, "a look shows")
	free("when that is all hosts", func(b *driver.Batch) { b.Hosts = 2 })
	w.now = noticed + driver.RecoveryWait - 1
	held("a microsecond before the minute is over", as)
	within, err := w.store.Decide(context.Background(), driver.Batch{
		Budget: w.budget, Now: w.now, Limits: w.limits, Hosts: 3, Host: "0a", Observe: true,
		Items: []driver.Item{item("x", "op", 1), item("y", "op", 1), item("z", "op", 1)},
	})
	if err != nil { // each charge advances the ledger's time
		t.Fatal(err)
	}
	for i, want := range []string{driver.ObservedLock, driver.ObservedLock, ""} {
		must.Equal(t, within.Items[i].Observed, want, "item", i, "of a batch in which the minute ends: observed")
	}
	w.now++
	free("a minute after the notice", as)
	w.reportLoss(driver.Recovery{Mark: lost, Used: []int64{90}, Host: "2c", Hosts: 3})
	free("when the last one comes later", as)
}

// A ledger counts the hosts that decided on the budget within a day.
func testHosts(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, 6*time.Hour)}
	decide := func(host string, want int) {
		t.Helper()
		d := must.Get(w.store.Decide(context.Background(), driver.Batch{Budget: w.budget, Now: w.now, Limits: w.limits, Host: host}))(t)
		must.Equal(t, d.AtWork, want)
	}
	decide("", 0)
	decide("0a", 1)
	w.now += hour - 1
	decide("0a", 1) // not noted again
	decide("1b", 2)
	w.now += driver.HostNoted - hour
	must.Equal(t, w.look().AtWork, 2, "a look shows … at work")
	w.now++
	decide("", 1)
	decide("0a", 2)
	w.now += driver.HostNoted
	decide("", 0)
	for i := range driver.MaxHosts + 10 { // it distinguishes no more than that
		decide(fmt.Sprintf("%04x", i), min(i+1, driver.MaxHosts))
	}
}
