package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// fakeStore is a store on a real server whose clock the test sets.
type fakeStore struct {
	*redisstore.Store
	t     testing.TB
	now   int64
	ahead int64 // µs by which the clock moves on each time it is read
}

func openFake(t testing.TB, url string) *fakeStore {
	t.Helper()
	f := &fakeStore{t: t, now: time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC).UnixMicro()}
	store := must.Get(redisstore.OpenWithClock(url, redisstore.Options{Timeout: patient}, func() int64 {
		f.now += f.ahead
		return f.now
	}))(t)
	t.Cleanup(func() { _ = store.Close() })
	f.Store = store
	return f
}

// startFake is a fakeStore on a server of its own, and a client of that server.
func startFake(t testing.TB) (*fakeStore, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	admin := server.Client()
	return openFake(t, server.URL(0)), admin
}

// charge charges n calls of one unit.
func (f *fakeStore) charge(prefix string, n int) {
	f.t.Helper()
	limits := []limit.Limit{{Name: "w", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)}}
	for done := 0; done < n; {
		var items []driver.Item
		for ; done < n && len(items) < driver.MaxBatch; done++ {
			items = append(items, driver.Item{
				ID: fmt.Sprint(prefix, done), Operation: []string{"a", "b"}[done%2], Units: int64(done % 3),
				Labels: driver.Labels{Job: "trending", Region: "US", Run: "20260610T120000Z"},
			})
		}
		must.Get(f.Decide(f.t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: items}))(f.t)
	}
}

// release reserves under an id and gives it back.
func (f *fakeStore) release(id string) {
	f.t.Helper()
	limits := []limit.Limit{{Name: "w", Limit: limit.MaxUnits, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)}}
	must.Get(f.Decide(f.t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: id, Operation: "a", Units: 1, Lease: 1000}}}))(f.t)
	must.Equal(f.t, must.Get(driver.FinishOne(f.t.Context(), f, name, f.now, driver.Finish{ID: id, Release: true}))(f.t).Result, driver.Released)
}

// I8: all keys of a budget lie under one hash tag and carry one expiry, past the longest window
// by as much again, an hour to a week. Those of the history have an expiry of their own: the last
// of its hours and as long as it is kept.
func TestKeysExpireTogether(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	expiries := func() (at time.Duration) {
		t.Helper()
		keys, err := admin.Keys(t.Context(), "*").Result()
		if err != nil || len(keys) < 6 {
			t.Fatalf("keys %v, %v", keys, err)
		}
		for _, key := range keys {
			if !strings.HasPrefix(key, "quotactl:v1:{"+name+"}:") {
				t.Errorf("key %q is not under the hash tag", key)
			}
			if strings.Contains(key, "}:h:") || strings.Contains(key, "}:l:") { // of the history
				continue
			}
			left, err := admin.PTTL(t.Context(), key).Result()
			if err != nil || left < 0 {
				t.Fatalf("%s expires in %s, %v", key, left, err)
			}
			if at == 0 {
				at = left
			}
			if d := left - at; d > 5*time.Second || d < -5*time.Second {
				t.Errorf("%s expires in %s, another key in %s", key, left, at)
			}
		}
		return at
	}
	const want = 2 * time.Hour
	f.charge("first", 6)
	if left := expiries(); left > want || left < want-time.Minute {
		t.Fatalf("keys expire in %s, want %s", left, want)
	}
	written := func() int64 { // as the store notes it, on its own clock
		t.Helper()
		return must.Get(admin.HGet(t.Context(), "quotactl:v1:{"+name+"}:m", "exp").Int64())(t)
	}
	first := written()
	f.now += 14 * time.Minute.Microseconds()
	f.charge("within a quarter of an hour", 6)
	if got := written(); got != first {
		t.Fatalf("expiry %d written again within a quarter of an hour, was %d", got, first)
	}
	f.now += 2 * time.Minute.Microseconds()
	f.charge("past it", 6)
	if got := written(); got < first+16*60_000 {
		t.Fatalf("expiry %d past a quarter of an hour, was %d", got, first)
	}
	expiries()
	// A lock keeps them until its end.
	const locked = 30 * 24 * time.Hour
	must.Get(driver.Apply(t.Context(), f, driver.Lock{Budget: name, Now: f.now, After: locked.Microseconds(), Most: locked.Microseconds()}))(t)
	if left, kept := expiries(), locked+time.Hour; left > kept || left < kept-time.Minute {
		t.Fatalf("keys expire in %s, want %s past the lock", left, kept)
	}
}

// Entries that have left every window and the hour are removed, so that memory is bounded.
func TestEntriesArePruned(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	for round := range 6 {
		f.charge(fmt.Sprint(round, "-"), 1000)
		f.now += 61 * time.Minute.Microseconds()
	}
	for i := range 4 {
		f.charge(fmt.Sprint("last", i), 1)
		f.now += 2 * time.Minute.Microseconds()
	}
	must.Equal(t, must.Get(admin.HLen(t.Context(), "quotactl:v1:{"+name+"}:e").Result())(t), 4, "entries are left; want the last 4")
}

