package sqlitestore_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/storetest"
)

// BenchmarkJobs reads the documents of a thousand jobs, as a daemon does to look
// what there is to do.
func BenchmarkJobs(b *testing.B) {
	store := must.Get(sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "q.db"), sqlitestore.Options{Timeout: time.Minute}))(b)
	defer func() { _ = store.Close() }()
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint("a-job-of-a-certain-length-", i)
		must.Get(store.SwapJob(b.Context(), driver.JobSwap{Job: names[i], Text: make([]byte, 1000)}))(b)
	}
	for b.Loop() {
		if found, err := store.Jobs(b.Context(), names); err != nil || len(found[999].Text) != 1000 {
			b.Fatal(err)
		}
	}
}

// BenchmarkWaiters has up to 5,000 goroutines wait for one budget.
func BenchmarkWaiters(b *testing.B) {
	storetest.Waiters(b, func(b *testing.B) driver.Store {
		store := must.Get(sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "waiters.db"), sqlitestore.Options{Timeout: time.Minute}))(b)
		b.Cleanup(func() { check.NoError(b, store.Close()) })
		return store
	})
}
