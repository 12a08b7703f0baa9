package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// I4: the same id again gets the first answer, and charges nothing more.
func testReplay(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	first := w.granted(item("a", "op", 60))
	w.now += minute
	again := w.decide(item("a", "op", 60))[0]
	if again.Result != driver.Granted || !again.Replayed || again.Units != 60 || again.At != first.At || again.Remaining != 40 {
		t.Fatalf("replay %+v of %+v", again, first)
	}
	labelled := item("a", "op", 60)
	labelled.Labels, labelled.Floor, labelled.UseHeadroom = driver.Labels{Job: "other"}, 90, true
	if d := w.decide(labelled)[0]; !d.Replayed || d.First != (driver.Labels{}) || d.Ended != "" {
		t.Fatalf("labels and floor are compared, or it has those of the second: %+v", d)
	}
	for _, other := range []driver.Item{item("a", "op", 61), item("a", "po", 60), lease(item("a", "op", 60), time.Minute)} {
		check.Equal(t, w.decide(other)[0].Result, driver.Conflict, other)
	}
	asked := lease(item("r", "op", 10), time.Hour)
	asked.Labels = driver.Labels{Job: "pull", Run: "pull/1"}
	reserved := w.granted(asked)
	w.now += minute
	if d := w.decide(lease(item("r", "op", 10), time.Minute))[0]; !d.Replayed || d.At != reserved.At || d.First != asked.Labels || d.Ended != "" {
		t.Fatalf("replay of a reservation with another lease: %+v", d)
	}
	w.finish(driver.Finish{ID: "r", Units: 3}, driver.Settled, false)
	asked.Labels = driver.Labels{Job: "push", Region: "pull/1", Run: "pull/1"}
	if d := w.decide(asked)[0]; !d.Replayed || d.Units != 10 || d.At != reserved.At || d.First != (driver.Labels{Job: "pull", Run: "pull/1"}) || d.Ended != driver.EndedSettled {
		t.Fatalf("replay of a settled reservation: %+v, want the first answer", d)
	}
	w.granted(lease(item("back", "op", 10), time.Hour))
	w.finish(driver.Finish{ID: "back", Release: true}, driver.Released, false)
	if d := w.decide(lease(item("back", "op", 10), time.Hour))[0]; !d.Replayed || d.Ended != driver.EndedReleased {
		t.Fatalf("replay of a released reservation: %+v", d)
	}
	short := lease(item("short", "op", 0), time.Minute)
	w.now = w.granted(short).At + minute - 1
	must.Equal(t, w.decide(short)[0].Ended, "", "replay within the lease")
	w.now++
	must.Equal(t, w.decide(short)[0].Ended, driver.EndedLease, "replay at the lease's end")
	must.Equal(t, w.used(0), 63, "used")
}

// I4: a batch that a reset meets holds ids by the time at which it began, however many
// steps it needs: what each period counts is read anew after the reset.
func testReplayAcrossReset(t *testing.T, w *world) {
	midnight := noon + 12*hour
	w.limits = []limit.Limit{calendar(t, "day", 1000, limit.Day, "UTC")}
	w.now = midnight - 2*hour
	w.granted(item("old", "op", 1))
	for i := range 3 {
		var open []driver.Item
		for j := range 100 {
			open = append(open, lease(item(fmt.Sprintf("open%d-%d", i, j), "op", 1), 24*time.Hour))
		}
		w.decide(open...)
	}
	must.Equal(t, w.used(0), 301, "used, most of it in the next day too")
	w.now = midnight - 1
	got := w.decide(item("last", "op", 1), item("first", "op", 1), item("old", "op", 1))
	if got[0].At != midnight-1 || got[1].At != midnight || !got[2].Replayed {
		t.Fatalf("a batch across a reset: %+v, want the last of a day, the first of the next, and a replay", got)
	}
	check.Equal(t, w.decide(item("old", "op", 1))[0].Replayed, false, "a replay of an id that is no longer held")
}

// I4: an id's second item in one batch is a replay.
func testReplayInBatch(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	got := w.decide(item("a", "op", 60), item("a", "op", 60), item("a", "op", 1), item("b", "op", 60), item("c", "op", 40))
	if got[0].Result != driver.Granted || got[0].Replayed || !got[1].Replayed || got[1].At != got[0].At ||
		got[2].Result != driver.Conflict || got[3].Result != driver.Refused || got[4].Result != driver.Granted || got[4].At != got[0].At+1 {
		t.Fatalf("decisions %+v", got)
	}
	must.Equal(t, w.used(0), 100, "used")
}

// I4: ids are kept for at least an hour, and for the longest window.
func testHeld(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("short", 10, time.Minute)}
	at := w.granted(item("a", "op", 1)).At
	w.now = at + hour - 1
	if d := w.decide(item("a", "op", 1))[0]; !d.Replayed {
		t.Fatalf("within the hour: %+v, want a replay", d)
	}
	w.now = at + hour
	if d := w.decide(item("a", "op", 2))[0]; d.Result != driver.Granted || d.Replayed {
		t.Fatalf("after the hour: %+v, want a new charge", d)
	}
	w.budget = "up/long"
	w.limits = append(w.limits, rolling("long", 10, 3*time.Hour))
	at = w.granted(item("a", "op", 1)).At
	w.now = at + 3*hour - 1
	if d := w.decide(item("a", "op", 1))[0]; !d.Replayed {
		t.Fatalf("within the longest window: %+v, want a replay", d)
	}
	w.now = at + 3*hour
	w.granted(item("a", "op", 3))
}

