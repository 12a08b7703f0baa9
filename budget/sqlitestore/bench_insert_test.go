package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// BenchmarkInsert compares a charge from one goroutine with the insertion of one row with
// one fsync, by the same driver, turn by turn.
func BenchmarkInsert(b *testing.B) {
	dir := b.TempDir()
	charged := benchBudget(b, filepath.Join(dir, "charged.db"))
	defer func() { _ = charged.Close() }()
	plain := must.Get(sql.Open("sqlite", "file:"+filepath.Join(dir, "plain.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"))(b)
	defer func() { _ = plain.Close() }()
	plain.SetMaxOpenConns(1)
	must.Get(plain.Exec("CREATE TABLE entry(id TEXT, at INTEGER, units INTEGER)"))(b)
	insert := must.Get(plain.Prepare("INSERT INTO entry VALUES (?, ?, ?)"))(b)
	var took [2][]time.Duration
	for b.Loop() {
		for range 50 {
			began := time.Now()
			must.Get(charged.Charge(context.Background(), budget.Call{Operation: "op"}))(b)
			took[0] = append(took[0], time.Since(began))
			began = time.Now()
			must.Get(insert.Exec("AAAAAAAAAAAAAAAAAAAAAAAAAA", time.Now().UnixMicro(), 1))(b)
			took[1] = append(took[1], time.Since(began))
		}
	}
	_ = sqlitestore.DefaultTimeout
	mean := func(l []time.Duration) float64 {
		var s time.Duration
		for _, d := range l {
			s += d
		}
		return float64(s.Microseconds()) / float64(len(l))
	}
	a, c := mean(took[0]), mean(took[1])
	slices.Sort(took[0])
	slices.Sort(took[1])
	b.ReportMetric(a/c, "mean-ratio")
	b.ReportMetric(float64(took[0][len(took[0])/2])/float64(took[1][len(took[1])/2]), "median-ratio")
	b.ReportMetric(a, "charge-µs")
	b.ReportMetric(c, "insert-µs")
}
