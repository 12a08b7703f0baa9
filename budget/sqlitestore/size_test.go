package sqlitestore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// A charge with an id that package budget made, a job, a region and a run takes at most 90
// bytes of the file, all that is kept beside it included. Charges are of 8 regions, a run is of 50.
func TestBytesPerCharge(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "q.db")
	clock := noon
	open := func() *sqlitestore.Store {
		return must.Get(sqlitestore.OpenWithClock(t.Context(), path, sqlitestore.Options{Timeout: patience}, func() int64 { return clock }))(t)
	}
	limits := []limit.Limit{rolling(limit.MaxUnits, day)}
	charged := 0
	size := func(n int) int64 {
		store := open()
		for end := charged + n; charged < end; {
			batch := driver.Batch{Budget: name, Now: clock, Limits: limits}
			for ; charged < end && len(batch.Items) < 100; charged++ {
				run := charged / 50
				batch.Items = append(batch.Items, driver.Item{
					ID: rand.Text(), Operation: []string{"search.list", "videos.list"}[charged%2], Units: []int64{100, 1}[charged%2],
					Labels: driver.Labels{Job: "trending", Region: fmt.Sprint("R", run%8), Run: fmt.Sprintf("trending-%d-R%d", noon+int64(run), run%8)},
				})
			}
			must.Get(store.Decide(context.Background(), batch))(t)
			clock += 100_000
		}
		must.Do(t, store.Close())
		return must.Get(os.Stat(path))(t).Size()
	}
	before := size(1000)
	const n = 100_000
	each := float64(size(n)-before) / n
	t.Logf("%.1f bytes a charge with job, region and run", each)
	if each > 90 {
		t.Errorf("%.1f bytes a charge, want at most 90", each)
	}
}
