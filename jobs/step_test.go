package jobs

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// book is a job's state and what was recorded of it, walked by hand.
type book struct {
	t       *testing.T
	job     *Job
	state   *state
	at      time.Time // the clock of machine and store
	records []string  // in the order in which they were made
	claims  int
}

// noon is when books are opened: no schedule of the tests ticks then.
var noon = time.Date(2026, time.June, 10, 12, 0, 30, 0, time.UTC)

// newBook opens the book of an hourly job, half a minute past noon.
func newBook(t *testing.T, change func(*Job)) *book {
	schedule := parsed(t, "0 * * * *", "UTC")
	b := &book{t: t, state: &state{}, at: noon, job: &Job{
		Name: "hourly", Schedule: schedule, Regions: []string{"US", "GB"}, Overlap: Skip,
		CatchUp: CatchUpNone, CatchUpLimit: DefaultCatchUpLimit, MaxLate: DefaultMaxLate,
	}}
	if change != nil {
		change(b.job)
	}
	b.look("")
	return b
}

// clocks are all alike.
func (b *book) clocks() clocks {
	return clocks{wall: b.at, store: b.at.UnixMicro(), now: b.at.UnixMicro()}
}

// look takes a step with everything that a daemon may do, and fails unless it claims
// what is wanted: "15:00 schedule", or nothing.
func (b *book) look(want string) *claim {
	b.t.Helper()
	b.claims++
	me := claimant{holder: fmt.Sprintf("host/1/%d", b.claims), hold: time.Minute, since: noon, catchUp: true, reap: map[string]reaped{}}
	for _, c := range b.state.lapsed(b.clocks(), 24*time.Hour) { // so long do those stand that live
		me.reap[c.Holder] = reaped{}
	}
	done := b.job.step(b.state, b.clocks(), me)
	for _, r := range done.records {
		b.records = append(b.records, recordText(r))
	}
	got := ""
	if done.claim != nil {
		got = fmt.Sprintf("%s %s", clockText(done.claim.Tick), done.claim.Kind)
	}
	check.Equal(b.t, got, want, "at", b.at.Format("15:04:05"), "claimed")
	if (done.claim != nil || len(done.records) > 0) && !done.changed {
		b.t.Errorf("at %s: a step that came to something has changed nothing", b.at.Format("15:04:05"))
	}
	return done.claim
}

// end ends the pass under way that was claimed first.
func (b *book) end() { b.state.drop(b.state.Active[0].Holder) }

// to sets the clocks to a time of the day.
func (b *book) to(clock string) {
	b.t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05", b.at.Format("2006-01-02 ")+clock)
	must.Do(b.t, err)
	b.at = at
}

func (b *book) wantRecords(want ...string) {
	b.t.Helper()
	check.EqualSlices(b.t, b.records, want, "records")
	b.records = nil
}

func (b *book) wantWaiting(want ...string) {
	b.t.Helper()
	var got []string
	for _, w := range b.state.Waiting {
		got = append(got, fmt.Sprintf("%s %s", clockText(w.Tick), w.Kind))
	}
	check.EqualSlices(b.t, got, want, "waiting")
}

func clockText(micros int64) string { return time.UnixMicro(micros).UTC().Format("15:04") }

func recordText(r Record) string {
	text := fmt.Sprintf("%s %s %s", r.Tick.UTC().Format("15:04"), r.Outcome, r.Reason)
	if r.Until != nil {
		text += fmt.Sprintf(", %d until %s", r.Ticks, r.Until.UTC().Format("15:04"))
	}
	return text
}

func TestATickIsClaimedOnce(t *testing.T) {
	b := newBook(t, nil)
	b.to("12:59:59")
	b.look("")
	b.to("13:00:00")
	b.look("13:00 schedule")
	b.look("")
	b.end()
	b.look("")
	b.to("14:01:00") // a minute late is on time
	b.look("14:00 schedule")
	b.wantRecords()
}

// What a job's document remembers has a bound.
func TestADocumentDoesNotGrow(t *testing.T) {
	b := newBook(t, nil)
	for i := range 2 * keptRecent {
		b.at = noon.Truncate(time.Hour).Add(time.Duration(i+1) * time.Hour)
		b.look(b.at.Format("15:04") + " schedule")
		b.at = b.at.Add(2 * time.Minute)
		b.look("") // it is lost
	}
	if len(b.state.Recent) != keptRecent || len(b.state.Dead) != budget.KeptDead || b.state.Recent[keptRecent-1] != b.state.Until {
		t.Errorf("%d ticks and %d claims are remembered", len(b.state.Recent), len(b.state.Dead))
	}
}

