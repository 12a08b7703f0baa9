package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// ask asks for a pass of the only job.
func (w *world) ask(note string, regions ...string) Request {
	w.t.Helper()
	asked, err := Trigger(w.t.Context(), w.options.State, w.list[0], regions, note)
	must.Do(w.t, err)
	return asked
}

// answer is what has become of a request.
func (w *world) answer(asked Request) Answer {
	w.t.Helper()
	answer, err := AnswerTo(w.t.Context(), w.options.State, w.list[0], asked)
	must.Do(w.t, err)
	return answer
}

// view is what is known of the only job.
func (w *world) view() Overview {
	w.t.Helper()
	views, err := Look(w.t.Context(), w.options.State, w.list)
	must.Do(w.t, err)
	return views[0]
}

// What is asked for on one machine runs on another: the regions named, within a
// daemon's poll, and its record says what it was for.
func TestAPassThatIsAskedForRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: "regions = [\"US\", \"GB\", \"DE\"]"})
		w.options.Poll = DefaultPoll
		w.options.Transport = direct{slow(30*time.Second, w.sandbox)}
		stop := w.daemon(false)
		after(time.Hour + time.Millisecond) // the daemon does not look at this very instant
		asked := w.ask(" the feed\nof  Monday ", "DE", "US")
		if answer := w.answer(asked); !answer.Waiting || answer.Active != nil || answer.Record != nil {
			t.Errorf("at first: %+v", answer)
		}
		after(DefaultPoll + time.Second)
		answer := w.answer(asked)
		if answer.Waiting || answer.Record != nil || answer.Active == nil || answer.Active.Kind != Triggered || answer.Active.Silent {
			t.Fatalf("after a poll: %+v", answer)
		}
		if want := "requested by " + asked.By + ": the feed of Monday"; answer.Active.Note != want {
			t.Errorf("its note is %q, want %q", answer.Active.Note, want)
		}
		after(10 * time.Minute)
		stop()
		answer = w.answer(asked)
		if answer.Waiting || answer.Active != nil || answer.Record == nil {
			t.Fatalf("at last: %+v", answer)
		}
		record := *answer.Record
		check.EqualSlices(t, outcomes(Pass{Record: record}), []string{"US succeeded", "DE succeeded"}, "runs")
		if record.Kind != Triggered || record.Request != asked.ID || !strings.HasSuffix(record.Note, ": the feed of Monday") {
			t.Errorf("record %+v", record)
		}
		if late := record.Started.Sub(asked.At.Time); late < 0 || late > DefaultPoll {
			t.Errorf("it began %s after it was asked for", late)
		}
	})
}

// A pass under way is waited for, a pause is not.
func TestWhatIsAskedForWaitsForThePassUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\ntimeout = \"2h\""})
		w.options.Transport = direct{slow(time.Minute, w.sandbox)}
		stop := w.daemon(true)
		after(10 * time.Second)
		first, second := w.ask("one"), w.ask("two")
		if _, _, _, err := SetPause(t.Context(), w.options.State, w.list[0], "no more"); err != nil {
			t.Fatal(err)
		}
		after(30 * time.Second)
		if !w.answer(first).Waiting || !w.answer(second).Waiting {
			t.Error("it did not wait for the pass under way")
		}
		after(time.Hour)
		stop()
		one, two := w.answer(first).Record, w.answer(second).Record
		if one == nil || two == nil || one.Outcome != Succeeded || two.Started.Before(one.Ended.Time) {
			t.Errorf("first %+v\nthen %+v", one, two)
		}
	})
}

// What nobody may ask for is wrong usage, and leaves nothing behind.
func TestWhatMayNotBeAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: `regions = ["US", "GB"]`})
		for _, test := range []struct {
			regions    []string
			note, want string
		}{
			{[]string{"US", "GBR"}, "", `it has no region "GBR"; its regions are US, GB`},
			{[]string{""}, "", `it has no region ""`},
			{[]string{"US", "GB", "US"}, "", "region US is named twice"},
			{nil, strings.Repeat("ä", maxNote+1), "the note has 501 characters; use at most 500"},
		} {
			_, err := Trigger(t.Context(), w.options.State, w.list[0], test.regions, test.note)
			if !errors.Is(err, budget.ErrInvalid) || !strings.Contains(err.Error(), "trigger job trending: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q: %v, want %s", test.regions, err, test.want)
			}
		}
		if _, err := Trigger(t.Context(), w.options.State, &Job{Name: "plain", Regions: []string{""}}, []string{"US"}, ""); !errors.Is(err, budget.ErrInvalid) {
			t.Errorf("a region of a job without any: %v", err)
		}
		if _, _, _, err := SetPause(t.Context(), w.options.State, w.list[0], strings.Repeat("a", maxNote+1)); !errors.Is(err, budget.ErrInvalid) {
			t.Errorf("a note too long: %v", err)
		}
		if view := w.view(); len(view.Requests) > 0 || view.Pause != nil {
			t.Errorf("left behind: %+v", view)
		}
		for range maxRequests {
			w.ask("")
		}
		if _, err := Trigger(t.Context(), w.options.State, w.list[0], nil, ""); err == nil || errors.Is(err, budget.ErrInvalid) {
			t.Errorf("one request too many: %v", err)
		}
	})
}

