package jobs

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
)

// ofTwo is a store that two hosts share.
type ofTwo struct{ driver.Store }

func (s ofTwo) Decide(ctx context.Context, b driver.Batch) (driver.Decisions, error) {
	b.Hosts = 2
	return s.Store.Decide(ctx, b)
}

func (s ofTwo) Look(ctx context.Context, l driver.Look) (driver.View, error) {
	l.Hosts = 2
	return s.Store.Look(ctx, l)
}

// A pass waits until a recovery ends, whatever max_wait says, and logs that once.
func TestARecoveryIsWaitedFor(t *testing.T) {
	for name, needs := range map[string]string{"one call": "", "several calls": `needs = { "videos.list" = 2 }`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{job: "regions = [\"US\", \"GB\"]\nmax_wait = \"1s\"\n" + needs})
				shared, err := budget.New(ofTwo{w.store}, w.options.Budgets["youtube/key1"].Spec())
				if err != nil {
					t.Fatal(err)
				}
				w.options.Budgets["youtube/key1"] = shared
				began := time.Now()
				loss := driver.Recovery{Budget: "youtube/key1", Now: began.UnixMicro(), Mark: driver.Mark{Ledger: "lost", Seen: began.UnixMicro()}, Host: "other", Hosts: 2}
				if _, err := driver.Apply(t.Context(), w.store, loss); err != nil {
					t.Fatal(err)
				}
				if p := w.once(); p.Outcome != Succeeded {
					t.Fatalf("%s: %v", p.Outcome, outcomes(p))
				}
				if took := time.Since(began).Truncate(time.Second); took != time.Minute {
					t.Errorf("took %s, want the recovery's minute", took)
				}
				w.logged("refused; waiting", "region=US", "reason=recovering", "retry_at=2000-01-01T00:01:00.000000Z")
				if n := strings.Count(w.log.String(), "refused; waiting"); n != 1 {
					t.Errorf("%d lines say that it waits, want 1", n)
				}
				if strings.Contains(w.log.String(), `limit=""`) || strings.Contains(w.log.String(), "operation=needs") {
					t.Errorf("the log names what is nothing:\n%s", w.log)
				}
			})
		})
	}
}