// An answer that was lost is asked for again: the claim stands for its holder.
func TestAClaimWhoseAnswerWasLost(t *testing.T) {
	b := newBook(t, nil)
	b.to("13:00:00")
	me := claimant{holder: "host/1/x", hold: time.Minute, since: noon}
	for range 2 {
		if done := b.job.step(b.state, b.clocks(), me); done.claim == nil || done.claim.Holder != me.holder || len(b.state.Active) != 1 {
			t.Fatalf("claim %+v of %+v", done.claim, b.state.Active)
		}
	}
}

// Each claim has a number of its own, which grows, and is not below the clock: a
// store that lost its documents hands out none that was fenced off before.
func TestFencesGrow(t *testing.T) {
	b := newBook(t, nil)
	b.to("13:00:00")
	first := b.look("13:00 schedule").Fence
	b.end()
	b.at = b.at.Add(-2 * time.Second) // clocks go back
	b.state.Requests = []Request{{ID: "x"}}
	second := b.look("12:59 trigger").Fence
	check.Equal(t, first, time.Date(2026, time.June, 10, 13, 0, 0, 0, time.UTC).UnixMicro(), "numbers")
	check.Equal(t, second, first+1, "numbers")
}

func TestWhatBecomesOfOverdueTicks(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*Job)
		at      string
		claim   string
		records []string
		waiting []string
	}{
		"none, between ticks":    {nil, "16:30:00", "", []string{"13:00 missed down, 4 until 16:00"}, nil},
		"none, one tick":         {nil, "13:01:01", "", []string{"13:00 missed down"}, nil},
		"none, on time":          {nil, "16:00:30", "16:00 schedule", []string{"13:00 missed down, 3 until 15:00"}, nil},
		"last, between ticks":    {catching(CatchUpLast, 0, 0), "16:30:00", "16:00 catch_up", []string{"13:00 missed catch_up, 3 until 15:00"}, nil},
		"last, on time":          {catching(CatchUpLast, 0, 0), "16:00:00", "16:00 schedule", []string{"13:00 missed catch_up, 3 until 15:00"}, nil},
		"last, too late":         {catching(CatchUpLast, 0, 20*time.Minute), "16:30:00", "", []string{"13:00 missed late, 4 until 16:00"}, nil},
		"last, some too late":    {catching(CatchUpLast, 0, 2*time.Hour), "16:30:00", "16:00 catch_up", []string{"13:00 missed late, 2 until 14:00", "15:00 missed catch_up"}, nil},
		"all":                    {catching(CatchUpAll, 10, 0), "16:30:00", "13:00 catch_up", nil, []string{"14:00 catch_up", "15:00 catch_up", "16:00 catch_up"}},
		"all, with a limit":      {catching(CatchUpAll, 2, 0), "16:30:00", "15:00 catch_up", []string{"13:00 missed catch_up, 2 until 14:00"}, []string{"16:00 catch_up"}},
		"all, some too late":     {catching(CatchUpAll, 10, 2*time.Hour), "16:30:00", "15:00 catch_up", []string{"13:00 missed late, 2 until 14:00"}, []string{"16:00 catch_up"}},
		"all, at the very edge":  {catching(CatchUpAll, 10, 2*time.Hour), "16:02:00", "15:00 catch_up", []string{"13:00 missed late, 2 until 14:00"}, []string{"16:00 catch_up"}},
		"all, as late as may be": {catching(CatchUpAll, 10, 150*time.Minute), "16:30:00", "14:00 catch_up", []string{"13:00 missed late"}, []string{"15:00 catch_up", "16:00 catch_up"}},
		"all, behind the line":   {catching(CatchUpAll, 10, 0), "15:00:01", "13:00 catch_up", nil, []string{"14:00 catch_up", "15:00 catch_up"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, test.change)
			b.to(test.at)
			b.look(test.claim)
			b.wantRecords(test.records...)
			b.wantWaiting(test.waiting...)
			b.look("")
			b.wantRecords()
		})
	}
}

