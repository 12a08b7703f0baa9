package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/redisstore"
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

// The level of a bucket that an earlier build wrote beside its patterns is taken over.
func TestBucketOfEarlierBuilds(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	limits := []limit.Limit{bucketOf(t, "b"), bucketOf(t, "c", "op")}
	charge := func(n int) int64 {
		t.Helper()
		f.now++
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Host: "0a", Items: []driver.Item{{ID: fmt.Sprint(n), Operation: "op", Units: 7}}}))(t).Used[0]
	}
	charge(0)
	key := "quotactl:v1:{" + name + "}:m"
	state, meters := must.Get(admin.HGet(t.Context(), key, "s").Bytes())(t), strings.Split(must.Get(admin.HGet(t.Context(), key, "meters").Result())(t), ";")
	number := func(i int) int64 {
		return int64(math.Float64frombits(binary.LittleEndian.Uint64(state[redisstore.StateHead+8*i:])))
	}
	levels := int(9 + 7*number(6) + 3*number(7))
	for i, meter := range meters {
		part := strings.SplitN(meter, " ", 3)
		meters[i] = fmt.Sprint(part[0], " ", part[1], " ", number(levels+3*i), " ", number(levels+3*i+1), " ", number(levels+3*i+2), " ", part[2])
	}
	from := redisstore.StateHead + 8*levels
	state = slices.Delete(state, from, from+8*3*len(meters))
	must.Do(t, admin.HSet(t.Context(), key, "s", strings.Repeat("-", redisstore.StateHead)+string(state[redisstore.StateHead:]), "meters", strings.Join(meters, ";")).Err())
	for n := range 4 {
		must.Equal(t, charge(n+1), int64(14+7*n), "used")
	}
}

// What fits by the time of a charge is charged in one run, though it did not when the bucket
// changed last.
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
