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

// Budget is a budget of an unchanged preset, in memory.
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

// Flush waits until everything that responses said is recorded.
func Flush(t testing.TB, b *budget.Budget) {
	t.Helper()
	must.Do(t, b.Flush(t.Context()))
}

// Ledger is what a budget's ledger contains, by operation, without drift. The test fails
// if a reservation is open.
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

// SameAs fails the test unless a budget's ledger equals what the server counted, to the
// unit.
func SameAs(t testing.TB, b *budget.Budget, counted *Tally) {
	t.Helper()
	if got, want := Ledger(t, b), counted.Rows(); !maps.Equal(got, want) {
		t.Errorf("the ledger has\n%v\nand the server counted\n%v", got, want)
	}
}

// Locks are the locks in force.
func Locks(t testing.TB, b *budget.Budget) []budget.Lock {
	t.Helper()
	Flush(t, b)
	status := must.Get(b.Status(t.Context()))(t)
	return status.Locks
}

// Unlock removes all locks, as a person would.
func Unlock(t testing.TB, b *budget.Budget) {
	t.Helper()
	for _, lock := range Locks(t, b) {
		if _, err := b.Unlock(t.Context(), lock.Limit); err != nil {
			t.Error(err)
		}
	}
}

// LockedUntil fails the test unless exactly one lock is in force, on a limit (empty: the
// whole budget), and ends at until.
func LockedUntil(t testing.TB, b *budget.Budget, limit string, until time.Time) {
	t.Helper()
	if locks := Locks(t, b); len(locks) != 1 || locks[0].Limit != limit || !locks[0].Until.Equal(until) {
		t.Errorf("the locks are %+v, want %q until %s", locks, limit, until)
	}
}

// Observer records what a transport reports.
type Observer struct {
	budgethttp.NoObserver
	Settles Tally // its calls are those that were not released

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

// Settled receives the final units.
func (o *Observer) Settled(r budget.Receipt, units int64) {
	o.Settles.Add(r.Operation, 1, units)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settled++
}

// Refused receives the meaning of a refusal.
func (o *Observer) Refused(v budgethttp.Verdict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.verdicts = append(o.verdicts, v)
}

// Drifted receives drift.
func (o *Observer) Drifted(d budget.Drift) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drifts = append(o.drifts, d)
}

// Unread receives what could not be read.
func (o *Observer) Unread(u budgethttp.Unread) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unread = append(o.unread, u)
}

// Verdicts are the verdicts since the last call.
func (o *Observer) Verdicts() []budgethttp.Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	verdicts := o.verdicts
	o.verdicts = nil
	return verdicts
}

// Drifts are the drifts since the last call.
func (o *Observer) Drifts() []budget.Drift {
	o.mu.Lock()
	defer o.mu.Unlock()
	drifts := o.drifts
	o.drifts = nil
	return drifts
}

// Finished fails the test unless every charge was settled or released.
func (o *Observer) Finished(t testing.TB) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.charged != o.settled {
		t.Errorf("%d charges, of which %d were finished", o.charged, o.settled)
	}
}
