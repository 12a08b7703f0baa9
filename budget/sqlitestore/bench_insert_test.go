package sqlitestore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"slices"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/must"
)

// BenchmarkInsert compares a charge from one goroutine with the insertion of one row, both
// with one fsync, SQLite's own page size and the same build of it: by turns, in rounds of 50.
// The row goes by database/sql to a table of id, time and units that has no index.
//
// times-insert is the median of the rounds' ratios, and times-insert-p50 the ratio of the
// medians of single calls. A charge changes three pages of the file and the row one, so the
// ratio depends on the disk: what a charge takes above a row stays the same (more-µs).
//
// times-indexed compares with a row that is found by its id, as a charge must be so that its
// retry counts once: an index changes two pages.
func BenchmarkInsert(b *testing.B) {
	dir := b.TempDir()
	charged := benchBudget(b, filepath.Join(dir, "charged.db"))
	defer func() { _ = charged.Close() }()
	plain := must.Get(sql.Open("sqlite", "file:"+filepath.Join(dir, "plain.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"))(b)
	defer func() { _ = plain.Close() }()
	plain.SetMaxOpenConns(1)
	must.Get(plain.Exec("CREATE TABLE entry(id TEXT, at INTEGER, units INTEGER); CREATE TABLE indexed(id TEXT UNIQUE, at INTEGER, units INTEGER)"))(b)
	insert := func(table string) func() {
		prepared := must.Get(plain.Prepare("INSERT INTO " + table + " VALUES (?, ?, ?)"))(b)
		return func() { must.Get(prepared.Exec(rand.Text(), time.Now().UnixMicro(), 1))(b) }
	}
	steps := [3]func(){
		func() { must.Get(charged.Charge(context.Background(), budget.Call{Operation: "op"}))(b) },
		insert("entry"), insert("indexed"),
	}
	const inRound = 50
	var took [len(steps)][]float64 // µs
	var ratios, indexed []float64
	for b.Loop() {
		var sum [len(steps)]float64
		for i := range inRound {
			for k := range steps {
				which := (i + k) % len(steps) // each is as often the first
				began := time.Now()
				steps[which]()
				us := float64(time.Since(began).Nanoseconds()) / 1000
				took[which] = append(took[which], us)
				sum[which] += us
			}
		}
		ratios, indexed = append(ratios, sum[0]/sum[1]), append(indexed, sum[0]/sum[2])
	}
	median := func(list []float64) float64 {
		slices.Sort(list)
		return list[len(list)/2]
	}
	charge, row := median(took[0]), median(took[1])
	b.ReportMetric(median(ratios), "times-insert")
	b.ReportMetric(charge/row, "times-insert-p50")
	b.ReportMetric(median(indexed), "times-indexed")
	b.ReportMetric(charge, "charge-µs")
	b.ReportMetric(charge-row, "more-µs")
	b.ReportMetric(0, "ns/op")
}