// catching makes a job catch up; a limit or a lateness of 0 is the usual.
func catching(policy CatchUp, limit int, late time.Duration) func(*Job) {
	return func(j *Job) {
		j.CatchUp = policy
		if policy == CatchUpLast {
			j.CatchUpLimit = 1
		}
		if limit > 0 {
			j.CatchUpLimit = limit
		}
		if late > 0 {
			j.MaxLate = late
		}
	}
}

// Ticks wait in line, one pass after the other, until they are too late, or more
// than are caught up.
func TestTheLineOfTicksToCatchUp(t *testing.T) {
	b := newBook(t, catching(CatchUpAll, 3, 4*time.Hour))
	b.to("16:30:00")
	b.look("14:00 catch_up").Until = b.at.Add(24 * time.Hour).UnixMicro()
	b.wantRecords("13:00 missed catch_up")
	b.to("17:00:00") // due, and behind those that wait
	b.look("")
	b.wantWaiting("15:00 catch_up", "16:00 catch_up", "17:00 catch_up")
	b.to("18:00:00")
	b.look("")
	b.wantRecords("15:00 missed catch_up")
	b.end()
	b.look("16:00 catch_up").Until = b.at.Add(24 * time.Hour).UnixMicro()
	b.to("21:30:00") // 17:00 is more than four hours late, and more have come
	b.look("")
	b.wantWaiting("19:00 catch_up", "20:00 catch_up", "21:00 catch_up")
	slices.Sort(b.records)
	b.wantRecords("17:00 missed catch_up", "18:00 missed catch_up")
	b.end()
	b.look("19:00 catch_up")
}

// The last tick that was missed gives way to one that is on time.
func TestTheLastTickGivesWay(t *testing.T) {
	b := newBook(t, catching(CatchUpLast, 0, 0))
	b.to("16:30:00")
	b.state.Pause = &Pause{} // nothing is caught up meanwhile
	b.look("")
	b.wantWaiting("16:00 catch_up")
	b.state.Pause = nil
	b.wantRecords("13:00 missed catch_up, 3 until 15:00")
	b.to("17:00:00")
	b.look("17:00 schedule")
	b.wantWaiting()
	b.wantRecords("16:00 missed catch_up")
}

func TestOverlap(t *testing.T) {
	t.Run("skip", func(t *testing.T) {
		b := newBook(t, nil)
		b.to("13:00:00")
		b.look("13:00 schedule").Until = b.at.Add(24 * time.Hour).UnixMicro()
		b.to("14:00:00")
		b.look("")
		b.wantRecords("14:00 skipped overlap")
	})
	t.Run("queue", func(t *testing.T) {
		b := newBook(t, func(j *Job) { j.Overlap = Queue })
		b.to("13:00:00")
		b.look("13:00 schedule").Until = b.at.Add(24 * time.Hour).UnixMicro()
		b.to("14:00:00")
		b.look("")
		b.wantWaiting("14:00 queue")
		b.to("15:00:00")
		b.look("")
		b.wantRecords("15:00 skipped overlap")
		b.to("15:30:00")
		b.end()
		b.look("14:00 queue")
		b.wantWaiting()
	})
	t.Run("allow", func(t *testing.T) {
		b := newBook(t, func(j *Job) { j.Overlap = Allow })
		b.to("13:00:00")
		b.look("13:00 schedule").Until = b.at.Add(24 * time.Hour).UnixMicro()
		b.to("14:00:00")
		b.look("14:00 schedule")
		check.Equal(t, len(b.state.Active), 2, "passes under way")
	})
}

func TestAPausedJobsTicksAreSkipped(t *testing.T) {
	b := newBook(t, nil)
	b.state.Pause = &Pause{Note: "they moved", By: "ann@web1"}
	b.to("13:00:00")
	b.look("")
	b.wantRecords("13:00 skipped paused")
	b.state.Requests = []Request{{ID: "x", Regions: []string{"GB"}}} // a person's word stands above the pause
	if got := b.look("13:00 trigger"); !slices.Equal(got.regions(), []string{"GB"}) {
		t.Errorf("claimed regions %q", got.regions())
	}
	b.end()
	b.state.Pause = nil
	b.to("14:00:00")
	b.look("14:00 schedule")
}