// I1: an id that is no longer held is charged anew, within the batch in which time passed the
// old charge. The ledger forgets the old charge then, and what finished before it: a longer
// window that begins later says that it does not know it. A charge that the ledger had
// forgotten when the batch began lets it forget no other.
func testIDAgain(t *testing.T, w *world) {
	for id, want := range map[string]struct{ used, since int64 }{
		"a": {1 + 1 + 1 + 1 + 2 + 1, noon + 1}, // b and c, the batch, and z
		"b": {1 + 1 + 1 + 2 + 1, noon + 2},     // c, the batch, and z
	} {
		w.budget, w.now = "again/"+id, noon
		w.limits = []limit.Limit{rolling("day", 10, 24*time.Hour)}
		w.decide(item("a", "op", 1), item("b", "op", 1), item("c", "op", 1)) // the last one 2 µs past noon
		w.now += 24 * hour
		d := w.decide(item("x", "op", 1), item("y", "op", 1), item(id, "op", 2))
		if d[2].Result != driver.Granted || d[2].Replayed || d[2].At != w.now+2 {
			t.Fatalf("%s: %+v, want a new charge: a day has passed since the old one", id, d[2])
		}
		w.now += second
		w.limits = append(w.limits, rolling("days", 10, 48*time.Hour))
		w.granted(item("z", "op", 1))
		if v := w.look().Limits[1]; v.Used != want.used || v.Since != want.since {
			t.Errorf("%s: two days: %+v, want %d units since %d", id, v, want.used, want.since)
		}
	}
}

// I4: a reservation is finished once.
func testFinish(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, time.Hour)}
	settle := func(id string, units int64) driver.Finish { return driver.Finish{ID: id, Units: units} }
	release := func(id string) driver.Finish { return driver.Finish{ID: id, Release: true} }
	w.granted(item("plain", "op", 1))
	w.finish(settle("plain", 1), driver.FinishConflict, false)
	w.finish(release("plain"), driver.FinishConflict, false)
	w.finish(settle("none", 1), driver.FinishExpired, false)
	w.finish(release("none"), driver.FinishExpired, false)

	w.granted(lease(item("s", "op", 10), time.Hour))
	w.now += second
	first := w.finish(settle("s", 7), driver.Settled, false)
	w.now += second
	if again := w.finish(settle("s", 7), driver.Settled, true); again.At != first.At || first.At != w.now-second {
		t.Fatalf("settled at %d, again at %d", first.At, again.At)
	}
	w.finish(settle("s", 8), driver.FinishConflict, false)
	w.finish(release("s"), driver.FinishConflict, false)

	w.granted(lease(item("r", "op", 10), time.Hour))
	w.finish(release("r"), driver.Released, false)
	w.finish(release("r"), driver.Released, true)
	w.finish(settle("r", 10), driver.FinishConflict, false)
	w.finish(settle("r", 0), driver.FinishConflict, false)

	w.granted(lease(item("z", "op", 10), time.Hour))
	w.finish(settle("z", 0), driver.Settled, false)
	w.finish(settle("z", 0), driver.Settled, true)
	w.finish(release("z"), driver.FinishConflict, false)
	must.Equal(t, w.used(0), 8, "used")
}

// I4: after its lease a release is expired, and a settle is still recorded, with the
// lease's end as its finish.
func testLease(t *testing.T, w *world) {
	w.limits = []limit.Limit{rolling("w", 100, 2*time.Hour)}
	start := w.now
	w.granted(lease(item("a", "op", 10), time.Minute))
	w.granted(lease(item("b", "op", 10), time.Minute))
	w.now = start + minute
	w.finish(driver.Finish{ID: "a", Release: true}, driver.FinishExpired, false)
	w.now = start + hour
	if got := w.finish(driver.Finish{ID: "a", Units: 30}, driver.Settled, false); got.At != start+minute {
		t.Fatalf("finished at %d, want the lease's end %d", got.At, start+minute)
	}
	must.Equal(t, w.used(0), 40, "used")
	w.refused(item("c", "op", 61), 0, start+minute+2*hour)
	w.now = start + minute + 2*hour
	if got := w.used(0); got != 10 { // b's lease ends a microsecond later
		t.Fatalf("used %d once the first lease's end left the window, want 10", got)
	}
	w.finish(driver.Finish{ID: "a", Units: 30}, driver.FinishExpired, false)
	w.finish(driver.Finish{ID: "b", Units: 1}, driver.Settled, false)
	w.now++
	w.finish(driver.Finish{ID: "b", Units: 1}, driver.FinishExpired, false)
}
