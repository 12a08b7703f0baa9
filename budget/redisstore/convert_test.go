package redisstore_test

import (
	"crypto/sha1" //nolint:gosec // the script's digest
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// olderKey is a key of a ledger as an older version left it after olderCharges. testdata has the
// keys by format: 1 is of 2026-11-25, and 2 of the day after.
type olderKey struct {
	Hash   map[string]string `json:"hash,omitempty"`
	Packed map[string][]byte `json:"packed,omitempty"` // fields that are no text
	Zset   []redis.Z         `json:"zset,omitempty"`
	Text   string            `json:"text,omitempty"`
}

// restoreOlder writes the keys of a ledger.
func restoreOlder(t *testing.T, admin *redis.Client, keys map[string]olderKey) {
	t.Helper()
	for key, k := range keys {
		switch {
		case k.Hash != nil:
			must.Do(t, admin.HSet(t.Context(), key, k.Hash).Err())
			for field, packed := range k.Packed {
				must.Do(t, admin.HSet(t.Context(), key, field, packed).Err())
			}
		case k.Zset != nil:
			must.Do(t, admin.ZAdd(t.Context(), key, k.Zset...).Err())
		default:
			must.Do(t, admin.Set(t.Context(), key, k.Text, 0).Err())
		}
	}
}

// olderLimits are two configurations whose windows the ledger has.
func olderLimits(t testing.TB) [2][]limit.Limit {
	t.Helper()
	day := must.Get(limit.NewCalendar(limit.Day, "America/Los_Angeles", 0))(t)
	bucket := must.Get(limit.NewRefill(1, time.Second))(t)
	of := func(name string, most int64, w limit.Window) limit.Limit {
		return limit.Limit{Name: name, Limit: most, Counts: limit.CountUnits, Window: w}
	}
	some, divided, calls := of("some", 500, limit.RollingWindow(2*time.Hour)), of("divided", 2000, limit.CalendarWindow(day)), of("calls", 300, limit.RollingWindow(time.Hour))
	some.Operations, calls.Counts = []string{"op1", "op2"}, limit.CountCalls
	divided.Shares = []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 300}, {Name: "rest", Jobs: []string{"rest.*"}, Guarantee: 200, Lapse: time.Hour.Microseconds()}}
	open := of("open", 3, limit.ConcurrentWindow())
	open.Counts = limit.CountCalls
	return [2][]limit.Limit{
		{of("hour", 900, limit.RollingWindow(time.Hour)), some, divided, calls, of("bucket", 400, limit.BucketWindow(bucket))},
		{of("coarse", 5000, limit.CoarseWindow(3*time.Hour, time.Minute)), open, of("short", 200, limit.RollingWindow(time.Minute))},
	}
}

// olderCharges charges, reserves, settles, releases, records and locks. It is the same for the
// store that the file was made with and for the model.
func olderCharges(t testing.TB, s driver.Store, now *int64) {
	t.Helper()
	limits := olderLimits(t)
	for i := range 160 {
		*now += 23_000_000
		item := driver.Item{ID: fmt.Sprint("i", i), Operation: fmt.Sprint("op", i%4), Units: int64(i * 7 % 11), Labels: driver.Labels{Job: []string{"nightly", "rest.a", "other", ""}[i%4], Region: "US"}}
		if i%5 == 4 {
			item.Lease = 600_000_000
		}
		if i == 70 {
			item.Recorded, item.Age = true, 30_000_000
		}
		must.Get(s.Decide(t.Context(), driver.Batch{Budget: name, Now: *now, Limits: limits[i/3%2], Items: []driver.Item{item}, Host: "0a"}))(t)
		if i%10 == 9 {
			must.Get(driver.FinishOne(t.Context(), s, name, *now, driver.Finish{ID: fmt.Sprint("i", i-5), Units: int64(i % 7), Release: i%20 == 9}))(t)
		}
	}
	must.Get(driver.Apply(t.Context(), s, driver.Report{Budget: name, Now: *now, Limits: limits[0], Limit: "hour", Used: 450}))(t)
}

