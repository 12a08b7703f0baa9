package storetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// NoSecret checks I9 on stores that cannot serve, each opened with a secret: whatever
// fails, no error contains the secret. Do not pass stores that are opened without a
// secret.
func NoSecret(t *testing.T, secret string, stores map[string]Store) {
	t.Helper()
	ctx := context.Background()
	limits := []limit.Limit{rolling("w", 10, time.Hour)}
	for what, store := range stores {
		t.Run("I9NoSecret/"+what, func(t *testing.T) {
			_, decided := store.Decide(ctx, driver.Batch{Budget: "up/key1", Now: time.Now().UnixMicro(), Limits: limits, Items: []driver.Item{item("a", "op", 1)}})
			_, finished := driver.FinishOne(ctx, store, "up/key1", time.Now().UnixMicro(), driver.Finish{ID: "a"})
			_, looked := store.Look(ctx, driver.Look{Budget: "up/key1", Now: time.Now().UnixMicro(), Limits: limits})
			_, read := store.Job(ctx, "j")
			_, swapped := store.SwapJob(ctx, driver.JobSwap{Job: "j", Text: []byte("{}")})
			_, valued := store.JobValue(ctx, "j", "key")
			_, told := store.JobHistory(ctx, driver.JobHistoryQuery{Job: "j", Most: 1})
			_, accepted := driver.Apply(ctx, store, driver.AcceptClock{Budget: "up/key1"})
			for verb, err := range map[string]error{
				"decide": decided, "finish": finished, "look": looked, "accept clock": accepted,
				"job": read, "swap": swapped, "value": valued, "history": told,
			} {
				if err == nil {
					t.Errorf("%s: no error", verb)
				} else if strings.Contains(err.Error(), secret) {
					t.Errorf("%s: the secret got out: %v", verb, err)
				}
			}
		})
	}
}
