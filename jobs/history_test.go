package jobs

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// What becomes of a tick is told for as long as the job's history is kept, also where
// the tick itself is older: nothing is forgotten in the moment in which it is recorded.
func TestRecordsOfOldTicksAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\nschedule = \"0 3 * * *\"\nhistory = \"48h\""})
		stop := w.daemon(false)
		after(time.Hour)
		stop()
		after(10 * 24 * time.Hour) // at 01:00: ten ticks, the last of 22 hours ago
		stop = w.daemon(false)
		after(time.Minute)
		equal(t, "history", w.history(), []string{"3h0m0s missed down, 10 until 219h0m0s"})
		after(2*time.Hour + time.Minute) // another is recorded
		equal(t, "history", w.history(), []string{"3h0m0s missed down, 10 until 219h0m0s", "243h0m0s succeeded"})
		stop()
		w.list[0].History = 12 * time.Hour
		after(3*24*time.Hour + 20*time.Hour) // of 23:00: all ticks are older than what is kept
		stop = w.daemon(false)
		after(time.Minute)
		equal(t, "history", w.history(), []string{"267h0m0s missed down, 3 until 315h0m0s"})
		after(4*time.Hour + time.Minute)
		equal(t, "history", w.history(), []string{"267h0m0s missed down, 3 until 315h0m0s", "339h0m0s succeeded"})
		stop()
	})
}

// A pass that ended is recorded where its tick is older than what is kept, as one that
// was caught up may be.
func TestAPassOfAnOldTickIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\nhistory = \"1h\""})
		after(24 * time.Hour)
		if p := w.scheduled(midnight.Add(3 * time.Hour)); p.Outcome != Succeeded {
			t.Errorf("pass %+v", p)
		}
		equal(t, "history", w.history(), []string{"3h0m0s succeeded"})
	})
}

// A daemon whose clock is ahead, by which no tick would be claimed, forgets nothing of
// what the store's clock says is new.
func TestAClockThatIsAheadForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion})
		if p := w.once(); p.Outcome != Succeeded {
			t.Fatalf("pass %+v", p)
		}
		ahead := func() time.Time { return time.Now().AddDate(1, 0, 0) }
		err := changeDocument(t.Context(), w.store, "trending", ahead, time.Hour, func(*state, clocks) (edit, error) {
			record := Record{Tick: Instant{ahead()}, Outcome: Succeeded}
			return edit{records: []driver.JobRecord{{At: record.Tick.UnixMicro(), ID: "x", Text: record.json()}}}, nil
		})
		if err != nil || len(w.history()) != 2 {
			t.Errorf("history %s, %v", w.history(), err)
		}
	})
}
