package jobs

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
			every, err := schedule.Parse("@every 1s", "UTC")
			if err != nil {
				t.Fatal(err)
			}
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
				if got := strings.Join(one.got, one.between); got != one.want {
					t.Errorf("%s: %s, want %s", one.what, got, one.want)
				}
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
		stop := w.daemon(false)
		after(30 * time.Second)
		stop()
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
		stop := w.daemon(false)
		after(10*time.Second + 500*time.Millisecond)
		stop()
		before := len(w.history())
		after(130 * time.Second)
		stop = w.daemon(false)
		after(2 * time.Second)
		stop()
		equal(t, "history", w.history()[before:], []string{"11s missed down, 129 until 2m19s", "2m20s succeeded", "2m21s succeeded", "2m22s succeeded"})
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
			if b.job.Schedule, err = schedule.Parse("30 * * * *", "UTC"); err != nil {
				t.Fatal(err)
			}
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
			if claim != test.claim || record != test.record {
				t.Errorf("claimed %q, recorded %q; want %q and %q", claim, record, test.claim, test.record)
			}
		})
	}
}
