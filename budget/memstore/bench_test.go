package memstore_test

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/storetest"
)

// BenchmarkWaiters has up to 5,000 goroutines wait for one budget.
func BenchmarkWaiters(b *testing.B) {
	storetest.Waiters(b, func(*testing.B) driver.Store {
		return memstore.New(func() int64 { return time.Now().UnixMicro() })
	})
}
