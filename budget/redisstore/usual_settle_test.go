package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// settleWalk decides each batch twice on the same ledger: by a store that finishes with the
// decision, and by one that is asked to finish first.
type settleWalk struct {
	usualWalk
	admin    *redis.Client
	runs     [2]*usualRuns
	reserved []driver.Finish // at what was reserved
	mark     driver.Mark
	compared int
}

func (w *settleWalk) keys() []string {
	return must.Get(w.admin.Keys(w.t.Context(), "*{"+w.name+"}*").Result())(w.t)
}

// dump is the ledger as RESTORE takes it.
func (w *settleWalk) dump() map[string]string {
	all := map[string]string{}
	for _, key := range w.keys() {
		all[key] = must.Get(w.admin.Dump(w.t.Context(), key).Result())(w.t)
	}
	return all
}

func (w *settleWalk) restore(all map[string]string) {
	if now := w.keys(); len(now) > 0 {
		must.Do(w.t, w.admin.Del(w.t.Context(), now...).Err())
	}
	for key, text := range all {
		must.Do(w.t, w.admin.Restore(w.t.Context(), key, time.Hour, text).Err())
	}
}

// state is what the keys hold, but for when they expire, and for when there is something to tidy,
// of which usual.lua tells once a second, and again after finish.lua.
func (w *settleWalk) state() map[string]any {
	all, ctx := map[string]any{}, w.t.Context()
	for _, key := range w.keys() {
		switch kind := must.Get(w.admin.Type(ctx, key).Result())(w.t); kind {
		case "hash":
			fields := must.Get(w.admin.HGetAll(ctx, key).Result())(w.t)
			if s := fields["s"]; strings.HasSuffix(key, ":m") {
				const tidy = 24 + 8*8
				fields["s"] = s[:tidy] + s[tidy+8:]
				delete(fields, "exp")
			}
			all[key] = fields
		case "zset":
			all[key] = must.Get(w.admin.ZRangeWithScores(ctx, key, 0, -1).Result())(w.t)
		default:
			all[key] = must.Get(w.admin.Get(ctx, key).Result())(w.t)
		}
	}
	return all
}

// finish ends some reservations, mostly as usual.lua takes them.
func (w *settleWalk) finish() (list []driver.Finish) {
	odd := w.rng.IntN(3) == 0
	for range pick(w.rng, 0, 1, 1, 2, 3, 7) {
		if len(w.reserved) == 0 {
			break
		}
		at := w.rng.IntN(len(w.reserved))
		f := w.reserved[at]
		f.Age = pick[int64](w.rng, 0, 0, 700, 5000, 40_000)
		switch k := w.rng.IntN(12); {
		case odd && k == 0:
			f.Units = w.rng.Int64N(9)
		case odd && k == 1:
			f.Release = true
		case odd && k == 2:
			f.ID = "unknown"
		case odd && k == 3:
			f.Age = pick[int64](w.rng, 70_000_000, 4_000_000_000)
		case odd && k == 4: // it comes again
		default:
			w.reserved = slices.Delete(w.reserved, at, at+1)
		}
		list = append(list, f)
	}
	return list
}

func (w *settleWalk) batch() driver.Batch {
	b := driver.Batch{Budget: w.name, Now: w.now + pick(w.rng, w.skews...), Limits: w.configs[max(0, w.rng.IntN(8)-6)], Host: "0a", Mark: w.mark, Finishes: w.finish()}
	for range pick(w.rng, 1, 1, 2, 5) {
		item := w.item()
		item.DryRun = false
		if w.rng.IntN(3) > 0 {
			item.Lease = pick[int64](w.rng, 2_000_000, 120_000_000, 120_000_000)
		}
		if w.rng.IntN(4) == 0 {
			item.Fence = "f"
		}
		if w.rng.IntN(40) == 0 {
			item = driver.Item{ID: item.ID, Units: 3, Lease: 2_000_000, Fence: "f", Needs: []driver.Need{{Operation: "upload", Units: 3, Calls: 2}}}
		}
		b.Items = append(b.Items, item)
	}
	return b
}

