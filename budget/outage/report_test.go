package outage_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/must"
)

// What the host spent while the store was away explains what the upstream counts,
// also where a report is the first to come when the store is back.
func TestReportAfterAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.host(t.TempDir())
	w.store.gone.Store(true)
	for i := range 15 {
		w.charged(b, fmt.Sprint("id-", i), budget.SourceAllowance)
	}
	w.store.gone.Store(false)
	used := int64(15)
	for end := time.Now().Add(5 * time.Minute); ; {
		d, err := b.Report(context.Background(), budget.UpstreamReport{Limit: "day", Used: &used})
		if err == nil {
			must.Equal(t, d.Added, 0, d, "want no drift: the host spent it")
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	must.Equal(t, w.used(), 15, "used")
}

// A lock by hand is for everybody: it fails where nobody hears of it.
func TestLockByHandWhileAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.host(t.TempDir())
	w.store.gone.Store(true)
	_, err := b.Lock(context.Background(), budget.LockOrder{Until: budget.Until{After: time.Hour}, ByHand: true})
	must.Is(t, err, driver.ErrUnavailable)
	w.charged(b, "open", budget.SourceAllowance)
}

// The answer to an id that was charged before says nothing of locks.
func TestReplayForgetsNoLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.host(t.TempDir())
	w.charged(b, "first", budget.SourceStore)
	w.lock(b, "", "rule: 403")
	w.charged(b, "first", budget.SourceStore)
	w.store.gone.Store(true)
	w.locked(b, "list", "", "rule: 403")
}
