package jobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
)

// Claims are counted by the store's clock, which need not show what a wall clock does.
func TestClaimsGoByTheStoresClock(t *testing.T) {
	b := newBook(t, nil)
	b.to("13:00:00")
	const boot = 7_000_000 // µs since the machine began
	at := clocks{wall: b.at, store: b.at.UnixMicro(), now: boot}
	done := b.job.step(b.state, at, claimant{holder: "host/1/x", hold: time.Minute, since: noon})
	if done.claim == nil || done.claim.Until != boot+time.Minute.Microseconds() || done.claim.Since != b.at.UnixMicro() {
		t.Fatalf("claim %+v", done.claim)
	}
	at.now += time.Minute.Microseconds() - 1
	if list := b.state.lapsed(at, time.Minute); len(list) != 0 {
		t.Errorf("declared dead too soon: %+v", list)
	}
	at.now++
	if list := b.state.lapsed(at, time.Minute); len(list) != 1 {
		t.Errorf("declared dead: %+v", list)
	}
}

// A clock set back comes by ticks that were run before: they are not run again. One
// that was wrong by far stops no job.
func TestClocksSetBack(t *testing.T) {
	b := newBook(t, nil)
	b.to("13:00:00")
	b.look("13:00 schedule")
	b.end()
	b.to("14:00:00")
	b.look("14:00 schedule")
	b.end()
	b.to("12:30:00")
	b.look("")
	for _, clock := range []string{"13:00:00", "14:00:00"} {
		b.to(clock)
		b.look("")
	}
	b.to("15:00:00")
	b.look("15:00 schedule")
	b.end()
	b.wantRecords()
	b.state.Until = b.at.AddDate(3, 0, 0).UnixMicro()
	b.look("")
	b.to("16:00:00")
	b.look("16:00 schedule")
	b.wantRecords()
}

// What was caught up, or was queued, is not run again either by a clock set back.
func TestCaughtUpTicksDoNotComeAgain(t *testing.T) {
	b := newBook(t, catching(CatchUpLast, 0, 0))
	b.to("13:30:00")
	b.look("13:00 catch_up")
	b.end()
	for _, clock := range []string{"14:00", "15:00"} {
		b.to(clock + ":00")
		b.look(clock + " schedule")
		b.end()
	}
	b.to("12:50:00")
	b.look("")
	for _, clock := range []string{"13:00:05", "14:00:00", "15:00:00"} {
		b.to(clock)
		b.look("")
	}
	b.to("16:00:00")
	b.look("16:00 schedule")
	b.wantRecords()
}

// By a clock that was set back by far the job counts as by any other.
func TestAClockSetBackByDays(t *testing.T) {
	b := newBook(t, nil)
	b.to("13:00:00")
	b.look("13:00 schedule")
	b.end()
	b.at = b.at.AddDate(0, 0, -3).Add(-30 * time.Minute)
	b.look("")
	b.to("13:00:00")
	b.look("13:00 schedule")
	b.end()
	b.to("16:30:00")
	b.look("")
	b.wantRecords("14:00 missed down, 3 until 16:00")
}

// When a clock that was set back is right again, what it came by twice is recorded
// once, however far back it was, and nothing is caught up that was run.
func TestClocksSetBackAndRight(t *testing.T) {
	for name, back := range map[string]string{"a little": "12:55:00", "an hour": "11:30:00", "by far": "2026-06-08 11:30:00"} {
		for _, catchUp := range []CatchUp{CatchUpNone, CatchUpLast, CatchUpAll} {
			t.Run(name+" "+string(catchUp), func(t *testing.T) {
				b := newBook(t, catching(catchUp, 0, 0))
				b.to("13:00:00")
				b.look("13:00 schedule")
				b.end()
				right := b.at.Add(10 * time.Minute)
				if at, err := time.Parse(time.DateTime, back); err == nil {
					b.at = at
				} else {
					b.to(back)
				}
				b.look("")
				b.at = b.at.Add(time.Minute)
				b.look("")
				b.at = right
				b.look("")
				b.to("14:00:00")
				b.look("14:00 schedule")
				b.wantRecords()
			})
		}
	}
}

