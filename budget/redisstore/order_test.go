package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// Batches are decided in order while other calls learn that the server's clock
// stands elsewhere.
func TestBatchesStayInOrder(t *testing.T) {
	t.Parallel()
	now := time.Now().UnixMicro()
	store := must.Get(redisstore.OpenWithClock(redistest.Start(t).URL(0), redisstore.Options{Timeout: patient}, func() int64 { return now }))(t)
	t.Cleanup(func() { _ = store.Close() })
	limits := []limit.Limit{{Name: "w", Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)}}
	for round := range effort.Of(50, 50, 150) {
		now += 3 * time.Hour.Microseconds() // past all deadlines of earlier answers
		var all sync.WaitGroup
		for b := range 4 {
			batch := driver.Batch{Budget: name, Now: now, Limits: limits}
			for i := range driver.MaxBatch {
				batch.Items = append(batch.Items, driver.Item{ID: fmt.Sprintf("%d-%d-%d", round, b, i), Operation: "op", Units: 1})
			}
			all.Go(func() {
				got, err := store.Decide(context.Background(), batch)
				if err != nil {
					t.Error(err)
					return
				}
				for i, d := range got.Items {
					if i > 0 && d.At <= got.Items[i-1].At {
						t.Errorf("round %d: item %d was charged at %d, the one before it at %d", round, i, d.At, got.Items[i-1].At)
						return
					}
				}
			})
		}
		all.Wait()
	}
}
