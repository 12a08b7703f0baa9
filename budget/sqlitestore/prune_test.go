package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// Entries past every window and the hour leave the file, a bounded number at a
// time, and the totals stay exact; also those of a window that nobody uses now.
func TestPrune(t *testing.T) {
	b := newBench(t, rolling(1000, minute), rolling(1000, 90*minute, "op"))
	all := b.limits
	for i := range 300 {
		b.granted(item(fmt.Sprint("old", i), 1))
	}
	b.limits = all[:1] // the other window stays live, but nobody advances it
	b.now += 2 * hour
	sqlitestore.SetSteps(b.store, 2000, 50)
	for i := range 20 {
		b.now += 11 * minute
		b.granted(item(fmt.Sprint("new", i), 1))
	}
	b.limits = all
	b.granted(item("both", 1))
	left := query[int](t, b.path, "SELECT count(*) FROM entry WHERE id LIKE 'old%'")
	check.Equal(t, left, 0, "of 300 old entries still lie in the file")
	check.Equal(t, query[int](t, b.path, "SELECT n - (SELECT count(*) FROM entry) FROM budget"), 0, "the number kept is … off")
	view, err := b.store.Look(context.Background(), driver.Look{Budget: name, Now: b.now, Limits: all})
	if err != nil || view.Limits[0].Used != 2 || view.Limits[1].Used != 10 {
		t.Fatalf("%+v, %v, want 2 and 10 used", view, err)
	}
}

// Settling up to the largest sum counts what is held, not what still lies there.
func TestSettleSumForgetsPruned(t *testing.T) {
	b := newBench(t, rolling(limit.MaxUnits, second))
	for i := range 9 {
		b.granted(item(fmt.Sprint("old", i), limit.MaxUnits))
		b.now += second
	}
	b.granted(lease(item("r", 1), second))
	settle := func(want driver.FinishResult) {
		t.Helper()
		got := must.Get(driver.FinishOne(context.Background(), b.store, name, b.now, driver.Finish{ID: "r", Units: limit.MaxUnits}))(t)
		must.Equal(t, got.Result, want)
	}
	b.now += second
	pauses := b.inSteps(3)
	sqlitestore.SetSteps(b.store, 3, 1)
	settle(driver.FinishOverflow)
	b.now += hour - 5*second // the first six are forgotten, and one is pruned
	b.granted(item("last", 1))
	settle(driver.Settled)
	if *pauses == 0 {
		t.Fatal("it was done in one transaction: the test shows nothing")
	}
}

// A file whose newest charge something else removed is not decided on.
func TestNewestIsMissing(t *testing.T) {
	b := newBench(t, rolling(100, hour))
	b.granted(item("a", 1), item("b", 1))
	b.close()
	execute(t, b.path, "DELETE FROM entry WHERE id = 'b'")
	b.open()
	for what, err := range map[string]error{
		"decide": func() error { _, err := b.try(name, item("c", 1)); return err }(),
		"finish": func() error {
			_, err := driver.FinishOne(t.Context(), b.store, name, b.now, driver.Finish{ID: "a"})
			return err
		}(),
		"look": func() error {
			_, err := b.store.Look(t.Context(), driver.Look{Budget: name, Now: b.now})
			return err
		}(),
	} {
		if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), "newest charge, b,") || !strings.Contains(err.Error(), "restore") {
			t.Errorf("%s: %v, want ErrDamaged with the charge that is missing and what to do", what, err)
		}
	}
	check.NoError(t, check.Err(b.try("up/other", item("c", 1))), "another budget of the file")
}

