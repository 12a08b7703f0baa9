package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// A store that is closed while it tidies a ledger beside the calls ends that, and closes.
func TestCloseWhileTidying(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	limits := []limit.Limit{{Name: "l", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}
	for ledger := range 16 {
		store := must.Get(redisstore.Open(t.Context(), server.URL(ledger), redisstore.Options{Timeout: patient}))(t)
		for call := range 15 + ledger { // the last one of some finds enough entries to tidy
			batch := driver.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: limits}
			for i := range driver.MaxBatch {
				batch.Items = append(batch.Items, driver.Item{ID: fmt.Sprint(call, "-", i), Operation: "op", Units: 1})
			}
			must.Get(store.Decide(t.Context(), batch))(t)
		}
		closed := make(chan error, 1)
		go func() { closed <- store.Close() }()
		select {
		case err := <-closed:
			must.Do(t, err)
		case <-time.After(time.Minute):
			t.Fatal("Close hangs after", 15+ledger, "batches")
		}
	}
}
