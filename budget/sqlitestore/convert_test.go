package sqlitestore_test

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// exported counts an export's rows by their states.
type exported map[driver.RowState]int

func (exported) Head(driver.LedgerHead) error { return nil }

func (e exported) Row(row driver.Row) error {
	e[row.State]++
	return nil
}

// ninth writes a file of schema 9 to a path.
func ninth(t *testing.T, path string) {
	t.Helper()
	packed := must.Get(os.Open("testdata/schema9.db.gz"))(t)
	defer func() { _ = packed.Close() }()
	must.Do(t, os.WriteFile(path, must.Get(io.ReadAll(must.Get(gzip.NewReader(packed))(t)))(t), 0o600))
}

// Where a long older file replaces the one that a process has open, such as a backup, a call
// has no time to convert it, and says so. The next process that opens it does, and both go on.
func TestReplacedByNinth(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	clock := noon + 7300*second
	open := func(path string) *sqlitestore.Store {
		return must.Get(sqlitestore.OpenWithClock(t.Context(), path, sqlitestore.Options{Timeout: patience}, func() int64 { return clock }))(t)
	}
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "q.db"), filepath.Join(dir, "backup.db")
	ninth(t, backup)
	const more = 60_000 // takes a second to convert
	execute(t, backup, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO entry SELECT b, 'more-' || i, lane, score, start, asked, units, state, job, region, run, calls, observed
		FROM (SELECT * FROM entry WHERE b = 1 AND state = 0 LIMIT 1), n`, more))
	execute(t, backup, fmt.Sprintf("UPDATE budget SET n = n + %d WHERE b = 1", more))
	store := open(path)
	defer func() { must.Do(t, store.Close()) }()
	for _, suffix := range []string{"-wal", "-shm"} {
		must.Do(t, os.Remove(path+suffix))
	}
	must.Do(t, os.Rename(backup, path))
	// Opening the file anew takes a hundredth of the time of converting it.
	err := fmt.Errorf("nothing was asked")
	for timeout := 100 * time.Millisecond; timeout < patience && err != nil && !strings.Contains(err.Error(), "of an older version"); timeout *= 2 {
		sqlitestore.SetTimeout(store, timeout)
		_, err = store.Decide(context.Background(), driver.Batch{Budget: name, Now: clock})
	}
	check.Is(t, err, driver.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "run any quotactl command once") {
		t.Errorf("%v, want what to do", err)
	}
	other := open(path)
	must.Get(sqlitestore.CheckSums(t.Context(), other))(t)
	must.Do(t, other.Close())
	sqlitestore.SetTimeout(store, patience)
	must.Get(store.Decide(context.Background(), driver.Batch{Budget: name, Now: clock}))(t)
}

// TestConvertsNinth opens a file that quotactl wrote with schema 9: 1,000 charges of two
// operations with ids of both kinds, every 50th a reservation; and a second budget of a
// coarse limit, of which 20 charges are merged. Both decide on as they were.
func TestConvertsNinth(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "q.db")
	ninth(t, path)
	madeID := func(i int) string {
		sum := sha256.Sum256(fmt.Append(nil, i))
		return base32.StdEncoding.EncodeToString(sum[:])[:26]
	}
	clock := noon + 7300*second
	store := must.Get(sqlitestore.OpenWithClock(t.Context(), path, sqlitestore.Options{Timeout: patience}, func() int64 { return clock }))(t)
	defer func() { must.Do(t, store.Close()) }()
	check.Equal(t, query[int](t, path, "PRAGMA user_version"), 12, "version")
	limits := []limit.Limit{rolling(limit.MaxUnits, day)}
	look := must.Get(store.Look(t.Context(), driver.Look{Budget: name, Now: clock, Limits: limits}))(t)
	check.Equal(t, look.Limits[0].Used, 1050, "used")

	if n := must.Get(sqlitestore.CheckSums(t.Context(), store))(t); n < 2 {
		t.Errorf("%d sums, want some of each operation", n)
	}
	rows := exported{}
	must.Do(t, store.Export(t.Context(), driver.Export{Budget: name, Now: clock}, rows))
	for state, want := range map[driver.RowState]int{driver.RowPlain: 980, driver.RowOpen: 10, driver.RowSettled: 5, driver.RowReleased: 5} {
		check.Equal(t, rows[state], want, state)
	}
	rows = exported{}
	must.Do(t, store.Export(t.Context(), driver.Export{Budget: "up/coarse", Now: clock}, rows))
	check.Equal(t, rows[driver.RowMerged], 1, "merged rows")

	decide := func(id string, units, lease int64) driver.Decision {
		got := must.Get(store.Decide(context.Background(), driver.Batch{Budget: name, Now: clock, Limits: limits, Items: []driver.Item{
			{ID: id, Operation: "a", Units: units, Lease: lease},
		}}))(t)
		return got.Items[0]
	}
	first := decide(madeID(10), 1, 0)
	if !first.Replayed || first.At != noon+second {
		t.Errorf("%+v, want the charge of noon and one second again", first)
	}
	check.Equal(t, first.First, driver.Labels{Job: "trending", Region: "R2", Run: "run-0"}, "its labels")
	if own := decide("own-103", 1, 0); own.Result != driver.Conflict { // it was of b
		t.Errorf("%+v, want a conflict", own)
	}
	if fresh := decide(madeID(5000), 1, 0); fresh.Result != driver.Granted || fresh.Replayed {
		t.Errorf("%+v, want a new charge", fresh)
	}
	settled := must.Get(driver.FinishOne(t.Context(), store, name, clock, driver.Finish{ID: madeID(107), Units: 4}))(t)
	check.Equal(t, settled.Replayed, true, "settled again")
	late := must.Get(driver.FinishOne(t.Context(), store, name, clock, driver.Finish{ID: madeID(507), Units: 6}))(t)
	check.Equal(t, late.Result, driver.Settled, "an open reservation")
	past := must.Get(store.History(t.Context(), driver.HistoryQuery{Budget: name, Now: clock}))(t)
	sum := int64(0)
	for _, row := range past.Rows {
		sum += row.Units
	}
	check.Equal(t, sum, 1050+1+1, "the history's units")
	must.Get(sqlitestore.CheckSums(t.Context(), store))(t)
}
