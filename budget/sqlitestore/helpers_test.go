package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

const (
	second = int64(1_000_000)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour

	name = "up/key1"
)

// patience is the timeout of calls that are to be answered, and how long something is waited for,
// however busy the machine is.
const patience = 5 * time.Minute

// noon is an instant in the middle of an ordinary day, in µs.
var noon = time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC).UnixMicro()

// bench is a store on a clock that stands until it is set.
type bench struct {
	t      testing.TB
	path   string
	store  *sqlitestore.Store
	now    int64
	limits []limit.Limit
}

func newBench(t testing.TB, limits ...limit.Limit) *bench {
	b := &bench{t: t, path: filepath.Join(t.TempDir(), "q.db"), now: noon, limits: limits}
	b.open()
	t.Cleanup(func() { b.close() })
	return b
}

func (b *bench) open() {
	b.t.Helper()
	s := must.Get(sqlitestore.OpenWithClock(context.Background(), b.path, sqlitestore.Options{Timeout: patience}, func() int64 { return b.now }))(b.t)
	b.store = s
}

// tryToOpen is open of what may not open; the store is then the old one, which is
// closed.
func (b *bench) tryToOpen() error {
	s, err := sqlitestore.OpenWithClock(context.Background(), b.path, sqlitestore.Options{Timeout: patience}, func() int64 { return b.now })
	if err == nil {
		b.store = s
	}
	return err
}

func (b *bench) close() {
	b.t.Helper()
	must.Do(b.t, b.store.Close())
}

func (b *bench) try(budgetName string, items ...driver.Item) (driver.Decisions, error) {
	return b.store.Decide(context.Background(), driver.Batch{Budget: budgetName, Now: b.now, Limits: b.limits, Items: items})
}

func (b *bench) decide(items ...driver.Item) []driver.Decision {
	b.t.Helper()
	got := must.Get(b.try(name, items...))(b.t)
	return got.Items
}

func (b *bench) granted(items ...driver.Item) {
	b.t.Helper()
	for i, d := range b.decide(items...) {
		if d.Result != driver.Granted || d.Replayed {
			b.t.Fatalf("%s: %+v, want a new charge", items[i].ID, d)
		}
	}
}

func (b *bench) refused(i driver.Item, at int64) {
	b.t.Helper()
	if d := b.decide(i)[0]; d.Result != driver.Refused || d.RetryAt != at {
		b.t.Fatalf("%s: %+v, want a refusal until %d (%+d µs off)", i.ID, d, at, d.RetryAt-at)
	}
}

func (b *bench) used() int64 {
	b.t.Helper()
	view := must.Get(b.store.Look(context.Background(), driver.Look{Budget: name, Now: b.now, Limits: b.limits}))(b.t)
	return view.Limits[0].Used
}

// query asks the file beside the store.
func query[T any](t testing.TB, path, text string) T {
	t.Helper()
	db := must.Get(sql.Open("sqlite", path+"?_pragma=busy_timeout(300000)"))(t)
	var got T
	if err := errors.Join(db.QueryRow(text).Scan(&got), db.Close()); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return got
}

// execute changes the file behind the store's back.
func execute(t testing.TB, path, text string) {
	t.Helper()
	db := must.Get(sql.Open("sqlite", path+"?_pragma=busy_timeout(300000)"))(t)
	_, err := db.Exec(text)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func rolling(most, length int64, operations ...string) limit.Limit {
	return limit.Limit{
		Name: "w", Limit: most, Counts: limit.CountUnits, Operations: operations,
		Window: limit.RollingWindow(time.Duration(length) * time.Microsecond),
	}
}

func item(id string, units int64) driver.Item {
	return driver.Item{ID: id, Operation: "op", Units: units}
}

func lease(i driver.Item, length int64) driver.Item {
	i.Lease = length
	return i
}
