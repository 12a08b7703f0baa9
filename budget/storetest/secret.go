package storetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// NoSecret holds stores that cannot serve, each opened with a secret, to I9:
// whatever fails, the secret stands in no error. Stores that are opened with
// none have nothing to show.
func NoSecret(t *testing.T, secret string, stores map[string]Store) {
	t.Helper()
	ctx := context.Background()
	limits := []budget.Limit{rolling("w", 10, time.Hour)}
	for what, store := range stores {
		t.Run("I9NoSecret/"+what, func(t *testing.T) {
			_, decided := store.Decide(ctx, budget.Batch{Budget: "up/key1", Now: time.Now().UnixMicro(), Limits: limits, Items: []budget.Item{item("a", "op", 1)}})
			_, finished := store.Finish(ctx, budget.Finish{Budget: "up/key1", Now: time.Now().UnixMicro(), ID: "a"})
			_, looked := store.Look(ctx, budget.Look{Budget: "up/key1", Now: time.Now().UnixMicro(), Limits: limits})
			_, read := store.Job(ctx, "j")
			_, _, begun := store.Begin(ctx, budget.BeginPass{Job: "j", Holder: "h", Tick: 1, Hold: second})
			_, renewed := store.Renew(ctx, "j", "h", second)
			_, ended := store.End(ctx, "j", "h", "", nil)
			for verb, err := range map[string]error{
				"decide": decided, "finish": finished, "look": looked, "accept clock": store.AcceptClock(ctx, "up/key1"),
				"job": read, "begin": begun, "renew": renewed, "end": ended,
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
