package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
)

// bucketOf is a bucket that drains one unit a minute.
func bucketOf(t *testing.T, name string, operations ...string) limit.Limit {
	t.Helper()
	return limit.Limit{
		Name: name, Limit: 1000, Counts: limit.CountUnits, Operations: operations,
		Window: limit.BucketWindow(must.Get(limit.NewRefill(1, time.Minute))(t)),
	}
}

// A ledger that can distinguish no more operations counts further ones in every bucket that may
// cover one of them.
func TestUsualBucketOfOtherOperations(t *testing.T) {
	t.Parallel()
	const known, operations = driver.MaxOperations - 1, driver.MaxOperations + 20
	f, runs, decide := usualFake(t, bucketOf(t, "all"), bucketOf(t, "but", "!other"), bucketOf(t, "named", "op1"), bucketOf(t, "unknown", "op1", fmt.Sprint("op", known+5)))
	named, unknown := int64(0), int64(0)
	for n := range int64(2 * operations) {
		f.now++
		operation := n % operations
		if operation == 1 {
			named++
		}
		if operation == 1 || operation >= known {
			unknown++
		}
		got := decide(driver.Item{ID: fmt.Sprint(n), Operation: fmt.Sprint("op", operation), Units: 1})
		must.Equal(t, fmt.Sprint(got.Used), fmt.Sprint([]int64{n + 1, n + 1, named, unknown}), "used after charge", n)
	}
	if decided := runs.decided.Load(); decided < operations {
		t.Errorf("usual.lua decided %d charges", decided)
	}
}

// A bucket that a program does not know any more, or not yet, gets what that charges.
func TestUsualBucketOfAnotherProgram(t *testing.T) {
	t.Parallel()
	f, runs, decide := usualFake(t, rolling("w", 1000, time.Hour))
	bucket := []limit.Limit{bucketOf(t, "b", "a")}
	used := func() int64 {
		t.Helper()
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: bucket, Host: "0a"}))(t).Used[0]
	}
	used()
	for n := range 20 {
		f.now++
		decide(driver.Item{ID: fmt.Sprint(n), Operation: []string{"a", "b"}[n%2], Units: 5})
	}
	must.Equal(t, runs.decided.Load() >= 15, true, "usual.lua decided")
	must.Equal(t, used(), 50, "used in the bucket")
	f.now += 10 * time.Minute.Microseconds()
	decide(driver.Item{ID: "later", Operation: "b", Units: 5})
	must.Equal(t, used(), 40, "used ten minutes later")
}

// A limit whose bucket refills at another rate from one call to the next is counted at that rate.
func TestUsualBucketOfAnotherRate(t *testing.T) {
	t.Parallel()
	f, _ := startFake(t)
	model := memstore.New(func() int64 { return f.now })
	for n := range 24 {
		bucket := bucketOf(t, "b")
		if n/4%2 == 1 {
			bucket.Window = limit.BucketWindow(must.Get(limit.NewRefill(1, time.Second))(t))
		}
		f.now += 1_500_000
		b := driver.Batch{Budget: name, Now: f.now, Limits: []limit.Limit{bucket}, Host: "0a", Items: []driver.Item{{ID: fmt.Sprint(n), Operation: "op", Units: 3}}}
		must.Equal(t, must.Get(f.Decide(t.Context(), b))(t).Used[0], must.Get(model.Decide(t.Context(), b))(t).Used[0], "used after charge", n)
	}
}

// The level of a bucket is exact also far above its limit, where another program's charges bring it.
func TestUsualBucketFarAboveItsLimit(t *testing.T) {
	t.Parallel()
	bucket := bucketOf(t, "b")
	bucket.Limit = 9_000_000_000
	bucket.Window = limit.BucketWindow(must.Get(limit.NewRefill(8_725_400_642, 999_983*time.Microsecond))(t))
	f, _ := startFake(t)
	runs := countRuns(f.Store)
	model := memstore.New(func() int64 { return f.now })
	both := func(l limit.Limit, items ...driver.Item) {
		t.Helper()
		b := driver.Batch{Budget: name, Now: f.now, Limits: []limit.Limit{l}, Items: items, Host: "0a"}
		got, want := must.Get(f.Decide(t.Context(), b))(t), must.Get(model.Decide(t.Context(), b))(t)
		must.Equal(t, fmt.Sprint(got.Used), fmt.Sprint(want.Used), "used after", items)
	}
	both(bucket)
	for n, units := range []int64{1, 1, 1, 85_000_000_001, 1, 1} {
		both(rolling("w", limit.MaxUnits, time.Hour), driver.Item{ID: fmt.Sprint(n), Operation: "op", Units: units})
		f.now += 3 * 999_983
	}
	must.Equal(t, runs.decided.Load(), 4, "runs of usual.lua that decided")
	for n := range 4 {
		f.now += 3
		both(bucket, driver.Item{ID: fmt.Sprint("of bucket", n), Operation: "op", Units: 1})
	}
	must.Equal(t, runs.decided.Load(), 7, "runs of usual.lua that decided")
}

// A call that fits by the time of its charge is charged in one run, though it did not when
// the bucket changed last.
func TestUsualBucketDrainsFirst(t *testing.T) {
	t.Parallel()
	bucket := bucketOf(t, "b")
	bucket.Window = limit.BucketWindow(must.Get(limit.NewRefill(1, time.Second))(t))
	f, runs, decide := usualFake(t, bucket)
	for n, units := range []int64{1, 1, 1, 997} {
		decide(driver.Item{ID: fmt.Sprint(n), Operation: "op", Units: units})
	}
	before := runs.decided.Load()
	for n := range 5 {
		f.now += time.Second.Microseconds()
		got := decide(driver.Item{ID: fmt.Sprint("more", n), Operation: "op", Units: 1})
		must.Equal(t, fmt.Sprint(got.Items[0].Result, got.Used), fmt.Sprint(driver.Granted, []int64{1000}), "charge", n)
	}
	must.Equal(t, runs.decided.Load()-before, 5, "runs of usual.lua that decided")
}

// A ledger without the buckets whose levels it has, or with others, is damaged.
func TestBucketsAndLevelsDisagree(t *testing.T) {
	t.Parallel()
	for _, meters := range []string{"", "strange", "b:1:60000000:u:0123456789abcdef -", "b:1:1:u:x - 1 2 3 4 5;b:1:2:u:x - 1 2 3 4 5"} {
		f, admin := startFake(t)
		decide := func(id string) error {
			_, err := f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: []limit.Limit{bucketOf(t, "b")}, Items: []driver.Item{{ID: id, Operation: "op", Units: 1}}})
			return err
		}
		must.Do(t, decide("a"))
		must.Do(t, admin.HSet(t.Context(), "quotactl:v1:{"+name+"}:m", "meters", meters).Err())
		f.ForgetPlans()
		must.Is(t, decide("b"), driver.ErrDamaged, meters)
	}
}