// A claim that is not renewed is recorded as lost, with what it had come to, and the
// next pass begins with the first region that it had not started.
func TestASilentClaimIsLost(t *testing.T) {
	b := newBook(t, nil)
	b.job.Regions = []string{"US", "GB", "DE", "FR"}
	b.to("13:00:00")
	c := b.look("13:00 schedule")
	c.Progress = Record{Runs: []Run{
		{Region: "US", Outcome: Succeeded, Units: 4, Started: Instant{b.at}, Ended: Instant{b.at}},
		{Region: "GB", Started: Instant{b.at}},
		{Region: "DE"}, {Region: "FR"},
	}}.json()
	fence := c.Fence
	b.to("13:00:59")
	b.look("")
	must.Equal(t, len(b.state.Active), 1, "a claim that stands was declared dead")
	b.to("13:01:00")
	b.look("")
	b.wantRecords("13:00 lost crashed")
	if b.state.NextRegion != "DE" || len(b.state.Active) != 0 || !slices.Contains(b.state.Dead, fence) {
		t.Errorf("state %+v", b.state)
	}
	last := must.Get(readRecord(b.state.Last))(t)
	check.EqualSlices(t, outcomes(Pass{"hourly", last}), []string{"US succeeded", "GB lost crashed", "DE skipped crashed", "FR skipped crashed"}, "runs")
	if last.Units != 4 || last.Host != "in process 1 on host" || last.Started.Format(time.TimeOnly) != "13:00:00" || last.Ended.Format(time.TimeOnly) != "13:01:00" {
		t.Errorf("record %+v", last)
	}
}

// So it does where the pass had ended already, and could not be recorded.
func TestASilentClaimOfAPassThatHadEnded(t *testing.T) {
	for _, test := range []struct {
		runs []Run
		next string
	}{
		{[]Run{{Region: "GB", Outcome: Succeeded, Started: Instant{noon}}, {Region: "DE", Outcome: Exhausted}, {Region: "US", Outcome: Skipped}}, "DE"},
		{[]Run{{Region: "GB", Outcome: Failed}, {Region: "DE", Outcome: Skipped}, {Region: "US", Outcome: Skipped}}, "DE"},
		{[]Run{{Region: "GB", Started: Instant{noon}}, {Region: "DE", Started: Instant{noon}}, {Region: "US", Started: Instant{noon}}}, ""},
		{nil, "GB"}, // nobody knows how far it had come
	} {
		b := newBook(t, nil)
		b.job.Regions = []string{"US", "GB", "DE"}
		b.state.NextRegion = "GB"
		b.to("13:00:00")
		c := b.look("13:00 schedule")
		if test.runs != nil {
			c.Progress = Record{Runs: test.runs}.json()
		}
		b.to("13:01:00")
		b.look("")
		b.wantRecords("13:00 lost crashed")
		check.Equal(t, b.state.NextRegion, test.next, "after", test.runs, "the next pass begins with")
	}
}

// One that may not be declared dead yet stays in the way.
func TestASilentClaimThatIsNotFencedStands(t *testing.T) {
	b := newBook(t, nil)
	b.to("13:00:00")
	b.look("13:00 schedule")
	b.to("14:00:00")
	done := b.job.step(b.state, b.clocks(), claimant{holder: "host/2/x", hold: time.Minute, since: noon})
	if done.claim != nil || len(b.state.Active) != 1 || len(done.records) != 1 || done.records[0].Reason != ReasonOverlap {
		t.Errorf("claim %+v, records %+v", done.claim, done.records)
	}
}

// A tick that was given back is on time for a minute, and overdue after it.
func TestATickThatWasGivenBack(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Job)
		at     string
		claim  string
		record []string
	}{
		"at once":             {nil, "13:00:05", "13:00 schedule", nil},
		"after a minute":      {nil, "13:01:01", "", []string{"13:00 missed down"}},
		"last, after an hour": {catching(CatchUpLast, 0, 0), "13:59:00", "13:00 catch_up", nil},
		"last, too late":      {catching(CatchUpLast, 0, 10*time.Minute), "13:59:00", "", []string{"13:00 missed late"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, test.change)
			b.to("13:00:00")
			c := *b.look("13:00 schedule")
			b.end()
			b.state.Waiting = []waiting{{c.Tick, c.Kind}}
			b.to(test.at)
			b.look(test.claim)
			b.wantRecords(test.record...)
		})
	}
}
