package jobs

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/schedule"
)

// What becomes of the ticks that a daemon finds together, as it was held up: those that
// are on time are run or skipped as at any other time, and only older ones are missed.
func TestTicksThatComeTogether(t *testing.T) {
	const text = "15:04:05"
	for name, test := range map[string]struct {
		change  func(*Job)
		at      string
		claims  string
		records string
		waiting string
	}{
		"skip":             {nil, "12:00:36", "12:00:31 schedule", "12:00:32 skipped overlap, 5 until 12:00:36", ""},
		"queue":            {func(j *Job) { j.Overlap = Queue }, "12:00:36", "12:00:31 schedule", "12:00:33 skipped overlap, 4 until 12:00:36", "12:00:32 queue"},
		"allow":            {func(j *Job) { j.Overlap = Allow }, "12:00:33", "12:00:31 schedule, 12:00:32 schedule, 12:00:33 schedule", "", ""},
		"caught up":        {catching(CatchUpAll, 10, 0), "12:00:33", "12:00:31 catch_up", "", "12:00:32 catch_up, 12:00:33 catch_up"},
		"beyond the limit": {catching(CatchUpAll, 2, 0), "12:00:36", "12:00:35 catch_up", "12:00:31 skipped overlap, 4 until 12:00:34", "12:00:36 catch_up"},
		"the last":         {catching(CatchUpLast, 0, 0), "12:00:33", "12:00:31 schedule", "12:00:32 skipped overlap, 2 until 12:00:33", ""},
		"a minute late":    {nil, "12:01:31", "12:00:31 schedule", "12:00:32 skipped overlap, 60 until 12:01:31", ""},
		"later than that":  {nil, "12:01:33", "12:00:33 schedule", "12:00:31 missed down, 2 until 12:00:32; 12:00:34 skipped overlap, 60 until 12:01:33", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, test.change)
			every := parsed(t, "@every 1s", "UTC")
			b.job.Schedule = every
			b.state.Schedule, b.state.Until = b.job.counts(), b.at.UnixMicro()
			b.to(test.at)
			var claims, records, waits []string
			me := claimant{holder: "host/1/0", hold: time.Minute, since: noon, catchUp: true}
			for again := true; again; { // as a daemon does
				done := b.job.step(b.state, b.clocks(), me)
				for _, r := range done.records {
					line := r.Tick.Format(text) + " " + string(r.Outcome) + " " + r.Reason
					if r.Until != nil {
						line += ", " + fmt.Sprint(r.Ticks) + " until " + r.Until.Format(text)
					}
					records = append(records, line)
				}
				if again = done.claim != nil; again {
					claims = append(claims, time.UnixMicro(done.claim.Tick).UTC().Format(text)+" "+string(done.claim.Kind))
				}
				me.holder += "0"
			}
			for _, w := range b.state.Waiting {
				waits = append(waits, time.UnixMicro(w.Tick).UTC().Format(text)+" "+string(w.Kind))
			}
			for _, one := range []struct {
				what, want string
				got        []string
				between    string
			}{{"claims", test.claims, claims, ", "}, {"records", test.records, records, "; "}, {"waiting", test.waiting, waits, ", "}} {
				check.Equal(t, strings.Join(one.got, one.between), one.want, one.what)
			}
		})
	}
}

// A daemon that was held up for six seconds takes the ticks that came meanwhile for on
// time: none is missed.
func TestADaemonThatWasHeldUpMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\nschedule = \"@every 1s\""})
		from := midnight.Add(10*time.Second + 500*time.Millisecond)
		w.options.State = failing{w.store, func() bool {
			now := time.Now()
			return now.After(from) && now.Before(from.Add(6*time.Second))
		}}
		w.follow(false, 30*time.Second)
		skipped := 0
		for _, line := range w.history() {
			if strings.Contains(line, "missed") {
				t.Errorf("a tick that is not a minute old: %s", line)
			}
			if strings.Contains(line, "skipped overlap, ") {
				skipped++
			}
		}
		if len(w.history()) < 20 || skipped != 1 {
			t.Errorf("history %q", w.history())
		}
	})
}

// Of the ticks that came while no daemon was there the newest alone is run, though others
// are not a minute old: a restart starts no crowd of passes.
func TestARestartRunsOneTickOfThoseBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, setup{job: oneRegion + "\nschedule = \"@every 1s\"\noverlap = \"allow\""})
		w.follow(false, 10*time.Second+500*time.Millisecond)
		before := len(w.history())
		after(130 * time.Second)
		w.follow(false, 2*time.Second)
		check.EqualSlices(t, w.history()[before:], []string{"11s missed down, 129 until 2m19s", "2m20s succeeded", "2m21s succeeded", "2m22s succeeded"}, "history")
	})
}

// A reload that changes a job's schedule just as it ticks loses no tick: a daemon that
// lived runs it. One that did not live then records it as missed.
func TestATickAtTheReloadIsRun(t *testing.T) {
	for name, test := range map[string]struct {
		known  time.Duration // before the reload
		paused bool
		claim  string
		record string
	}{
		"a daemon that lived":  {time.Hour, false, "13:00", ""},
		"a daemon that began":  {0, false, "", "13:00 missed down"},
		"a job that is paused": {time.Hour, true, "", "13:00 skipped paused"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, nil)
			b.to("13:00:01")
			me := claimant{holder: "host/1/x", hold: time.Minute, since: b.at, known: b.at.Add(-test.known)}
			var err error
			b.job.Schedule, err = schedule.Parse("30 * * * *", "UTC")
			must.Do(t, err)
			if test.paused {
				b.state.Pause = &Pause{Note: "they moved", By: "ann@web1"}
			}
			done := b.job.step(b.state, b.clocks(), me)
			claim, record := "", ""
			if done.claim != nil {
				claim = clockText(done.claim.Tick)
			}
			for _, r := range done.records {
				record += recordText(r)
			}
			check.Equal(t, claim, test.claim, "claimed")
			check.Equal(t, record, test.record, "claimed")
		})
	}
}

// Ticks of the schedule that a job had before, which came while no daemon was there,
// are missed: they are not forgotten with the schedule.
func TestTicksOfTheScheduleBeforeAreMissed(t *testing.T) {
	b := newBook(t, catching(CatchUpAll, 10, 0))
	b.to("13:00:00")
	b.look("13:00 schedule")
	b.end()
	b.state.Until = noon.UnixMicro()                             // as after a clock that was set back by far
	daily, err := schedule.Parse("30 16 * * *", "Europe/London") // 15:30 UTC in summer
	must.Do(t, err)
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
	london := parsed(t, "0 * * * *", "Europe/London")
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
	quarters := parsed(t, "*/15 * * * *", "UTC")
	b.job.Schedule = quarters
	b.to("14:10:00")
	since := b.at
	b.to("14:15:00") // the first look comes with the first tick
	done := b.job.step(b.state, b.clocks(), claimant{holder: "host/1/x", hold: time.Minute, since: since})
	if done.claim == nil || clockText(done.claim.Tick) != "14:15" || len(done.records) != 1 || recordText(done.records[0]) != "14:00 missed down" {
		t.Errorf("claim %+v, records %+v", done.claim, done.records)
	}
}
