package jobs

import (
	"testing"
	"time"

	"github.com/quotactl/quotactl/jobs/schedule"
)

// Ticks of the schedule that a job had before, which came while no daemon was there,
// are missed: they are not forgotten with the schedule.
func TestTicksOfTheScheduleBeforeAreMissed(t *testing.T) {
	b := newBook(t, catching(CatchUpAll, 10, 0))
	b.to("13:00:00")
	b.look("13:00 schedule")
	b.end()
	b.state.Until = noon.UnixMicro()                             // as after a clock that was set back by far
	daily, err := schedule.Parse("30 16 * * *", "Europe/London") // 15:30 UTC in summer
	if err != nil {
		t.Fatal(err)
	}
	b.job.Schedule = daily
	b.to("15:10:00")
	since := b.at
	b.to("15:29:00")
	step := func(want string, records ...string) {
		t.Helper()
		done := b.job.step(b.state, b.clocks(), claimant{holder: "host/1/" + want, hold: time.Minute, since: since})
		for _, r := range done.records {
			b.records = append(b.records, recordText(r))
		}
		if got := done.claim; (got != nil) != (want != "") || got != nil && clockText(got.Tick) != want {
			t.Errorf("claimed %+v, want %q", got, want)
		}
		b.wantRecords(records...)
	}
	step("", "14:00 missed down, 2 until 15:00")
	step("")
	b.to("15:30:00")
	step("15:30")
}

// Two daemons by different schedules, as while a new configuration is handed out, do
// not count anew what the other has accounted for; nor does one that began by a clock
// that was ahead.
func TestDaemonsByTwoSchedules(t *testing.T) {
	b := newBook(t, nil)
	b.to("15:30:00")
	b.look("")
	b.wantRecords("13:00 missed down, 3 until 15:00")
	london, err := schedule.Parse("0 * * * *", "Europe/London")
	if err != nil {
		t.Fatal(err)
	}
	here := b.job.Schedule
	for _, schedule := range []*schedule.Schedule{london, here, london} {
		b.job.Schedule = schedule
		b.look("")
	}
	b.wantRecords()
	b.to("16:00:00")
	b.look("16:00 schedule")
	b.job.Schedule = here
	if done := b.job.step(b.state, b.clocks(), claimant{holder: "host/2/x", hold: time.Minute, since: b.at.Add(5 * time.Hour)}); len(done.records) != 0 {
		t.Errorf("records %+v", done.records)
	}
}

// A job whose schedule changes counts by the new one from then on, and what is
// accounted for stays so.
func TestANewScheduleCountsFromItsReload(t *testing.T) {
	b := newBook(t, nil)
	b.to("13:00:00")
	b.look("13:00 schedule")
	b.end()
	quarters, err := schedule.Parse("*/15 * * * *", "UTC")
	if err != nil {
		t.Fatal(err)
	}
	b.job.Schedule = quarters
	b.to("14:10:00")
	since := b.at
	b.to("14:15:00") // the first look comes with the first tick
	done := b.job.step(b.state, b.clocks(), claimant{holder: "host/1/x", hold: time.Minute, since: since})
	if done.claim == nil || clockText(done.claim.Tick) != "14:15" || len(done.records) != 1 || recordText(done.records[0]) != "14:00 missed down" {
		t.Errorf("claim %+v, records %+v", done.claim, done.records)
	}
}
