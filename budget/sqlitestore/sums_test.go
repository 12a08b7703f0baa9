package sqlitestore_test

import (
	"fmt"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// What an import brings is summed, operation by operation: the entries of the second one are
// older than the first one's last sum.
func TestImportedAreSummed(t *testing.T) {
	t.Parallel()
	const each, perSum = 400, 4
	b := newBench(t, rolling(10_000, hour))
	sqlitestore.SetSums(b.store, perSum)
	head := driver.LedgerHead{Ledger: "another", Born: noon - minute, At: noon}
	var from int64
	for _, operation := range []string{"first", "second"} {
		var rows []driver.Row
		for i := range int64(each) {
			at := noon - minute + 1000*i
			rows = append(rows, driver.Row{ID: fmt.Sprint(operation, i), Operation: operation, State: driver.RowPlain, Asked: 1, Units: 1, Calls: 1, Start: at, Score: at})
		}
		done := must.Get(driver.Apply(t.Context(), b.store, driver.Import{Budget: name, Now: b.now, Limits: b.limits, Export: "one", Head: head, From: from, Rows: rows}))(t)
		from += each
		if done.Added != each {
			t.Fatalf("%+v, want %d added", done, each)
		}
	}
	if n := must.Get(sqlitestore.CheckSums(t.Context(), b.store))(t); n != 2*each/perSum {
		t.Errorf("%d sums of two operations' %d entries, want all of them summed", n, each)
	}
	for _, operation := range []string{"first", "second"} {
		sums := query[int](t, b.path, fmt.Sprintf("SELECT count(*) FROM entry_sum JOIN operation ON operation.b = entry_sum.b AND no = lane / 4 WHERE name = '%s'", operation))
		if sums == 0 {
			t.Errorf("%s has no sums", operation)
		}
	}
}
