package bench

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// insert is the yardstick of SQLite: one row in a transaction of its own, with the journal
// and the fsync that a store has.
const insert = "peer=insert"

// BenchmarkSQLite has charges from one process take turns with a plain INSERT of a row as
// long as a charge's, from one goroutine: its rate is what one fsync a row allows. Run it
// with -benchtime 1x: the rounds are its own.
func BenchmarkSQLite(b *testing.B) {
	for _, goroutines := range []int{1, 16, 64} {
		g := group{
			goroutines: goroutines, yardsticks: []yardstick{{insert, "of-insert", "times-insert"}},
			contenders: []contender{{name: insert, per: 1, goroutines: 1, do: inserting(b)}},
		}
		for _, limits := range []int{1, 3} {
			g.contenders = append(g.contenders, contender{name: fmt.Sprintf("charge/limits=%d", limits), per: 1, do: chargingFile(b, limits)})
		}
		g.run(b)
	}
}

// inserting inserts a row a call.
func inserting(b *testing.B) func(context.Context) error {
	db := must.Get(sql.Open("sqlite", filepath.Join(b.TempDir(), "plain.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_txlock=immediate"))(b)
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { _ = db.Close() })
	must.Get(db.ExecContext(b.Context(), "CREATE TABLE log (id TEXT PRIMARY KEY, at INTEGER, units INTEGER, job TEXT, region TEXT, run TEXT) WITHOUT ROWID"))(b)
	statement := must.Get(db.PrepareContext(b.Context(), "INSERT INTO log VALUES (?, ?, 1, ?, ?, ?)"))(b)
	var n atomic.Int64
	return func(ctx context.Context) error {
		l := labels(n.Add(1))
		_, err := statement.ExecContext(ctx, newID(), time.Now().UnixMicro(), l.Job, l.Region, l.Run)
		return err
	}
}

// chargingFile charges a budget of a new file.
func chargingFile(b *testing.B, limits int) func(context.Context) error {
	store := must.Get(sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}))(b)
	return charging(b, store, limits, fmt.Sprint("charge", limits))
}