func (w *settleWalk) step(n int) {
	w.t.Helper()
	w.now += pick[int64](w.rng, 0, 1, 1000, 1000, 1000, 30_000, 300_000, w.rng.Int64N(20_000_000))
	b, before, ctx := w.batch(), w.dump(), w.t.Context()
	count := func(i int) [3]int64 {
		return [3]int64{w.runs[i].decided.Load(), w.runs[i].left.Load(), w.runs[i].other.Load()}
	}
	first, second := count(0), count(1)
	got, err := w.stores[0].Decide(ctx, b)
	state := w.state()
	w.restore(before)
	first[0]++
	usual := len(b.Finishes) > 0 && count(0) == first

	finishes := driver.Finishes{Budget: w.name, Now: b.Now, Items: b.Finishes}
	finished, wanted := w.stores[1].Finish(ctx, finishes)
	b.Finishes = nil
	want, other := w.stores[1].Decide(ctx, b)
	second[0], second[2] = second[0]+1, second[2]+1
	if (err == nil) != (wanted == nil && other == nil) {
		w.t.Fatalf("step %d: %v, not %v, %v", n, err, wanted, other)
	}
	if !reflect.DeepEqual(append([]driver.Finished{}, got.Finished...), append([]driver.Finished{}, finished...)) || !reflect.DeepEqual(got.Items, want.Items) {
		w.t.Fatalf("step %d: %+v before %+v:\n got %+v\nwant %+v, %+v", n, finishes, b, got, finished, want)
	}
	w.mark = want.Mark
	for i, d := range want.Items {
		if item := b.Items[i]; d.Result == driver.Granted && item.Lease > 0 && !item.DryRun {
			w.reserved = append(w.reserved, driver.Finish{ID: item.ID, Units: item.Units})
		}
	}
	if !usual || count(1) != second { // one of them has done more than this
		return
	}
	w.compared++
	for key, is := range w.state() {
		if !reflect.DeepEqual(state[key], is) {
			w.t.Fatalf("step %d: after %+v before %+v, %s:\n got %q\nwant %q", n, finishes, b, key, state[key], is)
		}
		delete(state, key)
	}
	must.Equal(w.t, len(state), 0, "keys too many")
}

// What usual.lua settles before charges is on the ledger as if finish.lua had settled it, bit for bit,
// whatever windows, buckets, shares, holds and history there are; and what it leaves, finish.lua does.
func TestUsualSettlesAsFinish(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	server := redistest.Start(t)
	rng := rand.New(rand.NewPCG(effort.Seed(t), 19))
	compared := 0
	for i, history := range []time.Duration{0, -1, 0} {
		w := &settleWalk{usualWalk: usualWalk{t: t, rng: rng, now: time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC).UnixMicro(), buckets: i == 2}, admin: server.Client()}
		w.skews = append(slices.Repeat([]int64{0, 0, 0, -700, 400}, 20), 61_000_000, -61_000_000)
		for j := range w.stores {
			store := must.Get(redisstore.OpenWithClock(server.URL(0), redisstore.Options{Timeout: patient, History: history}, func() int64 { return w.now }))(t)
			defer func() { _ = store.Close() }()
			w.stores[j], w.runs[j] = store, countRuns(store)
		}
		for n := range effort.Of(4, 8, 40, 400) {
			w.name, w.reserved, w.mark = fmt.Sprint("us/", i, "/", n), nil, driver.Mark{}
			for j := range w.configs {
				w.configs[j] = w.limits()
				for k := range w.configs[j] {
					w.configs[j][k].Limit *= pick[int64](w.rng, 1, 100)
					w.configs[j][k].Observe = w.rng.IntN(6) == 0
				}
			}
			for n := range 150 {
				w.step(n)
			}
		}
		t.Logf("history %v: %d runs of usual.lua settled", history, w.compared)
		compared += w.compared
	}
	if compared < 60 {
		t.Error("usual.lua hardly settled")
	}
}