// A ledger of an older format goes on as it was: decisions on it, what each limit has used
// and who spent what are as on a ledger that the model has kept in full.
func TestConvertsTheOlderFormat(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	for _, format := range []string{"1", "2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			testConverts(t, format)
		})
	}
}

func testConverts(t *testing.T, format string) {
	var keys map[string]olderKey
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile("testdata/format"+format+".json"))(t), &keys))
	for what, first := range map[string]func(t *testing.T, f *fakeStore){
		"by a charge": func(*testing.T, *fakeStore) {},
		"by a look": func(t *testing.T, f *fakeStore) {
			must.Get(f.Look(t.Context(), driver.Look{Budget: name, Now: f.now, Limits: olderLimits(t)[0]}))(t)
		},
		"by a finish": func(t *testing.T, f *fakeStore) {
			got := must.Get(driver.FinishOne(t.Context(), f, name, f.now, driver.Finish{ID: "i0", Release: true}))(t)
			must.Equal(t, got.Result, driver.FinishConflict, "release a plain charge")
		},
		"by an export": func(t *testing.T, f *fakeStore) {
			rows := &noteRows{}
			must.Do(t, f.Export(t.Context(), driver.Export{Budget: name, Now: f.now}, rows))
			must.Equal(t, rows.n > 100, true, "rows")
		},
		"by accepting the clock": func(t *testing.T, f *fakeStore) {
			must.Get(driver.Apply(t.Context(), f, driver.AcceptClock{Budget: name}))(t)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f, admin := startFake(t)
			model := memstore.New(func() int64 { return f.now })
			olderCharges(t, model, &f.now)
			restoreOlder(t, admin, keys)
			must.Equal(t, must.Get(admin.HGet(t.Context(), "quotactl:v1:{"+name+"}:m", "v").Result())(t), format, "format")
			first(t, f)
			sameUse(t, f, model)
			sameLedgers(t, f, model)
			check.Equal(t, must.Get(admin.HGet(t.Context(), "quotactl:v1:{"+name+"}:m", "v").Result())(t), "3", "format")
			check.Equal(t, must.Get(admin.Exists(t.Context(), "quotactl:v1:{"+name+"}:x").Result())(t), 0, "keys of the older format")
		})
	}
	t.Run("a reset", func(t *testing.T) {
		t.Parallel()
		f, admin := startFake(t)
		restoreOlder(t, admin, keys)
		must.Get(driver.Apply(t.Context(), f, driver.Reset{Budget: name}))(t)
		got := must.Get(f.Look(t.Context(), driver.Look{Budget: name, Now: f.now, Limits: olderLimits(t)[0]}))(t)
		check.Equal(t, got.Limits[0].Used, 0, "used after a reset")
		left := must.Get(admin.Keys(t.Context(), "*:[exzyr]*").Result())(t)
		check.Equal(t, strings.Join(left, " "), "", "keys after a reset")
	})
}

// noteRows counts the rows of an export.
type noteRows struct{ n int }

func (r *noteRows) Head(driver.LedgerHead) error { return nil }

func (r *noteRows) Row(driver.Row) error {
	r.n++
	return nil
}

// sameUse compares what the limits have used.
func sameUse(t *testing.T, f *fakeStore, model driver.Store) {
	t.Helper()
	for _, set := range olderLimits(t) {
		look := driver.Look{Budget: name, Now: f.now, Limits: set}
		seen, wanted := must.Get(f.Look(t.Context(), look))(t), must.Get(model.Look(t.Context(), look))(t)
		for j := range set {
			if seen.Limits[j].Used != wanted.Limits[j].Used || seen.Limits[j].Drift != wanted.Limits[j].Drift || seen.Limits[j].NextAt != wanted.Limits[j].NextAt {
				t.Fatalf("at %d: %+v of %s, want %+v", f.now, seen.Limits[j], set[j].Name, wanted.Limits[j])
			}
		}
	}
}