// Labels are kept with every entry, each text once, and go when no entry that
// is not forgotten bears them.
func TestLabels(t *testing.T) {
	b := newBench(t, rolling(100, hour))
	labelled := func(id, job, region, run string) driver.Item {
		i := item(id, 1)
		i.Labels = driver.Labels{Job: job, Region: region, Run: run}
		return i
	}
	b.granted(labelled("a", "trending", "US", "run-1"), labelled("b", "trending", "GB", "run-1"), labelled("c", "", "", ""))
	const who = `SELECT group_concat(who, ' ') FROM (SELECT e.id || '=' || coalesce(j.name, '-') || '/' || coalesce(g.name, '-') || '/' || coalesce(r.name, '-') AS who
		FROM entry e LEFT JOIN label j ON j.b = e.b AND j.no = e.job LEFT JOIN label g ON g.b = e.b AND g.no = e.region LEFT JOIN label r ON r.b = e.b AND r.no = e.run ORDER BY e.id)`
	check.Equal(t, query[string](t, b.path, who), "a=trending/US/run-1 b=trending/GB/run-1 c=-/-/-", "the entries bear")
	check.Equal(t, query[int](t, b.path, "SELECT count(*) FROM label"), 4, "labels")
	b.now += 2 * day
	b.granted(labelled("d", "trending", "US", "run-2"))
	b.now += hour
	b.granted(labelled("e", "trending", "FR", "run-2"))
	if got := query[string](t, b.path, "SELECT group_concat(name, ' ') FROM (SELECT name FROM label ORDER BY name)"); got != "FR US run-2 trending" {
		t.Errorf("labels %q, want those of the entries there are", got)
	}
}

// I8: an idle budget leaves the file when another is charged, in bounded steps;
// one that is not yet idle stays.
func TestIdleBudgetsAreDeleted(t *testing.T) {
	b := newBench(t, rolling(1000, day))
	charge := func(budgetName string, items ...driver.Item) {
		t.Helper()
		must.Get(b.try(budgetName, items...))(t)
	}
	for i := range 30 {
		i := item(fmt.Sprint("e", i), 1)
		i.Labels.Run = i.ID
		charge("up/idle", i)
	}
	b.now += 3 * hour
	charge("up/later", item("a", 1))
	budgets := func() string {
		return query[string](t, b.path, "SELECT group_concat(coalesce(name, '-'), ' ') FROM (SELECT name FROM budget ORDER BY name)")
	}
	sqlitestore.SetSteps(b.store, 25, 25)
	b.now = noon + day + driver.WindowIdle
	charge(name, item("a", 1))
	must.Equal(t, budgets(), "up/idle up/key1 up/later", "budgets: one was deleted too soon")
	b.now += hour + minute
	for i := range 5 {
		charge(name, item(fmt.Sprint("b", i), 1))
	}
	must.Equal(t, budgets(), "up/key1 up/later", "budgets, want the idle one gone")
	for _, table := range []string{"entry", "label", "operation", "win", "total"} {
		check.Equal(t, query[int](t, b.path, "SELECT count(*) FROM "+table+" WHERE b NOT IN (SELECT b FROM budget)"), 0, "rows are left in", table)
	}
	charge("up/idle", item("e1", 1000)) // it begins anew
}

// At most MaxOperations are told apart; a limit that may cover one of the
// others counts them all.
func TestManyOperations(t *testing.T) {
	b := newBench(t, rolling(10_000, hour), rolling(10, hour, "op300"), rolling(10, hour, "op7"), rolling(500, hour, "!op1"))
	of := func(n int, units int64) driver.Item {
		return driver.Item{ID: fmt.Sprint("id", n), Operation: fmt.Sprint("op", n), Units: units}
	}
	for n := range driver.MaxOperations {
		b.granted(of(n, 1))
	}
	must.Equal(t, query[int](t, b.path, "SELECT count(*) FROM operation"), driver.MaxOperations, "operations")
	b.granted(of(301, 6), of(302, 3))
	must.Equal(t, query[int](t, b.path, "SELECT count(*) FROM operation"), driver.MaxOperations+1, "operations, want one more for all others")
	got := b.decide(of(300, 2), of(300, 1), of(7, 9), of(301, 6), of(301, 7))
	if got[0].Result != driver.Refused || got[0].Limit != 1 || got[0].Remaining != 1 {
		t.Errorf("%+v, want a refusal by op300's limit, which others may have used", got[0])
	}
	check.Equal(t, got[1].Result, driver.Granted, got[1], "want op300's last unit granted")
	if got[2].Result != driver.Conflict || got[3].Result != driver.Granted || !got[3].Replayed || got[4].Result != driver.Conflict {
		t.Errorf("%+v, want a conflict, a replay and a conflict", got[2:])
	}
	view := must.Get(b.store.Look(context.Background(), driver.Look{Budget: name, Now: b.now, Limits: b.limits}))(t)
	for i, want := range []int64{266, 10, 1, 265} {
		check.Equal(t, view.Limits[i].Used, want, "limit", i, "used")
	}
}
