package redisstore_test

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// I8: a set that merging, or an id used again, leaves empty for a moment is made
// anew by the server, and must expire like the others.
func TestKeysExpireAfterMerging(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	now := time.Now().UnixMicro()
	store := must.Get(redisstore.OpenWithClock(server.URL(0), redisstore.Options{Timeout: patient}, func() int64 { return now }))(t)
	defer func() { _ = store.Close() }()
	coarse := limit.Limit{Name: "l", Limit: 100, Counts: limit.CountUnits, Window: limit.CoarseWindow(24*time.Hour, time.Minute)}
	short := limit.Limit{Name: "l", Limit: 100, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Second)}
	for what, l := range map[string]limit.Limit{"merged": coarse, "id used again": short} {
		must.Do(t, admin.FlushAll(t.Context()).Err())
		began := now
		for _, step := range []struct {
			at            time.Duration
			operation, id string
		}{
			{0, "often", "a"}, {40 * time.Minute, "once", "b"},
			{61 * time.Minute, "often", "c"}, // all expiries are renewed
			{102 * time.Minute, "often", "d"}, {102 * time.Minute, "once", "b"},
		} {
			now = began + step.at.Microseconds()
			batch := driver.Batch{Budget: name, Now: now, Limits: []limit.Limit{l}, Items: []driver.Item{{ID: step.id, Operation: step.operation, Units: 1}}}
			must.Get(store.Decide(t.Context(), batch))(t)
			keys, err := admin.Keys(t.Context(), "*").Result()
			if err != nil || len(keys) < 4 {
				t.Fatalf("keys %v, %v", keys, err)
			}
			for _, key := range keys {
				if left, err := admin.PTTL(t.Context(), key).Result(); err != nil || left < time.Hour {
					t.Fatalf("%s, at %s: %s expires in %s, %v", what, step.at, key, left, err)
				}
			}
		}
	}
}
