package outage_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

func TestOpenSpendsTheAllowanceAndRecordsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInFakeTime(t)
		dir := t.TempDir()
		b := w.host(dir)
		w.charged(b, "before", budget.SourceStore)
		w.store.away.Store(true)
		for i := range 20 {
			r := w.charged(b, fmt.Sprint("out-", i), budget.SourceAllowance)
			if want := int64(19 - i); r.Remaining != want || r.Limit != "day" {
				t.Fatalf("%+v, want %d left of the allowance", r, want)
			}
		}
		if r := w.charged(b, "out-3", budget.SourceAllowance); !r.Replayed {
			t.Fatalf("the same id again: %+v", r)
		}
		_, err := w.charge(b, "list", "one-too-many")
		var refused *budget.RefusedError
		if !errors.As(err, &refused) || !errors.Is(err, driver.ErrUnavailable) || refused.NotCharged || !strings.Contains(err.Error(), "allowance of limit day has 0 left") {
			t.Fatalf("past the allowance: %v", err)
		}
		must.Is(t, check.Err(w.charge(b, "safe", "closed")), driver.ErrUnavailable, "a closed operation")
		must.Equal(t, w.used(), 1, "used while the store was away")
		w.store.away.Store(false)
		w.back(b)
		must.Equal(t, w.used(), 22, "used, want the first, the allowance's 20 and the last")
		if left, _ := filepath.Glob(filepath.Join(dir, "journal", "*", "*")); len(left) > 0 {
			t.Fatalf("still in the journal: %v", left)
		}
		// The next outage in the same window finds the allowance spent.
		w.store.gone.Store(true)
		if r, err := w.charge(b, "list", "second"); err == nil {
			t.Fatalf("the allowance is handed out twice in a window: %+v", r)
		}
		if !strings.Contains(w.log.String(), "units=20 calls=20") {
			t.Fatalf("the log says\n%s", w.log.String())
		}
	})
}

// What headroom leaves each of the hosts is all that a host may spend, however
// large its allowance.
func TestHostsShareTheHeadroom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spec.Limits[0].Headroom, w.spec.Limits[0].Limit, w.spec.Limits[0].OutagePart = 10, 990, 10
	w.store.gone.Store(true)
	for _, b := range []*budget.Budget{w.host(t.TempDir()), w.host(t.TempDir())} {
		for i := range 5 {
			w.charged(b, "", budget.SourceAllowance)
			if i == 4 {
				if r, err := w.charge(b, "list", ""); err == nil {
					t.Fatalf("more than half of the headroom is spent: %+v", r)
				}
			}
		}
	}
}

// The host's spend counts before anything else is decided, and stays written down until the
// store has it.
func TestRecordedFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	b := w.host(dir)
	for range 9 {
		must.Get(w.charge(b, "search", ""))(t)
	}
	for range 49 {
		w.charged(b, "", budget.SourceStore)
	}
	w.store.gone.Store(true)
	w.charged(b, "out-1", budget.SourceAllowance)
	w.charged(b, "out-2", budget.SourceAllowance)
	w.store.gone.Store(false)
	w.store.halts.Store(true)
	for end := time.Now().Add(3 * interval); time.Now().Before(end); {
		if r, err := w.charge(b, "safe", ""); err == nil {
			t.Fatalf("decided before what happened was recorded: %+v", r)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "journal", "*", "*")); len(left) != 2 {
		t.Fatalf("in the journal: %v", left)
	}
	w.store.halts.Store(false)
	for end := time.Now().Add(5 * time.Minute); ; {
		_, err := w.charge(b, "safe", "") // 949 and 2 are used of 950
		if errors.Is(err, budget.ErrExhausted) {
			break
		}
		if !errors.Is(err, driver.ErrUnavailable) || time.Now().After(end) {
			t.Fatalf("with what happened recorded: %v", err)
		}
	}
	must.Equal(t, w.used(), 951, "used")
}

// What was recorded after an outage has been seen: a store that loses it then
// has it recorded again.
func TestRecordedIsRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.host(t.TempDir())
	w.charged(b, "before", budget.SourceStore)
	w.store.gone.Store(true)
	for range 3 {
		w.charged(b, "", budget.SourceAllowance)
	}
	w.store.gone.Store(false)
	for end := time.Now().Add(5 * time.Minute); w.used() != 4; {
		if _, err := b.Status(context.Background()); err != nil && time.Now().After(end) {
			t.Fatal(err)
		}
	}
	w.store.replace(memstore.New(func() int64 { return time.Now().UnixMicro() }))
	w.back(b)
	must.Equal(t, w.used(), 5, "used")
}

// A reply that was lost: the call is charged in the store and granted by the
// allowance; that is one charge.
func TestLostReplyIsOneCharge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.host(t.TempDir())
	w.store.lost.Store(true)
	w.charged(b, "a", budget.SourceAllowance)
	w.store.lost.Store(false)
	w.back(b)
	must.Equal(t, w.used(), 2, "used, want a and the one that found the store back")
}

