package outage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/outage"
)

// flaky is a store that can be away, and counts how often it is asked.
type flaky struct {
	budget.Store
	away  atomic.Bool // it does not answer, until the context ends
	gone  atomic.Bool // it is refused at once
	lost  atomic.Bool // it does what it is asked and its answer is lost
	halts atomic.Bool // it goes away when it is to record what happened
	asked atomic.Int64
}

func (f *flaky) ask(ctx context.Context) error {
	f.asked.Add(1)
	switch {
	case f.gone.Load():
		return fmt.Errorf("connection refused: %w", budget.ErrUnavailable)
	case f.away.Load():
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *flaky) Decide(ctx context.Context, b budget.Batch) (budget.Decisions, error) {
	if err := f.ask(ctx); err != nil {
		return budget.Decisions{}, err
	}
	if f.halts.Load() && b.Items[0].Recorded {
		return budget.Decisions{}, fmt.Errorf("connection reset: %w", budget.ErrUnavailable)
	}
	d, err := f.Store.Decide(ctx, b)
	if f.lost.Load() {
		return budget.Decisions{}, fmt.Errorf("connection reset: %w", budget.ErrUnavailable)
	}
	return d, err
}

func (f *flaky) Finish(ctx context.Context, x budget.Finish) (budget.Finished, error) {
	if err := f.ask(ctx); err != nil {
		return budget.Finished{}, err
	}
	return f.Store.Finish(ctx, x)
}

func (f *flaky) Look(ctx context.Context, l budget.Look) (budget.View, error) {
	if err := f.ask(ctx); err != nil {
		return budget.View{}, err
	}
	return f.Store.Look(ctx, l)
}

func (f *flaky) Close() error { return nil } // the test's hosts share it

// world is a store in memory, whose clock the wall clock is, and hosts on it.
type world struct {
	t     *testing.T
	store *flaky
	spec  budget.Spec
	log   bytes.Buffer
}

const (
	timeout  = 50 * time.Millisecond
	interval = 40 * time.Millisecond
)

func newWorld(t *testing.T) *world {
	memory := memstore.New(func() int64 { return time.Now().UnixMicro() })
	return &world{t: t, store: &flaky{Store: memory}, spec: budget.Spec{
		Name: "up/key1", Timeout: timeout, OnStoreError: budget.Open,
		Costs: map[string]budget.Cost{"list": {Units: 1}, "search": {Units: 100}, "safe": {Units: 1, OnStoreError: budget.Closed}},
		Limits: []budget.Limit{
			{Name: "day", Quota: 1000, Headroom: 50, Limit: 950, OutagePart: 40, Counts: budget.CountUnits, Window: budget.RollingWindow(24 * time.Hour)},
		},
	}}
}

// host is a budget on a host with this directory.
func (w *world) host(dir string) *budget.Budget {
	w.t.Helper()
	store := outage.New(w.store, outage.Options{
		Dir: dir, Allowance: 20, Hosts: 2, Timeout: timeout, Interval: interval, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	b, err := budget.New(store, w.spec, budget.WithClosers(store))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = b.Close() })
	return b
}

func (w *world) used() int64 {
	w.t.Helper()
	view, err := w.store.Store.Look(context.Background(), budget.Look{Budget: w.spec.Name, Now: time.Now().UnixMicro(), Limits: w.spec.Limits})
	if err != nil {
		w.t.Fatal(err)
	}
	return view.Limits[0].Used
}

func (w *world) charge(b *budget.Budget, operation, id string) (budget.Receipt, error) {
	return b.Charge(context.Background(), budget.Call{Operation: operation, ID: id})
}

// charged charges what must be granted by source.
func (w *world) charged(b *budget.Budget, id, source string) budget.Receipt {
	w.t.Helper()
	r, err := w.charge(b, "list", id)
	if err != nil || r.Source != source {
		w.t.Fatalf("charge %s: %+v, %v; want it granted by the %s", id, r, err, source)
	}
	return r
}

// back charges until the store decides again.
func (w *world) back(b *budget.Budget) {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if r, err := w.charge(b, "safe", ""); err == nil && r.Source == budget.SourceStore {
			return
		}
	}
	w.t.Fatal("the store is back and is not asked")
}

