package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"pgregory.net/rapid"
)

// Whatever is kept of several jobs is read once, the newest first, however the pages
// fall, and no further back than it is asked for.
func TestThePastIsMerged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := memstore.New(func() int64 { return 0 })
		names := []string{"a", "b", "c"}[:rapid.IntRange(0, 3).Draw(t, "jobs")]
		since := rapid.Int64Range(0, 5).Draw(t, "since")
		var want []string
		for _, name := range names {
			var records []driver.JobRecord
			for i, at := range rapid.SliceOfN(rapid.Int64Range(1, 12), 0, 40).Draw(t, name) { // many of an instant
				id := fmt.Sprint(name, i)
				records = append(records, driver.JobRecord{At: at, ID: id, Text: Record{Tick: InstantOf(at), Note: id, Runs: []Run{}}.json()})
				if at >= since {
					want = append(want, id)
				}
			}
			if swapped, err := store.SwapJob(t.Context(), driver.JobSwap{Job: name, Records: records}); err != nil || !swapped {
				t.Fatal(swapped, err)
			}
		}
		var got []string
		var last *Pass
		for pass, err := range Past(t.Context(), store, names, time.UnixMicro(since)) {
			must.Do(t, err)
			if last != nil && pass.Tick.After(last.Tick.Time) {
				t.Fatalf("%s comes after %s", pass.Tick, last.Tick)
			}
			if pass.Note[:1] != pass.Job {
				t.Fatalf("%s is said to be of %s", pass.Note, pass.Job)
			}
			got, last = append(got, pass.Note), &pass
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("read %q, want %q", got, want)
		}
	})
}

// It is read no further than it is wanted, in pages that grow.
func TestThePastIsReadAsFarAsItIsWanted(t *testing.T) {
	store := &reading{JobStore: memstore.New(func() int64 { return 0 })}
	var records []driver.JobRecord
	for at := range int64(1000) {
		records = append(records, driver.JobRecord{At: at, ID: fmt.Sprint(at), Text: Record{Tick: InstantOf(at), Runs: []Run{}}.json()})
	}
	if swapped, err := store.SwapJob(t.Context(), driver.JobSwap{Job: "a", Records: records}); err != nil || !swapped {
		t.Fatal(swapped, err)
	}
	read := 0
	for _, err := range Past(t.Context(), store, []string{"a"}, time.Time{}) {
		must.Do(t, err)
		if read++; read == 13 { // more than 4 and 8
			break
		}
	}
	if most := slices.MaxFunc(store.queries, func(a, b driver.JobHistoryQuery) int { return cmp.Compare(a.Most, b.Most) }).Most; len(store.queries) != 3 || most > 20 {
		t.Errorf("asked %d times, for up to %d records", len(store.queries), most)
	}
}

// reading notes what is asked for of a history, which it does not answer when away.
type reading struct {
	driver.JobStore
	queries []driver.JobHistoryQuery
	away    int // from this query on; 0: never
}

func (r *reading) JobHistory(ctx context.Context, query driver.JobHistoryQuery) ([]driver.JobRecord, error) {
	r.queries = append(r.queries, query)
	if r.away > 0 && len(r.queries) >= r.away {
		return nil, errAway
	}
	return r.JobStore.JobHistory(ctx, query)
}

// A record that cannot be read ends the reading with an error.
func TestThePastThatCannotBeRead(t *testing.T) {
	store := &reading{JobStore: memstore.New(func() int64 { return 0 }), away: 2}
	records := []driver.JobRecord{{At: 1, ID: "1", Text: []byte("no record")}}
	for at := range int64(firstPage) {
		records = append(records, driver.JobRecord{At: 10 + at, ID: fmt.Sprint(10 + at), Text: Record{Runs: []Run{}}.json()})
	}
	if swapped, err := store.SwapJob(t.Context(), driver.JobSwap{Job: "a", Records: records}); err != nil || !swapped {
		t.Fatal(swapped, err)
	}
	for _, reached := range []bool{false, true} {
		good, bad := 0, []error{}
		for _, err := range Past(t.Context(), store, []string{"a"}, time.Time{}) {
			if err == nil {
				good++
				continue
			}
			bad = append(bad, err)
		}
		if good != firstPage || len(bad) != 1 || errors.Is(bad[0], budget.ErrUnavailable) == reached {
			t.Errorf("%d records, errors %v", good, bad)
		}
		store.away = 0
	}
}

// The past has the outcome of a tick for as long as the job's history is kept, also where
// the tick itself is older: nothing is forgotten in the moment in which it is recorded.
func TestRecordsOfOldTicksAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\nschedule = \"0 3 * * *\"\nhistory = \"48h\""})
		w.follow(false, time.Hour)
		after(10 * 24 * time.Hour) // at 01:00: ten ticks, the last of 22 hours ago
		stop := w.daemon(false)
		after(time.Minute)
		check.EqualSlices(t, w.history(), []string{"3h0m0s missed down, 10 until 219h0m0s"}, "history")
		after(2*time.Hour + time.Minute) // another is recorded
		check.EqualSlices(t, w.history(), []string{"3h0m0s missed down, 10 until 219h0m0s", "243h0m0s succeeded"}, "history")
		stop()
		w.list[0].History = 12 * time.Hour
		after(3*24*time.Hour + 20*time.Hour) // of 23:00: all ticks are older than what is kept
		stop = w.daemon(false)
		after(time.Minute)
		check.EqualSlices(t, w.history(), []string{"267h0m0s missed down, 3 until 315h0m0s"}, "history")
		after(4*time.Hour + time.Minute)
		check.EqualSlices(t, w.history(), []string{"267h0m0s missed down, 3 until 315h0m0s", "339h0m0s succeeded"}, "history")
		stop()
	})
}

// A pass that ended is recorded where its tick is older than what is kept, as one that
// was caught up may be.
func TestAPassOfAnOldTickIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\nhistory = \"1h\""})
		after(24 * time.Hour)
		check.Equal(t, w.scheduled(midnight.Add(3*time.Hour)).Outcome, Succeeded, "pass")
		check.EqualSlices(t, w.history(), []string{"3h0m0s succeeded"}, "history")
	})
}

// A daemon whose clock is ahead, by which no tick would be claimed, forgets nothing of
// what the store's clock says is new.
func TestAClockThatIsAheadForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		w.succeeds()
		ahead := func() time.Time { return time.Now().AddDate(1, 0, 0) }
		must.Do(t, changeDocument(t.Context(), w.store, "trending", ahead, time.Hour, func(*state, clocks) (edit, error) {
			record := Record{Tick: Instant{ahead()}, Outcome: Succeeded}
			return edit{records: []driver.JobRecord{{At: record.Tick.UnixMicro(), ID: "x", Text: record.json()}}}, nil
		}))
		check.Equal(t, len(w.history()), 2, "history")
	})
}