// sameLedgers goes on charging on both stores, and compares all that they answer.
func sameLedgers(t *testing.T, f *fakeStore, model driver.Store) {
	t.Helper()
	limits := olderLimits(t)
	for i := range 200 {
		f.now += 37_000_000
		set := limits[i/5%2]
		item := driver.Item{ID: fmt.Sprint("i", 100+i), Operation: fmt.Sprint("op", i%5), Units: int64(i * 5 % 13), Labels: driver.Labels{Job: []string{"nightly", "rest.a", "other", ""}[i%4], Region: "US"}}
		if i >= 60 {
			item.ID = fmt.Sprint("later", i)
		}
		batch := driver.Batch{Budget: name, Now: f.now, Limits: set, Items: []driver.Item{item}, Host: "0a"}
		got, want := must.Get(f.Decide(t.Context(), batch))(t), must.Get(model.Decide(t.Context(), batch))(t)
		if !reflect.DeepEqual(got.Items, want.Items) || !reflect.DeepEqual(got.Used, want.Used) {
			t.Fatalf("step %d: %+v, used %v; want %+v, used %v", i, got.Items, got.Used, want.Items, want.Used)
		}
		if i%effort.Of(10, 10, 1) == 0 { // a look takes longer than the decision, which says what was used too
			sameUse(t, f, model)
		}
	}
	query := driver.SpentQuery{Budget: name, Now: f.now, By: driver.ByOperation}
	got, want := must.Get(f.Spent(t.Context(), query))(t), must.Get(model.Spent(t.Context(), query))(t)
	for _, rows := range [][]driver.SpentRow{got.Rows, want.Rows} {
		slices.SortFunc(rows, func(a, b driver.SpentRow) int { return strings.Compare(a.Name, b.Name) })
	}
	check.Equal(t, fmt.Sprint(got.Rows), fmt.Sprint(want.Rows), "who spent what")
}

// The head of a ledger is none that a program of an older format has a plan for.
func TestHeadOfAnotherFormat(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	for id := range 2 {
		must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: []limit.Limit{rolling("w", 100, time.Hour)}, Items: []driver.Item{{ID: fmt.Sprint(id), Operation: "op", Units: 1}}, Host: "0a"}))(t)
	}
	m := must.Get(admin.HGetAll(t.Context(), "quotactl:v1:{"+name+"}:m").Result())(t)
	head := func(format ...string) string {
		sum := sha1.Sum([]byte(strings.Join(append(format, m["lid"], m["sig"], m["hosts"], "noted", m["plans"], "r:3600000000"), "\n")))
		return hex.EncodeToString(sum[:])[:24]
	}
	check.Equal(t, m["s"][:24], head("3"), "the head")
	check.Equal(t, m["s"][:24] == head(), false, "it is that of format 2")
}

// A ledger of an older format with buckets that cannot be read is damaged, and does not
// change.
func TestConvertsNoUnreadableBuckets(t *testing.T) {
	t.Parallel()
	var keys map[string]olderKey
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile("testdata/format2.json"))(t), &keys))
	f, admin := startFake(t)
	restoreOlder(t, admin, keys)
	key := "quotactl:v1:{" + name + "}:m"
	must.Do(t, admin.HSet(t.Context(), key, "meters", "b:1:1000000:u:da39a3ee5e6b4b0d - 7 0 1").Err())
	_, err := f.Look(t.Context(), driver.Look{Budget: name, Now: f.now, Limits: olderLimits(t)[0]})
	must.Is(t, err, driver.ErrDamaged)
	must.Equal(t, must.Get(admin.HGet(t.Context(), key, "v").Result())(t), "2", "format")
	must.Get(driver.Apply(t.Context(), f, driver.Reset{Budget: name}))(t)
	must.Get(f.Look(t.Context(), driver.Look{Budget: name, Now: f.now, Limits: olderLimits(t)[0]}))(t)
}
