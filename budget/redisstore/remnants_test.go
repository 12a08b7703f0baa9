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

// What an eviction left of a ledger, of operations that a new one has not come to yet
// too, is begun anew with a recovery, and stands in nothing's way.
func TestRemnants(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	open := func() *redisstore.Store {
		s := must.Get(redisstore.Open(t.Context(), server.URL(0), redisstore.Options{Timeout: patient}))(t)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	limits := []limit.Limit{{Name: "hour", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}
	decide := func(s *redisstore.Store, mark driver.Mark, id, operation string) error {
		_, err := s.Decide(t.Context(), driver.Batch{Budget: "up/key1", Now: time.Now().UnixMicro(), Limits: limits, Mark: mark, Items: []driver.Item{{ID: id, Operation: operation, Units: 1}}})
		return err
	}
	const operations = 6
	for left := 1; left <= operations; left++ {
		s := open()
		for i := range operations {
			must.Do(t, decide(s, driver.Mark{}, fmt.Sprint("before ", left, i), fmt.Sprint("op", i)))
		}
		keys, err := admin.Keys(t.Context(), "*").Result()
		for _, key := range keys {
			if err == nil && key != fmt.Sprintf("quotactl:v1:{up/key1}:z:%d", left) {
				err = admin.Del(t.Context(), key).Err()
			}
		}
		must.Do(t, err)
		s = open()
		lost := driver.Mark{Ledger: "lost", Seen: time.Now().UnixMicro()}
		if err := decide(s, lost, "lost", "op0"); err == nil {
			t.Fatalf("with z:%d alone left nothing is noticed", left)
		}
		got, err := driver.Apply(t.Context(), s, driver.Recovery{Budget: "up/key1", Now: time.Now().UnixMicro(), Limits: limits, Used: []int64{operations}, At: lost.Seen, Mark: lost, Gone: []string{lost.Ledger}})
		if err != nil || !got.Anew || got.Amounts[0] != operations {
			t.Fatalf("with z:%d alone left the recovery is %+v, %v", left, got, err)
		}
		for i := range operations {
			if err := decide(s, got.Mark, fmt.Sprint("after ", left, i), fmt.Sprint("op", i)); err != nil {
				t.Fatalf("with z:%d alone left: %v", left, err)
			}
		}
		must.Get(driver.Apply(t.Context(), s, driver.Reset{Budget: "up/key1"}))(t)
	}
}
