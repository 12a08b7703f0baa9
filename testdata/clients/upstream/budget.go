package upstream

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/presets"
)

// Budget is a budget of a preset as it is written out, in memory.
func Budget(t testing.TB, preset, name string) *budget.Budget {
	t.Helper()
	text := must.Get(presets.Text(preset))(t)
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, text, 0o600))
	cfg := must.Get(config.Load(path))(t)
	spec := must.Get(cfg.Spec(name))(t)
	spec.Timeout = time.Minute // the walks over real connections share the machine with other tests
	store := memstore.New(func() int64 { return time.Now().UnixMicro() })
	b := must.Get(budget.New(store, spec, budget.WithClosers(store)))(t)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// Flush waits until what responses say is recorded.
func Flush(t testing.TB, b *budget.Budget) {
	t.Helper()
	must.Do(t, b.Flush(t.Context()))
}

// Ledger is what the ledger of a budget holds, by operation, but for drift. The test
// fails if a reservation is open.
func Ledger(t testing.TB, b *budget.Budget) map[string]Row {
	t.Helper()
	Flush(t, b)
	spent := must.Get(b.Spent(t.Context(), budget.ByOperation, 0))(t)
	rows := map[string]Row{}
	for _, row := range spent.Rows {
		if row.Open != 0 {
			t.Errorf("the ledger has %+v", row)
		}
		if row.Calls > 0 && !strings.HasPrefix(row.Name, limit.DriftOperation("")) {
			rows[row.Name] = Row{row.Calls, row.Units}
		}
	}
	return rows
}

// SameAs fails unless the ledger of a budget is what the server counted, to the
// unit.
func SameAs(t testing.TB, b *budget.Budget, counted *Tally) {
	t.Helper()
	if got, want := Ledger(t, b), counted.Rows(); !maps.Equal(got, want) {
		t.Errorf("the ledger has\n%v\nand the server counted\n%v", got, want)
	}
}

// Locks are those that stand.
func Locks(t testing.TB, b *budget.Budget) []budget.Lock {
	t.Helper()
	Flush(t, b)
	status := must.Get(b.Status(t.Context()))(t)
	return status.Locks
}

// Unlock opens what is locked, as a person would by hand.
func Unlock(t testing.TB, b *budget.Budget) {
	t.Helper()
	for _, lock := range Locks(t, b) {
		if _, err := b.Unlock(t.Context(), lock.Limit); err != nil {
			t.Error(err)
		}
	}
}

// LockedUntil fails unless exactly one lock stands, on a limit (empty: the whole
// budget), and ends at an instant.
func LockedUntil(t testing.TB, b *budget.Budget, limit string, until time.Time) {
	t.Helper()
	if locks := Locks(t, b); len(locks) != 1 || locks[0].Limit != limit || !locks[0].Until.Equal(until) {
		t.Errorf("the locks are %+v, want %q until %s", locks, limit, until)
	}
}

// Observer notes what a transport tells.
type Observer struct {
	Settles Tally // calls are those that were not released

	mu       sync.Mutex // guards all below
	verdicts []budgethttp.Verdict
	drifts   []budget.Drift
	unread   []budgethttp.Unread
	charged  int
	settled  int
}

// Charged implements budgethttp.Observer, like the methods below.
func (o *Observer) Charged(budget.Receipt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.charged++
}

// Settled is told the final units.
func (o *Observer) Settled(r budget.Receipt, units int64) {
	o.Settles.Add(r.Operation, 1, units)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settled++
}

// Told is told what a refusal meant.
func (o *Observer) Told(v budgethttp.Verdict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.verdicts = append(o.verdicts, v)
}

// Drifted is told of drift.
func (o *Observer) Drifted(d budget.Drift) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drifts = append(o.drifts, d)
}

// Unread is told what could not be read.
func (o *Observer) Unread(u budgethttp.Unread) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unread = append(o.unread, u)
}

// Verdicts are those since it was last asked.
func (o *Observer) Verdicts() []budgethttp.Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	verdicts := o.verdicts
	o.verdicts = nil
	return verdicts
}

// Drifts are those since it was last asked.
func (o *Observer) Drifts() []budget.Drift {
	o.mu.Lock()
	defer o.mu.Unlock()
	drifts := o.drifts
	o.drifts = nil
	return drifts
}

// Finished fails unless every charge was settled or released.
func (o *Observer) Finished(t testing.TB) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.charged != o.settled {
		t.Errorf("%d charges, of which %d were finished", o.charged, o.settled)
	}
}