func TestOpenSpendsTheAllowanceAndRecordsIt(t *testing.T) {
	w := newWorld(t)
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
	if !errors.As(err, &refused) || !errors.Is(err, budget.ErrUnavailable) || !refused.NotCharged || !strings.Contains(err.Error(), "allowance of limit day has 0 left") {
		t.Fatalf("past the allowance: %v", err)
	}
	if _, err := w.charge(b, "safe", "closed"); !errors.Is(err, budget.ErrUnavailable) {
		t.Fatalf("a closed operation: %v", err)
	}
	if used := w.used(); used != 1 {
		t.Fatalf("%d used while the store was away", used)
	}
	w.store.away.Store(false)
	w.back(b)
	if used := w.used(); used != 22 {
		t.Fatalf("%d used, want the first, the allowance's 20 and the last", used)
	}
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
}

// What headroom leaves each of the hosts is all that a host may spend, however
// large its allowance.
func TestHostsShareTheHeadroom(t *testing.T) {
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

// What the host spent counts before anything else is decided, and stays written
// down until the store has it.
func TestRecordedFirst(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	b := w.host(dir)
	for range 9 {
		if _, err := w.charge(b, "search", ""); err != nil {
			t.Fatal(err)
		}
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
	for end := time.Now().Add(10 * time.Second); ; {
		_, err := w.charge(b, "safe", "") // 949 and 2 are used of 950
		if errors.Is(err, budget.ErrExhausted) {
			break
		}
		if !errors.Is(err, budget.ErrUnavailable) || time.Now().After(end) {
			t.Fatalf("with what happened recorded: %v", err)
		}
	}
	if used := w.used(); used != 951 {
		t.Fatalf("%d used", used)
	}
}

// What was recorded after an outage has been seen: a store that loses it then
// has it recorded again.
func TestRecordedIsRemembered(t *testing.T) {
	w := newWorld(t)
	b := w.host(t.TempDir())
	w.charged(b, "before", budget.SourceStore)
	w.store.gone.Store(true)
	for range 3 {
		w.charged(b, "", budget.SourceAllowance)
	}
	w.store.gone.Store(false)
	for end := time.Now().Add(10 * time.Second); w.used() != 4; {
		if _, err := b.Status(context.Background()); err != nil && time.Now().After(end) {
			t.Fatal(err)
		}
	}
	w.store.Store = memstore.New(func() int64 { return time.Now().UnixMicro() })
	w.back(b)
	if used := w.used(); used != 5 {
		t.Fatalf("%d used, want 4 lost and one new", used)
	}
}

// A reply that was lost: the call is charged in the store and granted by the
// allowance; that is one charge.
func TestLostReplyIsOneCharge(t *testing.T) {
	w := newWorld(t)
	b := w.host(t.TempDir())
	w.store.lost.Store(true)
	w.charged(b, "a", budget.SourceAllowance)
	w.store.lost.Store(false)
	w.back(b)
	if used := w.used(); used != 2 {
		t.Fatalf("%d used, want a and the one that found the store back", used)
	}
}

func TestWhoOpens(t *testing.T) {
	open, closed := budget.Open, budget.Closed
	for _, one := range []struct {
		call, operation, job, upstream budget.Policy
		want                           bool
	}{
		{"", "", "", "", false},
		{"", "", "", open, true},
		{"", "", closed, open, false},
		{"", "", open, closed, true},
		{"", closed, open, open, false},
		{"", open, closed, closed, true},
		{closed, open, open, open, false},
		{open, closed, closed, closed, true},
	} {
		w := newWorld(t)
		w.spec.OnStoreError, w.spec.Costs["list"] = one.upstream, budget.Cost{Units: 1, OnStoreError: one.operation}
		b := w.host(t.TempDir()).ForJob(one.job)
		w.store.gone.Store(true)
		_, err := b.Charge(context.Background(), budget.Call{Operation: "list", OnStoreError: one.call})
		if (err == nil) != one.want || err != nil && !errors.Is(err, budget.ErrUnavailable) {
			t.Errorf("call %q, operation %q, job %q, upstream %q: %v", one.call, one.operation, one.job, one.upstream, err)
		}
	}
}

// What the store answers never opens a call, however wrong it is.
func TestConfigurationErrorsNeverOpen(t *testing.T) {
	for _, answer := range []error{budget.ErrStoreConfig, budget.ErrClock, budget.ErrDamaged, budget.ErrClosed} {
		w := newWorld(t)
		store := outage.New(answering{w.store, answer}, outage.Options{Dir: t.TempDir(), Allowance: 20, Timeout: timeout})
		b, err := budget.New(store, w.spec)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := w.charge(b, "list", ""); !errors.Is(err, answer) {
			t.Errorf("%v: %+v, %v", answer, r, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

type answering struct {
	budget.Store
	answer error
}

func (a answering) Decide(context.Context, budget.Batch) (budget.Decisions, error) {
	return budget.Decisions{}, fmt.Errorf("the store says: %w", a.answer)
}

// What leaves a host nothing to spend is closed.
func TestNothingToSpendIsClosed(t *testing.T) {
	for name, change := range map[string]func(*world, *outage.Options){
		"no allowance":           func(_ *world, o *outage.Options) { o.Allowance = 0 },
		"no directory":           func(_ *world, o *outage.Options) { o.Dir = "" },
		"headroom for too many":  func(_ *world, o *outage.Options) { o.Hosts = 51 },
		"a limit without any":    func(w *world, _ *outage.Options) { w.spec.Limits[0].Headroom, w.spec.Limits[0].Quota = 0, 950 },
		"a directory of another": func(_ *world, o *outage.Options) { o.Dir = filepath.Join("/dev/null", "host") },
	} {
		w := newWorld(t)
		o := outage.Options{Dir: t.TempDir(), Allowance: 20, Timeout: timeout}
		change(w, &o)
		store := outage.New(w.store, o)
		b, err := budget.New(store, w.spec)
		if err != nil {
			t.Fatal(err)
		}
		w.store.gone.Store(true)
		if r, err := w.charge(b, "list", ""); !errors.Is(err, budget.ErrUnavailable) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		_ = store.Close() // the directory of another cannot be written
	}
}

// A limit that the store last said is exhausted stays so until it said.
func TestExhaustedStaysExhausted(t *testing.T) {
	w := newWorld(t)
	w.spec.Limits = append(w.spec.Limits, budget.Limit{Name: "burst", Limit: 2, Counts: budget.CountUnits, Window: budget.RollingWindow(500 * time.Millisecond)})
	b := w.host(t.TempDir())
	w.charged(b, "a", budget.SourceStore)
	w.charged(b, "b", budget.SourceStore)
	_, err := w.charge(b, "list", "c")
	var told *budget.RefusedError
	if !errors.Is(err, budget.ErrExhausted) || !errors.As(err, &told) {
		t.Fatal(err)
	}
	until := time.Now().Add(told.RetryAfter)
	w.store.gone.Store(true)
	var refused *budget.RefusedError
	if _, err = w.charge(b, "list", "d"); !errors.Is(err, budget.ErrExhausted) || !errors.As(err, &refused) || refused.Limit != "burst" ||
		refused.Source != budget.SourceAllowance || refused.RetryAfter > told.RetryAfter {
		t.Fatalf("told %v, then without the store %v", told, err)
	}
	time.Sleep(time.Until(until) + time.Millisecond) // the instant itself is awaited
	w.charged(b, "e", budget.SourceAllowance)
}

// Reservations: granted before or within the outage, finished within it.
func TestFinishWithoutTheStore(t *testing.T) {
	w := newWorld(t)
	b := w.host(t.TempDir())
	ctx := context.Background()
	units := int64(10)
	reserve := func(id string) *budget.Reservation {
		r, err := b.Reserve(ctx, budget.Call{Operation: "list", ID: id, Units: &units}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	before, released := reserve("before"), reserve("released")
	w.store.gone.Store(true)
	within := reserve("within")
	if within.Source != budget.SourceAllowance {
		t.Fatalf("%+v", within)
	}
	for range 2 { // the same again is the same
		if err := errors.Join(before.Settle(ctx, 3), released.Release(ctx), within.Settle(ctx, 12)); err != nil {
			t.Fatal(err)
		}
	}
	if err := before.Settle(ctx, 4); !errors.Is(err, budget.ErrConflict) {
		t.Fatalf("settled at another value: %v", err)
	}
	if err := within.Release(ctx); !errors.Is(err, budget.ErrConflict) {
		t.Fatalf("released after it was settled: %v", err)
	}
	w.store.gone.Store(false)
	w.back(b)
	if used := w.used(); used != 3+0+12+1 {
		t.Fatalf("%d used, want 16", used)
	}
}

// A record that the store will not take is set aside and told of; the others are
// recorded.
func TestSetAside(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	b := w.host(dir)
	other := w.host(t.TempDir())
	w.store.gone.Store(true)
	w.charged(b, "taken", budget.SourceAllowance)
	w.charged(b, "fine", budget.SourceAllowance)
	folder := filepath.Join(dir, "journal", "up+key1")
	if err := os.WriteFile(filepath.Join(folder, "0000.charge"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.store.gone.Store(false)
	two := int64(2)
	for { // its breaker is another host's
		if _, err := other.Charge(context.Background(), budget.Call{Operation: "list", ID: "taken", Units: &two, OnStoreError: budget.Closed}); err == nil {
			break
		}
	}
	w.back(b)
	if used := w.used(); used != 2+1+1 {
		t.Fatalf("%d used, want 4", used)
	}
	aside, err := filepath.Glob(filepath.Join(dir, "aside", "up+key1", "*.why"))
	if err != nil || len(aside) != 2 {
		t.Fatalf("set aside: %v, %v", aside, err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the journal's folder is still there: %v", err)
	}
	if !strings.Contains(w.log.String(), "set aside") {
		t.Fatalf("the log says\n%s", w.log.String())
	}
}

// What the store lost is noticed by the host that saw it, and recorded; a reset
// is not a loss.
func TestLossIsNoticed(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	b := w.host(dir)
	for i := range 7 {
		w.charged(b, fmt.Sprint("a", i), budget.SourceStore)
	}
	if err := b.Close(); err != nil { // another process of the host goes on
		t.Fatal(err)
	}
	w.store.Store = memstore.New(func() int64 { return time.Now().UnixMicro() })
	stranger := w.host(t.TempDir()) // saw nothing, notices nothing
	w.charged(stranger, "new", budget.SourceStore)
	b = w.host(dir)
	r := w.charged(b, "b", budget.SourceStore)
	if r.Remaining != 950-7-1-1 || w.used() != 9 {
		t.Fatalf("%+v, %d used: want 7 lost, one of the stranger's and one new", r, w.used())
	}
	if !strings.Contains(w.log.String(), "recovered=7") {
		t.Fatalf("the log says\n%s", w.log.String())
	}
	status, err := b.Status(context.Background())
	if err != nil || status.Limits[0].Recovered != 7 {
		t.Fatalf("status %+v, %v", status, err)
	}
	w.charged(b, "c", budget.SourceStore)
	if used := w.used(); used != 10 {
		t.Fatalf("%d used: recovered twice", used)
	}
}

// Everything the host writes is its user's alone.
func TestFilesAreTheUsersAlone(t *testing.T) {
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