// A note is one line of what a terminal shows.
func TestNotes(t *testing.T) {
	for note, want := range map[string]string{
		"":                      "",
		"  two\t\r\n lines  ":   "two lines",
		"Größe – 東京":            "Größe – 東京",
		"\x1b[31mred\x00\u202e": "?[31mred??",
		"broken \xff":           "broken ?",
	} {
		if got, err := cleanNote(note); got != want || err != nil {
			t.Errorf("%q became %q, %v; want %q", note, got, err, want)
		}
	}
}

// A paused job's ticks are skipped, and say why, until it goes on; each verb twice
// is as once.
func TestAPausedJobSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\nschedule = \"0 * * * *\""})
		stop := w.daemon(false)
		after(30 * time.Minute)
		set, before, _, err := SetPause(t.Context(), w.options.State, w.list[0], "the upstream moves")
		if err != nil || before != nil || set.Note != "the upstream moves" || !set.At.Equal(midnight.Add(30*time.Minute)) {
			t.Errorf("paused: %+v, before %+v, %v", set, before, err)
		}
		after(time.Minute)
		again, before, _, err := SetPause(t.Context(), w.options.State, w.list[0], " the upstream moves ")
		if err != nil || before == nil || again != set || *before != set {
			t.Errorf("paused again: %+v, before %+v, %v", again, before, err)
		}
		after(time.Hour)
		other, before, _, err := SetPause(t.Context(), w.options.State, w.list[0], "still")
		if err != nil || before == nil || *before != set || other.Note != "still" || other.At == set.At {
			t.Errorf("with another note: %+v, before %+v, %v", other, before, err)
		}
		after(time.Hour)
		if before, err := EndPause(t.Context(), w.options.State, w.list[0]); err != nil || before == nil || *before != other {
			t.Errorf("goes on: before %+v, %v", before, err)
		}
		if before, err := EndPause(t.Context(), w.options.State, w.list[0]); err != nil || before != nil {
			t.Errorf("goes on again: before %+v, %v", before, err)
		}
		after(time.Hour)
		stop()
		check.EqualSlices(t, w.history(), []string{"1h0m0s skipped paused", "2h0m0s skipped paused", "3h0m0s succeeded"}, "history")
		for pass, err := range Past(t.Context(), w.options.State, []string{"trending"}, time.Time{}) {
			must.Do(t, err)
			if want := "paused by " + set.By + ": the upstream moves"; pass.Tick.Equal(midnight.Add(time.Hour)) && pass.Error != want {
				t.Errorf("the tick says %q, want %q", pass.Error, want)
			}
		}
	})
}

// The caller learns that the daemons could not be notified; its request stays.
func TestWhatIsAskedForStandsUntold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		w.options.State = mute{w.store}
		asked, err := Trigger(t.Context(), w.options.State, w.list[0], nil, "")
		if !errors.Is(err, ErrUntold) || !errors.Is(err, budget.ErrUnavailable) || !w.answer(asked).Waiting {
			t.Errorf("%+v, %v", asked, err)
		}
		if _, _, _, err := SetPause(t.Context(), w.store, w.list[0], ""); err != nil {
			t.Fatal(err)
		}
		if before, err := EndPause(t.Context(), w.options.State, w.list[0]); !errors.Is(err, ErrUntold) || before == nil || w.view().Pause != nil {
			t.Errorf("%+v, %v", before, err)
		}
	})
}

// mute is a state in which no news can be written.
type mute struct{ driver.JobStore }

func (m mute) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	if swap.Job == newsName {
		return false, errAway
	}
	return m.JobStore.SwapJob(ctx, swap)
}