// A clock that was ahead and is set right comes by ticks that were recorded as missed
// when it jumped over them. They stay missed, unless it was wrong by hours: then the
// job is to go on.
func TestClocksAheadAndRight(t *testing.T) {
	for wrong, claim := range map[string]string{"14:05:00": "", "17:05:00": "13:00 schedule"} {
		t.Run(wrong, func(t *testing.T) {
			b := newBook(t, nil)
			b.to(wrong)
			b.look("")
			b.records = nil
			b.to("12:35:00")
			b.look("")
			b.to("13:00:00")
			b.look(claim)
			b.wantRecords()
		})
	}
}

// A request waits for the pass under way, goes before what waits else, and takes a
// second that is nobody's.
func TestRequests(t *testing.T) {
	b := newBook(t, catching(CatchUpAll, 10, 0))
	b.to("13:00:00")
	b.look("13:00 schedule").Until = b.at.Add(24 * time.Hour).UnixMicro()
	b.state.Requests = []Request{{ID: "x", By: "ann@web1"}, {ID: "y"}}
	b.to("16:30:00")
	b.look("")
	b.end()
	if got := b.look("16:30 trigger"); got.request() != "x" || got.note() != "requested by ann@web1" {
		t.Errorf("claimed %+v", got)
	}
	b.end()
	first := b.state.LastManual
	b.look("16:30 trigger")
	check.Equal(t, b.state.LastManual, first+time.Second.Microseconds(), "ticks", first, "and")
	b.end()
	b.look("14:00 catch_up")
	b.end()

	every := parsed(t, "@every 1s", "UTC")
	b.job.Schedule, b.job.CatchUp = every, CatchUpNone
	b.state.Schedule, b.state.Until = b.job.counts(), b.at.Add(-time.Second).UnixMicro()
	b.look("16:30 schedule")
	b.end()
	b.state.Requests = []Request{{ID: "z"}}
	b.state.Waiting, b.records = nil, nil
	b.to("16:30:00")
	b.look("")
	if len(b.state.Requests) != 0 || len(b.records) != 1 || !strings.HasSuffix(b.records[0], "failed tick") {
		t.Errorf("a request without a second: %v, records %q", b.state.Requests, b.records)
	}
}

// Passes that are asked for in one second have ticks of their own, however many.
func TestManyRequestsAtOnce(t *testing.T) {
	b := newBook(t, func(j *Job) { j.Overlap = Allow })
	for i := range maxRequests {
		b.state.Requests = append(b.state.Requests, Request{ID: fmt.Sprint(i)})
	}
	ticks := map[int64]bool{}
	for range maxRequests {
		me := claimant{holder: fmt.Sprintf("host/1/r%d", len(ticks)), hold: time.Minute, since: noon}
		done := b.job.step(b.state, b.clocks(), me)
		if done.claim == nil || ticks[done.claim.Tick] {
			t.Fatalf("after %d passes: claim %+v", len(ticks), done.claim)
		}
		ticks[done.claim.Tick] = true
	}
	b.state.LastManual = b.at.AddDate(1, 0, 0).UnixMicro() // a clock that was wrong
	b.state.Requests = []Request{{ID: "x"}}
	b.look("12:00 trigger")
}

// A pass of some regions that is lost leaves alone which one the next begins with.
func TestALostRequestMovesNoRegion(t *testing.T) {
	b := newBook(t, nil)
	b.state.NextRegion = "US"
	b.state.Requests = []Request{{ID: "x", Regions: []string{"GB"}}}
	b.look("12:00 trigger").Progress = Record{Runs: []Run{{Region: "GB"}}}.json()
	b.to("12:02:00")
	b.look("")
	b.wantRecords("12:00 lost crashed")
	check.Equal(t, b.state.NextRegion, "US", "the next pass begins with")
}
