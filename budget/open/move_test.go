package open_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/ledgerfile"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// moved is the budget that is moved, and its limits.
const moved = "up/key1"

var movedLimits = []limit.Limit{
	{Name: "day", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)},
	{Name: "calls", Limit: limit.MaxUnits, Counts: limit.CountCalls, Window: limit.RollingWindow(24 * time.Hour), Operations: []string{"op-1"}},
}

// A ledger moves from SQLite to Redis and back, while the one that takes it in is charged:
// nothing is lost, and nothing counts twice.
func TestMoveToRedisAndBack(t *testing.T) {
	effort.Processes(t)
	t.Parallel()
	calls := effort.Of[int64](3_000, 10_000, 50_000, 1_000_000)
	rng := rand.New(rand.NewPCG(effort.Seed(t), 1))
	folder, redis := t.TempDir(), redistest.Start(t).URL(0)
	sqlite, other := "sqlite:"+filepath.Join(folder, "a.db"), "sqlite:"+filepath.Join(folder, "b.db")

	var first bytes.Buffer
	units := writeExport(&first, calls, rng)
	inSQLite := take(t, sqlite, first.Bytes(), 0)
	check.Equal(t, inSQLite[0].Used, units, "units in SQLite")

	file := leave(t, sqlite)
	inRedis := take(t, redis, file, 40)
	check.Equal(t, inRedis[0].Used, units+40, "units in Redis")
	check.Equal(t, inRedis[1].Used, inSQLite[1].Used+40, "calls of op-1 in Redis")

	back := leave(t, redis)
	inOther := take(t, other, back, 40)
	check.Equal(t, inOther[0].Used, units+80, "units in the other file")
	check.Equal(t, inOther[1].Used, inSQLite[1].Used+80, "calls of op-1 in the other file")

	home := take(t, sqlite, back, 0)
	check.Equal(t, home[0].Used, units+40, "units where they come from: only what Redis charged is new")
	check.Equal(t, home[0].NextAt, inSQLite[0].NextAt, "when units come back")
}

// writeExport writes an export of charges of the last 20 hours, and returns their units.
func writeExport(to *bytes.Buffer, calls int64, rng *rand.Rand) (units int64) {
	at := func(span time.Duration) string {
		return time.Now().UTC().Add(-span).Format("2006-01-02T15:04:05.000000Z")
	}
	fmt.Fprintf(to, `{"quotactl_export":1,"budget":%q,"export":"MADE","ledger":"SOURCE","at":%q,"since":%q}`+"\n", moved, at(0), at(30*time.Hour))
	for n := range calls {
		cost := rng.Int64N(100)
		units += cost
		fmt.Fprintf(to, `{"id":"id-%d","operation":"op-%d","units":%d,"at":%q,"job":"j"}`+"\n", n, n%3, cost, at(time.Duration(calls-n)*20*time.Hour/time.Duration(calls)))
	}
	fmt.Fprintf(to, `{"rows":%d}`+"\n", calls)
	return units
}

// leave exports from the store at a URL.
func leave(t *testing.T, url string) []byte {
	store := must.Get(open.Store(t.Context(), url, config.Store{Timeout: time.Minute}))(t)
	defer func() { must.Do(t, store.Close()) }()
	var file bytes.Buffer
	must.Get(ledgerfile.Export(t.Context(), store, moved, time.Now(), &file))(t)
	return file.Bytes()
}

// take imports a file into the store at a URL, which makes so many charges of one unit
// meanwhile, and then once more. It returns what the limits have used.
func take(t *testing.T, url string, file []byte, charges int) []driver.LimitView {
	store := must.Get(open.Store(t.Context(), url, config.Store{Timeout: time.Minute}))(t)
	defer func() { must.Do(t, store.Close()) }()
	var group sync.WaitGroup
	group.Go(func() {
		for n := range charges {
			item := driver.Item{ID: fmt.Sprintf("%s-%d", t.Name()+filepath.Base(url), n), Operation: "op-1", Units: 1}
			got, err := store.Decide(t.Context(), driver.Batch{Budget: moved, Now: time.Now().UnixMicro(), Limits: movedLimits, Items: []driver.Item{item}})
			if err != nil || got.Items[0].Result != driver.Granted || got.Items[0].Replayed {
				t.Errorf("charge %d meanwhile: %+v, %v", n, got, err)
			}
		}
	})
	_, err := ledgerfile.Import(t.Context(), store, bytes.NewReader(file), movedLimits, time.Now)
	group.Wait()
	must.Do(t, err)
	again := must.Get(ledgerfile.Import(t.Context(), store, bytes.NewReader(file), movedLimits, time.Now))(t)
	check.Equal(t, again.Added, 0, "added by a second import")
	view := must.Get(store.Look(context.WithoutCancel(t.Context()), driver.Look{Budget: moved, Now: time.Now().UnixMicro(), Limits: movedLimits}))(t)
	return view.Limits
}
