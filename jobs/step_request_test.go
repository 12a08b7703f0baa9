package jobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/jobs/schedule"
)

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
	if got := b.look("16:30 trigger"); got.request() != "x" || got.note() != "asked for by ann@web1" {
		t.Errorf("claimed %+v", got)
	}
	b.end()
	first := b.state.LastManual
	b.look("16:30 trigger")
	if b.state.LastManual != first+time.Second.Microseconds() {
		t.Errorf("ticks %d and %d", first, b.state.LastManual)
	}
	b.end()
	b.look("14:00 catch_up")
	b.end()

	every, err := schedule.Parse("@every 1s", "UTC")
	if err != nil {
		t.Fatal(err)
	}
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
	if b.state.NextRegion != "US" {
		t.Errorf("the next pass begins with %s", b.state.NextRegion)
	}
}