// Whose tick nobody takes is known, and whom daemons have not seen.
func TestTicksThatNobodyTakesAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\nschedule = \"0 * * * *\""})
		after(10 * time.Minute)
		if view := w.view(); view.Followed != "" || !view.Untaken.IsZero() {
			t.Errorf("a job that no daemon has seen: %+v", view)
		}
		stop := w.daemon(false)
		after(2 * time.Hour)
		stop() // at 02:10
		after(time.Hour - 10*time.Minute + 2*sweepEvery)
		if view := w.view(); view.Followed != "0 * * * * UTC" || !view.Untaken.IsZero() {
			t.Errorf("at 03:02: %+v", view)
		}
		after(time.Microsecond)
		if view := w.view(); !view.Untaken.Equal(midnight.Add(3 * time.Hour)) {
			t.Errorf("later: untaken is %s", view.Untaken)
		}
		other := parsed(t, "30 * * * *", "UTC")
		w.list[0].Schedule = other
		if view := w.view(); view.Followed != "0 * * * * UTC" || !view.Untaken.IsZero() {
			t.Errorf("by another schedule: %+v", view)
		}
	})
}

// The last success is that of the last pass of all regions, whatever came after it.
func TestTheLastSuccessIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := false
		w := newWorld(t, setup{job: "regions = [\"US\", \"GB\"]\nschedule = \"0 * * * *\""})
		w.options.Transport = direct{http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if fails {
				rw.WriteHeader(http.StatusForbidden)
				return
			}
			slow(time.Second, w.sandbox).ServeHTTP(rw, r)
		})}
		if !w.view().LastSuccess.IsZero() {
			t.Error("a success before the first pass")
		}
		stop := w.daemon(false)
		after(time.Hour + time.Minute)
		first := w.view()
		last, err := readRecord(first.Last)
		if err != nil || last.Outcome != Succeeded || !first.LastSuccess.Equal(last.Ended.Time) {
			t.Errorf("the last success is %s: %s, %v", first.LastSuccess, first.Last, err)
		}
		asked := w.ask("", "US")
		after(time.Minute)
		if record := w.answer(asked).Record; record == nil || record.Outcome != Succeeded {
			t.Errorf("the pass of one region: %+v", record)
		}
		fails = true
		after(time.Hour)
		stop()
		if now := w.view(); !now.LastSuccess.Equal(first.LastSuccess) || !strings.Contains(string(now.Last), `"failed"`) {
			t.Errorf("the last success is %s, was %s; last %s", now.LastSuccess, first.LastSuccess, now.Last)
		}
	})
}

// A request of the instant of the one before it is heard of too, and one of a store
// whose clock was set back.
func TestNewsOfOneInstant(t *testing.T) {
	at := midnight
	store := memstore.New(func() int64 { return at.UnixMicro() })
	asked := func() int64 {
		must.Do(t, notifyDaemons(t.Context(), store, "trending"))
		found := must.Get(store.Job(t.Context(), newsName))(t)
		heard := must.Get(readDocument[news](newsName, found))(t)
		return heard.Asked["trending"]
	}
	first, second := asked(), asked()
	at = at.Add(-time.Hour)
	third := asked()
	if first == second || second == third || first == third {
		t.Errorf("three requests have the marks %d, %d and %d: a daemon hears of what is new", first, second, third)
	}
}

// A pass is silent from when its claim falls, and not before.
func TestAPassIsSilentOnceItsClaimFalls(t *testing.T) {
	claimed := &state{Active: []claim{{Holder: "web1/7/x", Until: midnight.UnixMicro()}}}
	for now, want := range map[int64]bool{midnight.UnixMicro() - 1: false, midnight.UnixMicro(): true} {
		check.Equal(t, claimed.overview(&Job{}, driver.JobDocument{Now: now}).Active[0].Silent, want, now-midnight.UnixMicro(), "µs after its end silent")
	}
}

// The record of a pass that was asked for is found, where its daemon's clock, which
// ticks go by, is behind the store's.
func TestTheAnswerOfADaemonThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{})
		asked := Request{ID: "A", At: InstantOf(time.Now().UnixMicro())}
		tick := time.Now().Add(-50 * time.Minute)
		text := must.Get(json.Marshal(Record{Tick: Instant{Time: tick}, Kind: Triggered, Request: asked.ID, Outcome: Succeeded}))(t)
		if swapped, err := w.store.SwapJob(t.Context(), driver.JobSwap{
			Job: w.list[0].Name, Text: []byte("{}"), Records: []driver.JobRecord{{At: tick.UnixMicro(), ID: "x", Text: text}},
		}); err != nil || !swapped {
			t.Fatal(swapped, err)
		}
		if answer := w.answer(asked); answer.Record == nil || answer.Record.Outcome != Succeeded {
			t.Errorf("%+v", answer)
		}
	})
}