// What usual.lua settles leaves a window at the settlement's end, to the microsecond, and is settled
// once, at what it was charged.
func TestUsualSettles(t *testing.T) {
	t.Parallel()
	f, runs, _ := usualFake(t)
	limits := []limit.Limit{rolling("w", 1000, time.Second), rolling("long", 1000, time.Hour)}
	n := 0
	decide := func(lease int64, finishes ...driver.Finish) driver.Decisions {
		t.Helper()
		n++
		item := driver.Item{ID: fmt.Sprint("i", n), Operation: fmt.Sprint("op", n%2), Units: 1, Lease: lease}
		return must.Get(f.Decide(t.Context(), driver.Batch{Budget: name, Now: f.now, Limits: limits, Items: []driver.Item{item}, Finishes: finishes, Host: "0a"}))(t)
	}
	for range 4 {
		decide(0)
		f.now++
	}
	must.Get(f.Finish(t.Context(), driver.Finishes{Budget: name, Now: f.now, Items: []driver.Finish{{ID: "none"}}}))(t) // the server knows finish.lua
	decide(time.Minute.Microseconds())
	open := driver.Finish{ID: "i5", Units: 1, Age: 300}
	f.now += 2 * time.Second.Microseconds() // all others have left the window
	at, left := f.now-open.Age, runs.left.Load()
	got := decide(0, open)
	must.Equal(t, fmt.Sprint(got.Finished), fmt.Sprint([]driver.Finished{{Result: driver.Settled, At: at, Now: f.now}}), "settled")
	must.Equal(t, fmt.Sprint(got.Used), "[2 6]", "used after the settlement")
	must.Equal(t, runs.left.Load(), left, "runs of usual.lua that left something")
	f.now = at + time.Second.Microseconds() - 1
	must.Equal(t, decide(0).Used[0], 3, "used right before the settled one leaves")
	f.now++
	must.Equal(t, decide(0).Used[0], 3, "used when it has left")

	got = decide(0, open)
	must.Equal(t, fmt.Sprint(got.Finished), fmt.Sprint([]driver.Finished{{Result: driver.Settled, Replayed: true, At: at, Now: f.now}}), "settled again")
	decide(time.Minute.Microseconds())
	f.now++
	got = decide(0, driver.Finish{ID: fmt.Sprint("i", n), Units: 5})
	must.Equal(t, fmt.Sprint(got.Finished[0].Result, got.Used[1]), fmt.Sprint(driver.Settled, n+4), "settled at other units, and used")
}

// In a Cluster too, a charge and the settlement before it are one run.
func TestUsualSettlesInACluster(t *testing.T) {
	t.Parallel()
	store := openStore(t, startCluster(t, 3, nil).url(), redisstore.Options{Timeout: patient})
	runs, settles := countRuns(store), []driver.Finish(nil)
	for n := range 6 {
		item := driver.Item{ID: fmt.Sprint("i", n), Operation: "op", Units: 1, Lease: time.Minute.Microseconds()}
		before := runs.decided.Load() + runs.left.Load() + runs.other.Load()
		got := must.Get(store.Decide(t.Context(), driver.Batch{Budget: name, Now: time.Now().UnixMicro(), Limits: hourly, Items: []driver.Item{item}, Finishes: settles, Host: "0a"}))(t)
		must.Equal(t, len(got.Finished), len(settles), "settlements")
		settles = []driver.Finish{{ID: item.ID, Units: 1}}
		if n >= 4 { // the first run of a script is sent by its text
			must.Equal(t, runs.decided.Load()+runs.left.Load()+runs.other.Load()-before, 1, "runs of scripts")
		}
	}
}