// Reservations: granted before or within the outage, finished within it.
func TestFinishWithoutTheStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.host(t.TempDir())
	ctx := context.Background()
	units := int64(10)
	reserve := func(id string) *budget.Reservation {
		return must.Get(b.Reserve(ctx, budget.Call{Operation: "list", ID: id, Units: &units}, time.Hour))(t)
	}
	before, released := reserve("before"), reserve("released")
	w.store.gone.Store(true)
	within := reserve("within")
	must.Equal(t, within.Source, budget.SourceAllowance, within)
	for range 2 { // the same again is the same
		must.Do(t, errors.Join(before.Settle(ctx, 3), released.Release(ctx), within.Settle(ctx, 12)))
	}
	must.Is(t, before.Settle(ctx, 4), budget.ErrConflict, "settled at another value")
	must.Is(t, within.Release(ctx), budget.ErrConflict, "released after it was settled")
	w.store.gone.Store(false)
	w.back(b)
	must.Equal(t, w.used(), 3+0+12+1, "used")
}

// A settlement for which nobody waits is written down as others are.
func TestSettledSoonWithoutTheStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.host(t.TempDir())
	ctx, units := context.Background(), int64(10)
	soon := func() {
		r := must.Get(b.Reserve(ctx, budget.Call{Operation: "list", Units: &units}, time.Hour))(t)
		w.store.gone.Store(true)
		must.Equal(t, r.SettleSoon(func(err error) { t.Error(err) }), true, "settled soon")
	}
	soon() // and then by itself
	must.Do(t, b.Flush(ctx))
	w.store.gone.Store(false)
	w.back(b)
	soon() // and then with a decision of the host's
	must.Equal(t, must.Get(b.Charge(ctx, budget.Call{Operation: "list"}))(t).Source, budget.SourceAllowance)
	must.Do(t, b.Flush(ctx))
	w.store.gone.Store(false)
	w.back(b)
	spent := must.Get(b.Spent(ctx, budget.ByOperation, 0))(t)
	for _, row := range spent.Rows {
		must.Equal(t, row.Open, 0, "open", row)
	}
	must.Equal(t, w.used(), 2*10+1+2, "used") // back charges one each time
}

// A reservation that is finished within its lease counts as that, though the store is waited for
// until after the lease.
func TestFinishRightBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInFakeTime(t)
		b := w.host(t.TempDir())
		r := must.Get(b.Reserve(t.Context(), budget.Call{Operation: "search"}, w.spec.Timeout*9/10))(t)
		w.store.away.Store(true)
		must.Do(t, r.Release(t.Context()))
		w.store.away.Store(false)
		w.back(b)
		must.Equal(t, w.used(), 1, "used, want none of the reservation's")
	})
}

// A record that the store will not take is set aside and told of; the others are
// recorded.
func TestSetAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	b := w.host(dir)
	other := w.host(t.TempDir())
	w.store.gone.Store(true)
	w.charged(b, "taken", budget.SourceAllowance)
	w.charged(b, "fine", budget.SourceAllowance)
	folder := filepath.Join(dir, "journal", "up+key1")
	must.Do(t, os.WriteFile(filepath.Join(folder, "0000.charge"), []byte("{"), 0o600))
	w.store.gone.Store(false)
	two := int64(2)
	for { // its breaker is another host's
		if _, err := other.Charge(context.Background(), budget.Call{Operation: "list", ID: "taken", Units: &two, OnStoreError: driver.Closed}); err == nil {
			break
		}
	}
	w.back(b)
	must.Equal(t, w.used(), 2+1+1, "used")
	aside := must.Get(filepath.Glob(filepath.Join(dir, "aside", "up+key1", "*.why")))(t)
	must.Equal(t, len(aside), 2, "set aside")
	must.Is(t, check.Err(os.Stat(folder)), fs.ErrNotExist, "the journal's folder is still there")
	if !strings.Contains(w.log.String(), "set aside") {
		t.Fatalf("the log says\n%s", w.log.String())
	}
}

// The host that saw the lost entries notices a loss, and records it; a reset
// is not a loss.
func TestLossIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	b := w.host(dir)
	for i := range 7 {
		w.charged(b, fmt.Sprint("a", i), budget.SourceStore)
	}
	must.Do(t, b.Close()) // another process of the host goes on
	w.store.replace(memstore.New(func() int64 { return time.Now().UnixMicro() }))
	stranger := w.host(t.TempDir()) // saw nothing, notices nothing
	w.charged(stranger, "new", budget.SourceStore)
	b = w.host(dir)
	r := w.charged(b, "b", budget.SourceStore)
	must.Equal(t, r.Remaining, 950-7-1-1)
	must.Equal(t, w.used(), 9)
	if !strings.Contains(w.log.String(), "recovered=7") {
		t.Fatalf("the log says\n%s", w.log.String())
	}
	status := must.Get(b.Status(context.Background()))(t)
	must.Equal(t, status.Limits[0].Recovered, 7, "status")
	w.charged(b, "c", budget.SourceStore)
	must.Equal(t, w.used(), 10, "used: recovered twice")
}

// Everything the host writes is its user's alone.
func TestFilesAreTheUsersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), "host")
	b := w.host(dir)
	w.charged(b, "a", budget.SourceStore)
	w.store.gone.Store(true)
	w.charged(b, "b", budget.SourceAllowance)
	n := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if entry.IsDir() {
			want = 0o700
		}
		if n++; info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil || n < 8 {
		t.Fatalf("%d files, %v", n, err)
	}
}
