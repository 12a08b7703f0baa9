package storetest

import (
	"context"
	"testing"

	"github.com/quotactl/quotactl/budget"
)

func (w *world) begin(pass budget.BeginPass, want budget.BeginResult) budget.JobState {
	w.t.Helper()
	got, state, err := w.store.Begin(context.Background(), pass)
	if err != nil || got != want {
		w.t.Fatalf("begin %+v: result %d, %v; want %d", pass, got, err, want)
	}
	return state
}

func (w *world) end(job, holder, next, record string, want bool) {
	w.t.Helper()
	got, err := w.store.End(context.Background(), job, holder, next, []byte(record))
	if err != nil || got != want {
		w.t.Fatalf("end of %s by %s: %v, %v; want %v", job, holder, got, err, want)
	}
}

func (w *world) job(job string) budget.JobState {
	w.t.Helper()
	state, err := w.store.Job(context.Background(), job)
	if err != nil {
		w.t.Fatalf("job %s: %v", job, err)
	}
	return state
}

// testJobState: the next region and the last pass are kept, job by job.
func testJobState(t *testing.T, w *world) {
	if state := w.job("none"); state.Held || state.LastTick != 0 || state.Last != nil || state.NextRegion != "" {
		t.Fatalf("a job never seen: %+v", state)
	}
	for range 2 { // a pass whose answer was lost asks again
		w.begin(budget.BeginPass{Job: "a", Holder: "1", Tick: noon, Hold: minute}, budget.Began)
	}
	for range 2 {
		w.end("a", "1", "DE", `{"tick":"x"}`, true)
	}
	w.end("a", "1", "FR", `{}`, false) // it was given up
	state := w.job("a")
	if state.NextRegion != "DE" || string(state.Last) != `{"tick":"x"}` || state.LastTick != noon || state.LastManual != 0 || state.Held || state.Holder != "" {
		t.Fatalf("state %+v", state)
	}
	w.begin(budget.BeginPass{Job: "a", Holder: "2", Tick: noon, Hold: minute}, budget.Taken)
	w.begin(budget.BeginPass{Job: "a", Holder: "2", Tick: noon - second, Hold: minute}, budget.Taken)
	w.begin(budget.BeginPass{Job: "a", Holder: "3", Tick: noon, Manual: true, Hold: minute}, budget.Began)
	w.end("a", "3", "", `{"tick":"y"}`, true)
	w.begin(budget.BeginPass{Job: "a", Holder: "4", Tick: noon, Manual: true, Hold: minute}, budget.Taken)
	found := w.begin(budget.BeginPass{Job: "a", Holder: "5", Tick: noon + second, Hold: minute}, budget.Began)
	if found.NextRegion != "" || string(found.Last) != `{"tick":"y"}` || found.LastTick != noon || found.LastManual != noon {
		t.Fatalf("found %+v", found)
	}
	if state := w.job("b"); state.LastTick != 0 {
		t.Fatalf("another job: %+v", state)
	}
}

// testJobTicks: a tick of a clock that is far ahead is refused, and one that was
// noted by such a clock stops no later pass.
func testJobTicks(t *testing.T, w *world) {
	begin := func(tick int64, manual bool) error {
		t.Helper()
		_, _, err := w.store.Begin(context.Background(), budget.BeginPass{Job: "a", Holder: "h", Tick: tick, Manual: manual, Hold: minute})
		return err
	}
	for _, manual := range []bool{false, true} {
		w.wantError(begin(noon+minute+1, manual), budget.ErrClock)
	}
	if state := w.job("a"); state.LastTick != 0 || state.LastManual != 0 || state.Held {
		t.Fatalf("a tick that was refused is noted: %+v", state)
	}
	w.now = noon + 1000*hour // the wrong clock
	w.begin(budget.BeginPass{Job: "a", Holder: "1", Tick: noon + 1000*hour, Hold: minute}, budget.Began)
	w.end("a", "1", "", "{}", true)
	w.now = noon
	w.begin(budget.BeginPass{Job: "a", Holder: "2", Tick: noon + minute, Hold: minute}, budget.Began)
	w.end("a", "2", "", "{}", true)
	w.begin(budget.BeginPass{Job: "a", Holder: "3", Tick: noon + minute, Hold: minute}, budget.Taken)
}

// testJobMark: one pass of a job at a time; a mark that is not renewed falls.
func testJobMark(t *testing.T, w *world) {
	ctx := context.Background()
	renew := func(holder string, want bool) {
		t.Helper()
		if got, err := w.store.Renew(ctx, "a", holder, minute); err != nil || got != want {
			t.Fatalf("renew by %s: %v, %v; want %v", holder, got, err, want)
		}
	}
	w.begin(budget.BeginPass{Job: "a", Holder: "1", Tick: noon, Hold: minute}, budget.Began)
	found := w.begin(budget.BeginPass{Job: "a", Holder: "2", Tick: noon + second, Hold: minute}, budget.Overlap)
	if !found.Held || found.Holder != "1" || found.HeldUntil != noon+minute {
		t.Fatalf("found %+v", found)
	}
	w.begin(budget.BeginPass{Job: "b", Holder: "2", Tick: noon, Hold: minute}, budget.Began)
	w.now += minute - 1
	if !w.job("a").Held {
		t.Fatal("the mark fell early")
	}
	renew("1", true)
	renew("2", false)
	w.now += minute - 1
	w.begin(budget.BeginPass{Job: "a", Holder: "2", Tick: noon + second, Hold: minute}, budget.Overlap)
	w.now++
	if w.job("a").Held {
		t.Fatal("the mark stands too long")
	}
	renew("1", true) // nobody took it meanwhile
	w.now += minute
	w.begin(budget.BeginPass{Job: "a", Holder: "2", Tick: noon + second, Hold: minute}, budget.Began)
	renew("1", false)
	w.end("a", "1", "X", "{}", false)
	if state := w.job("a"); state.Holder != "2" || state.NextRegion != "" {
		t.Fatalf("a pass that lost its mark was recorded: %+v", state)
	}
	w.end("a", "2", "Y", "{}", true)
	renew("2", false)
}