// A ledger that has lost one of its keys is not decided on.
func TestLostKeysAreNoticed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	for _, part := range []string{"m", "e", "z:1", "z:2", "y:1", "y:2", "r:1"} {
		must.Do(t, admin.FlushAll(t.Context()).Err())
		f := openFake(t, server.URL(0))
		f.charge("a", 9)
		f.release("r")
		key := "quotactl:v1:{" + name + "}:" + part
		must.Equal(t, must.Get(admin.Del(t.Context(), key).Result())(t), 1, "delete", key)
		limits := []limit.Limit{{Name: "w", Limit: 100, Window: limit.RollingWindow(time.Minute)}}
		_, err := f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: "b", Operation: "a", Units: 1}}})
		check.Is(t, err, driver.ErrDamaged, "without", part)
		check.Is(t, check.Err(driver.FinishOne(t.Context(), f, name, f.now, driver.Finish{ID: "a1"})), driver.ErrDamaged, "finish without", part)
	}
}

// A divided limit whose totals say that more is used than its entries is damaged: there is
// no instant at which the call fits.
func TestDamagedBesideSharesIsNoticed(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	day := limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t))
	for i, window := range []limit.Window{limit.RollingWindow(time.Hour), day} {
		budget := fmt.Sprint("up/", i)
		decide := func(id string, units int64) (driver.Decisions, error) {
			limits := []limit.Limit{{
				Name: "w", Limit: 100, Counts: limit.CountUnits, Window: window,
				Shares: []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 10}},
			}}
			return f.Decide(t.Context(), driver.Batch{Budget: budget, Now: f.now, Limits: limits, Items: []driver.Item{{ID: id, Operation: "op", Units: units}}})
		}
		must.Do(t, check.Err(decide("a", 50)))
		key := "quotactl:v1:{" + budget + "}:z:1"
		score := must.Get(admin.ZScore(t.Context(), key, "50:a").Result())(t)
		must.Equal(t, must.Get(admin.ZRem(t.Context(), key, "50:a").Result())(t), 1)
		must.Do(t, admin.ZAdd(t.Context(), key, redis.Z{Score: score, Member: "5:a"}).Err())
		must.Do(t, check.Err(decide("b", 1)))
		_, err := decide("c", 60)
		check.Is(t, err, driver.ErrDamaged, "with more used than entries, in", window.Key())
	}
}

// A reset removes every key, also those of the most operations and pairs.
func TestResetRemovesPairs(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	limits := []limit.Limit{{Name: "w", Limit: 10_000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}}
	const patterns = 4
	for i := range patterns {
		job := fmt.Sprint("job", i)
		limits[0].Shares = append(limits[0].Shares, limit.Share{Name: job, Jobs: []string{job}, Guarantee: 1})
	}
	for op := range driver.MaxPairs / patterns {
		b := driver.Batch{Budget: name, Now: f.now, Limits: limits}
		for i := range patterns {
			b.Items = append(b.Items, driver.Item{ID: fmt.Sprint(op, "-", i), Operation: fmt.Sprint("op", op), Units: 1, Labels: driver.Labels{Job: fmt.Sprint("job", i)}})
		}
		must.Do(t, check.Err(f.Decide(t.Context(), b)))
	}
	last := driver.MaxPairs + driver.MaxPairs/patterns
	key := fmt.Sprintf("quotactl:v1:{%s}:z:%d", name, last)
	must.Equal(t, must.Get(admin.Exists(t.Context(), key).Result())(t), 1, key)
	must.Do(t, check.Err(driver.Apply(t.Context(), f, driver.Reset{Budget: name})))
	for _, key := range must.Get(admin.Keys(t.Context(), "*").Result())(t) {
		if strings.Contains(key, ":z:") || strings.Contains(key, ":y:") || strings.Contains(key, ":r:") {
			t.Errorf("after a reset there is %s", key)
		}
	}
}

// A charge is one entry whatever its units, and small.
func TestBytesPerCharge(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	memory := func() (bytes int64) {
		t.Helper()
		keys := must.Get(admin.Keys(t.Context(), "*").Result())(t)
		for _, key := range keys {
			n := must.Get(admin.MemoryUsage(t.Context(), key, 0).Result())(t)
			bytes += n
		}
		return bytes
	}
	f.charge("a", 1000)
	before := memory()
	f.charge("b", 20_000)
	each := (memory() - before) / 20_000
	t.Logf("%d bytes a charge with job, region and run", each)
	if each > 400 {
		t.Fatalf("%d bytes a charge", each)
	}
}

// stateNumber is one of the numbers of the state of a ledger, which begin behind its head.
func stateNumber(t *testing.T, admin *redis.Client, place int) float64 {
	t.Helper()
	state := must.Get(admin.HGet(t.Context(), "quotactl:v1:{"+name+"}:m", "s").Bytes())(t)
	return math.Float64frombits(binary.LittleEndian.Uint64(state[24+8*(place-1):]))
}

func TestOperationsBeyondThoseToldApart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := openFake(t, server.URL(0))
	limits := []limit.Limit{{Name: "all", Limit: 1000, Window: limit.RollingWindow(time.Hour)}}
	for i := range driver.MaxOperations + 20 {
		got, err := f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{{ID: fmt.Sprint(i), Operation: fmt.Sprint("op", i), Units: 1}}})
		if err != nil || got.Items[0].Result != driver.Granted || got.Items[0].Remaining != int64(999-i) {
			t.Fatalf("operation %d: %+v, %v", i, got, err)
		}
	}
	admin := server.Client()
	must.Equal(t, int(stateNumber(t, admin, redisstore.StateOperations)), driver.MaxOperations, "operations are told apart")
}
