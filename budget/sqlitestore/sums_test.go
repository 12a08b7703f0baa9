package sqlitestore_test

import (
	"fmt"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// importPlain imports charges of one unit, each 1 ms after the one before.
func importPlain(b *bench, operation string, from, n, at int64) {
	b.t.Helper()
	var rows []driver.Row
	for i := range n {
		rows = append(rows, driver.Row{ID: fmt.Sprint(operation, from+i), Operation: operation, State: driver.RowPlain, Asked: 1, Units: 1, Calls: 1, Start: at, Score: at})
		at += 1000
	}
	head := driver.LedgerHead{Ledger: "another", Born: noon - minute, At: noon}
	done := must.Get(driver.Apply(b.t.Context(), b.store, driver.Import{Budget: name, Now: b.now, Limits: b.limits, Export: "one", Head: head, From: from, Rows: rows}))(b.t)
	if done.Added != n {
		b.t.Fatalf("%+v, want %d added", done, n)
	}
}

// Imported entries are summed, operation by operation: the entries of the second one are
// older than the first one's last sum.
func TestImportedAreSummed(t *testing.T) {
	t.Parallel()
	const each, perSum = 400, 4
	b := newBench(t, rolling(10_000, hour))
	sqlitestore.SetSums(b.store, perSum)
	importPlain(b, "first", 0, each, noon-minute)
	importPlain(b, "second", each, each, noon-minute)
	if n := must.Get(sqlitestore.CheckSums(t.Context(), b.store))(t); n != 2*each/perSum {
		t.Errorf("%d sums of two operations' %d entries, want all of them summed", n, each)
	}
}

// Entries that an import puts before those of the ledger get sums of their own. Else all would
// be in the ledger's first one, and a walk would read each of them.
func TestImportedPastIsSummed(t *testing.T) {
	t.Parallel()
	const perSum = 4
	b := newBench(t, rolling(10_000, hour))
	sqlitestore.SetSums(b.store, perSum)
	for i := range 20 {
		b.now += second
		b.granted(item(fmt.Sprint("own", i), 1))
	}
	for part := range int64(10) {
		importPlain(b, "op", 100*part, 100, noon-minute+100_000*part)
	}
	must.Get(sqlitestore.CheckSums(t.Context(), b.store))(t)
	if most := query[int](t, b.path, "SELECT max(calls) FROM entry_sum"); most > 16*perSum+1 {
		t.Errorf("a sum of %d entries, want at most 16 times %d and one", most, perSum)
	}
	if n := query[int](t, b.path, "SELECT count(*) FROM entry_sum"); n < 1000/perSum/2 {
		t.Errorf("%d sums of 1,020 entries, want most of them in sums of %d", n, perSum)
	}
	b.limits[0].Limit = 1030
	b.refused(item("more", 500), noon-minute+1000*489+hour) // the 490th of the 1,020 makes room for it
}
