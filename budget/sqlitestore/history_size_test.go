package sqlitestore_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/storetest"
)

// A row of history takes at most 40 bytes of the file.
func TestHistoryBytes(t *testing.T) {
	effort.Unraced(t)
	var sizes [2]int64
	for i, kept := range []time.Duration{0, -1} {
		var clock atomic.Int64
		clock.Store(1_800_000_000_000_000)
		path := filepath.Join(t.TempDir(), "q.db")
		store := must.Get(sqlitestore.OpenWithClock(t.Context(), path, sqlitestore.Options{Timeout: patience, History: kept}, clock.Load))(t)
		storetest.FillMonth(t, store, &clock, 0)
		must.Do(t, store.Close())
		sizes[i] = must.Get(os.Stat(path))(t).Size()
	}
	each := float64(sizes[0]-sizes[1]) / storetest.MonthRows
	t.Logf("%.1f bytes a row: %d with history, %d without", each, sizes[0], sizes[1])
	if each <= 8 || each > 40 {
		t.Errorf("%.1f bytes a row, want at most 40", each)
	}
}
