package outage_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// chargePass charges a call of a pass.
func (w *world) chargePass(b *budget.Budget, number int64, id string) (budget.Receipt, error) {
	return b.Charge(context.Background(), budget.Call{Operation: "list", ID: id, Fence: number, Labels: driver.Labels{Job: "trending"}})
}

// fence shuts out a pass.
func (w *world) fence(b *budget.Budget, number int64) {
	w.t.Helper()
	must.Do(w.t, b.Fence(context.Background(), "trending", number))
}

// noFenceIn wants the host to remember no fence.
func (w *world) noFenceIn(dir string) {
	w.t.Helper()
	written := must.Get(os.ReadFile(filepath.Join(dir, "memory", "up+key1")))(w.t)
	if strings.Contains(string(written), "trending") {
		w.t.Fatalf("the host remembers\n%s", written)
	}
}

// A fence closes nothing to anybody else, neither on the host that put it up nor on
// the one that came upon it, and nothing at all while the store is away.
func TestFenceIsNoLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir, otherDir := t.TempDir(), t.TempDir()
	b, other := w.host(dir), w.host(otherDir)
	w.fence(b, 7)
	for _, host := range []*budget.Budget{b, other} {
		if _, err := w.chargePass(host, 7, ""); !errors.Is(err, budget.ErrFenced) || errors.Is(err, budget.ErrExhausted) {
			t.Fatalf("a call of the pass that is shut out: %v", err)
		}
		w.charged(host, "", budget.SourceStore)
	}
	w.store.gone.Store(true)
	for _, host := range []*budget.Budget{b, other} {
		w.charged(host, "", budget.SourceAllowance)
		must.Equal(t, must.Get(w.chargePass(host, 7, ""))(t).Source, budget.SourceAllowance, "a call of the pass while the store is away")
	}
	w.store.gone.Store(false)
	for _, host := range []*budget.Budget{b, other} {
		w.back(host)
		must.Is(t, check.Err(w.chargePass(host, 7, "")), budget.ErrFenced, "a call of the pass once the store is back")
		must.Do(t, host.Close()) // it writes down the answers it got
	}
	must.Equal(t, w.used(), 2+4+2, "used: what happened is recorded, whoever it was")
	w.noFenceIn(dir)
	w.noFenceIn(otherDir)
}

// A fence is the store's or nobody's: a host on its own puts none up.
func TestFenceWhileAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	b := w.host(dir)
	w.charged(b, "before", budget.SourceStore)
	w.store.gone.Store(true)
	must.Is(t, b.Fence(context.Background(), "trending", 7), driver.ErrUnavailable, "a fence while the store is away")
	store := outage.New(w.store, outage.Options{Dir: dir, Allowance: 20, Timeout: timeout, Interval: interval})
	defer func() { _ = store.Close() }()
	request := driver.Lock{Budget: w.spec.Name, Now: time.Now().UnixMicro(), Limit: "~trending/7", After: time.Hour.Microseconds(), Most: driver.MaxLock}
	if locked, err := driver.Apply(context.Background(), store, request); !errors.Is(err, driver.ErrUnavailable) {
		t.Fatalf("one that is to leave another unchanged: %+v, %v", locked, err)
	}
	w.charged(b, "within", budget.SourceAllowance)
	w.store.gone.Store(false)
	w.back(b)
	must.Equal(t, must.Get(w.chargePass(b, 7, "pass"))(t).Source, budget.SourceStore, "a pass that nobody shut out")
	must.Do(t, b.Close())
	w.noFenceIn(dir)
	if strings.Contains(w.log.String(), "on this host alone") {
		t.Fatalf("the log says\n%s", w.log.String())
	}
}
