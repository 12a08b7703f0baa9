package jobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// Crontabs and clocks at random, with daemons or none, pauses, reruns and machines whose clocks are
// off: each run belongs to the tick that a model of cron gives it, and each tick without one is
// missed or skipped once.
func TestCronAtRandom(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	seed := effort.Seed(t)
	for i := range effort.Of[uint64](20, 60, 200) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { walkCron(t, rand.New(rand.NewPCG(seed+i, 0))) })
		})
	}
}

// cronLine is a crontab's line as Debian's cron understands it: of each minute of the wall clock
// it looks whether the line matches. A line that names hours also runs, at once, for what the clock
// has skipped, and not again for what the clock shows again.
type cronLine struct {
	fields []string
	zone   *time.Location
}

func (l cronLine) matches(at time.Time) bool {
	values := []int{at.Minute(), at.Hour(), at.Day(), int(at.Month()), int(at.Weekday())}
	for i, field := range l.fields {
		if !slices.ContainsFunc(strings.Split(field, ","), func(part string) bool {
			if step, ok := strings.CutPrefix(part, "*/"); ok {
				every, err := strconv.Atoi(step)
				return err == nil && values[i]%every == 0
			}
			return part == "*" || part == strconv.Itoa(values[i])
		}) {
			return false
		}
	}
	return true
}

// runs are the instants at which cron runs the line.
func (l cronLine) runs(from, until time.Time) (list []time.Time) {
	wall := func(at time.Time) time.Time {
		_, offset := at.In(l.zone).Zone()
		return at.UTC().Add(time.Duration(offset) * time.Second)
	}
	named := !strings.HasPrefix(l.fields[1], "*")
	shown := wall(from)
	for at := from.Add(time.Minute); !at.After(until); at = at.Add(time.Minute) {
		now := wall(at)
		fires := l.matches(now)
		if named {
			fires = false
			for skipped := shown.Add(time.Minute); !skipped.After(now); skipped = skipped.Add(time.Minute) {
				fires = fires || l.matches(skipped)
			}
		}
		if fires {
			list = append(list, at)
		}
		if now.After(shown) {
			shown = now
		}
	}
	return list
}

// cronModel knows which run has which tick.
type cronModel struct {
	ticks   []time.Time
	missed  time.Duration // missed_after
	regions []string
	closed  int // of the ticks, the first
	has     map[string]string
	paused  time.Time // zero: it is not
}

// grace is how late a run of a tick may begin.
func (m *cronModel) grace(i int) time.Duration {
	if i+1 == len(m.ticks) {
		return m.missed
	}
	return min(m.missed, m.ticks[i+1].Sub(m.ticks[i])/2)
}

func place(tick time.Time, region string) string {
	return tick.UTC().Format(time.RFC3339) + " " + region
}

// pass is that a clock shows an instant: what can have no run any more is missed, or skipped.
func (m *cronModel) pass(now time.Time) {
	for ; m.closed < len(m.ticks) && now.After(m.ticks[m.closed].Add(m.grace(m.closed))); m.closed++ {
		tick, what := m.ticks[m.closed], string(Missed)
		if !m.paused.IsZero() && !m.paused.After(tick) {
			what = string(Skipped)
		}
		for _, region := range m.regions {
			if m.has[place(tick, region)] == "" {
				m.has[place(tick, region)] = what
			}
		}
	}
}

// run is that a run begins; the tick is zero if it is manual.
func (m *cronModel) run(now time.Time, region string) (tick time.Time) {
	m.pass(now)
	for i, at := range m.ticks {
		if at.After(now) || now.Sub(at) > m.grace(i) || i+1 < len(m.ticks) && !m.ticks[i+1].After(now) {
			continue
		}
		for _, one := range m.regions {
			if region != "" && one != region || slices.ContainsFunc(m.ticks[i:], func(tick time.Time) bool { return m.has[place(tick, one)] != "" }) {
				continue // it is taken, or a clock that is ahead of this one has closed it
			}
			m.has[place(at, one)] = "run"
			if tick = at; !m.paused.IsZero() {
				m.has[place(at, one)] = string(Skipped)
			}
		}
	}
	return tick
}

func walkCron(t *testing.T, rng *rand.Rand) {
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	spec := pick("30 2 * * *", "0 3 * * *", "*/20 * * * *", "0 1,2,3,14 * * *", "5 */6 * * *", "* * * * *", "15 2 * * 0,3", "30 * * * *", "0 0 1 * *")
	zone := pick("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo")
	missedAfter := []time.Duration{15 * time.Minute, time.Minute, 3 * time.Hour}[rng.IntN(3)]
	regions := [][]string{{""}, {"US", "GB"}, {"US", "GB", "DE"}}[rng.IntN(3)]
	named := ""
	if regions[0] != "" {
		named = `regions = ["` + strings.Join(regions, `", "`) + `"]`
	}
	w := newWorld(t, setup{more: fmt.Sprintf("[job.cron]\nstarted_by = \"cron\"\nbudget = \"youtube/key1\"\nschedule = %q\ntimezone = %q\nmissed_after = %q\nhistory = \"8784h\"\n%s\n",
		spec, zone, missedAfter, named)})
	j := w.list[1]
	after(time.Duration(rng.IntN(365*24))*time.Hour - time.Hour) // fake time begins with a year without daylight saving behind
	changes := []time.Duration{85 * 24 * time.Hour, 92 * 24 * time.Hour, 299 * 24 * time.Hour, 302 * 24 * time.Hour}
	if rng.IntN(2) == 0 { // about a change of the clocks
		after(time.Until(time.Date(time.Now().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).Add(changes[rng.IntN(len(changes))])))
	}
	span := 4 * 24 * time.Hour
	switch spec {
	case "* * * * *":
		span = 3 * time.Hour
	case "0 0 1 * *":
		span = 70 * 24 * time.Hour
	}
	begin := time.Now().Truncate(time.Minute)
	line := cronLine{strings.Fields(spec), must.Get(time.LoadLocation(zone))(t)}
	m := &cronModel{ticks: line.runs(begin.Add(-40*24*time.Hour), begin.Add(2*span+80*24*time.Hour)), missed: missedAfter, regions: regions, has: map[string]string{}}
	firstSeen := len(m.ticks)
	c := &cronWalk{world: w, rng: rng, job: j, model: m, want: map[string]int{}}
	see := func(now time.Time) { // what ticked before somebody looked is nobody's
		if firstSeen == len(m.ticks) {
			firstSeen = slices.IndexFunc(m.ticks, func(tick time.Time) bool { return tick.After(now) })
			m.closed = max(0, firstSeen-1)
			if now.Sub(m.ticks[m.closed]) > m.grace(m.closed) {
				m.closed++
			}
		}
	}
	for _, tick := range m.ticks {
		if tick.After(begin.Add(span)) {
			break
		}
		if tick.Before(begin) {
			continue
		}
		c.meanwhile(tick, see)
		for _, region := range c.crontab() {
			c.lag()
			see(c.shown())
			c.runs(region)
		}
	}
	after(span)
	c.endDaemon()
	see(time.Now())
	m.pass(time.Now())
	view := must.Get(Look(t.Context(), w.store, []*Job{j}))(t)[0]
	must.Get(w.runner().step(t.Context(), j, func(s *state, at clocks) (stepped, error) { return j.step(s, at, claimant{hold: time.Minute}), nil }))(t)
	c.judge(firstSeen, view)
}

// cronWalk is a world with a job that cron starts.
type cronWalk struct {
	*world
	rng    *rand.Rand
	job    *Job
	model  *cronModel
	offset time.Duration  // of the machine's clock
	want   map[string]int // how many runs have a tick, by place; manual ones have none
	manual int
	drain  chan struct{}
	done   chan error
}

func (c *cronWalk) shown() time.Time { return time.Now().Add(c.offset) }

// crontab is for which regions the crontab runs the job.
func (c *cronWalk) crontab() []string {
	switch {
	case c.rng.IntN(5) == 0:
		return nil // the machine is off
	case c.rng.IntN(4) == 0:
		return []string{""}
	}
	list := slices.Clone(c.model.regions)
	c.rng.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	if c.rng.IntN(4) == 0 {
		return append(list, list[0]) // twice
	}
	return list[:1+c.rng.IntN(len(list))]
}

// lag is how late the next run begins.
func (c *cronWalk) lag() {
	after(time.Duration(c.rng.ExpFloat64() * float64([]time.Duration{2 * time.Second, 3 * time.Minute}[c.rng.IntN(2)])))
	c.offset = 0
	if c.rng.IntN(6) == 0 {
		c.offset = time.Duration(c.rng.Int64N(int64(90*time.Minute))) - 90*time.Minute + 50*time.Second
	}
}

// meanwhile is what happens until a tick.
func (c *cronWalk) meanwhile(tick time.Time, see func(time.Time)) {
	for c.offset = 0; ; {
		next := time.Duration(c.rng.ExpFloat64() * float64(5*time.Hour))
		if !time.Now().Add(next).Before(tick) {
			break
		}
		after(next)
		synctest.Wait()
		if c.drain != nil {
			see(time.Now())
		}
		switch c.rng.IntN(6) {
		case 0:
			c.endDaemon()
		case 1:
			if c.drain == nil {
				c.begin()
				after(time.Second)
				see(time.Now())
			}
		case 2:
			c.pause(see)
		case 3:
			see(c.shown())
			c.runs(c.model.regions[c.rng.IntN(len(c.model.regions))]) // by hand
		}
	}
	after(time.Until(tick))
}

func (c *cronWalk) begin() {
	c.drain, c.done = make(chan struct{}), make(chan error, 1)
	r, err := New([]*Job{c.job}, c.options)
	must.Do(c.t, err)
	go func() { c.done <- r.Run(context.Background(), c.drain, false) }()
}

func (c *cronWalk) endDaemon() {
	if c.drain == nil {
		return
	}
	c.model.pass(time.Now())
	close(c.drain)
	must.Do(c.t, <-c.done)
	c.drain = nil
}

func (c *cronWalk) pause(see func(time.Time)) {
	see(time.Now())
	c.model.pass(time.Now())
	if c.model.paused.IsZero() {
		set, _, _, err := SetPause(c.t.Context(), c.store, c.job, "tired")
		must.Do(c.t, err)
		c.model.paused = set.At.Time
		return
	}
	must.Get(EndPause(c.t.Context(), c.store, c.job))(c.t)
	c.model.paused = time.Time{}
}

// runs runs the job for a region, or for all of them.
func (c *cronWalk) runs(region string) {
	synctest.Wait()
	if c.drain != nil {
		c.model.pass(time.Now())
	}
	tick := c.model.run(c.shown(), region)
	options := c.options
	offset := c.offset
	options.Now = func() time.Time { return time.Now().Add(offset) }
	r, err := New([]*Job{c.job}, options)
	must.Do(c.t, err)
	ran := false
	pass, unrecorded := r.Outside(c.t.Context(), c.job, region, func(_ context.Context, run OutsideRun) OutsideEnd {
		ran = true
		return OutsideEnd{Seen: true}
	})
	must.Do(c.t, unrecorded)
	check.Equal(c.t, ran, c.model.paused.IsZero(), "ran unless paused")
	if !ran {
		return
	}
	check.Equal(c.t, pass.Outcome, Succeeded, pass.Error)
	what := fmt.Sprintf("the kind of a run of %q at %s", region, c.shown())
	if tick.IsZero() {
		c.manual++
		check.Equal(c.t, pass.Kind, Manual, what)
		return
	}
	c.want[place(tick, region)]++
	check.Equal(c.t, fmt.Sprint(pass.Kind, " ", formatTick(pass.Tick.Time)), fmt.Sprint(Scheduled, " ", formatTick(tick)), what)
}

// judge compares all records with the model.
func (c *cronWalk) judge(firstSeen int, view Overview) {
	got, manual := map[string]int{}, 0
	for _, r := range must.Get(History(c.t.Context(), c.store, c.job.Name, time.Time{}, time.Time{}, maxHistory))(c.t) {
		last := r.Tick
		if r.Until != nil {
			last = *r.Until
		}
		switch {
		case r.Kind == Manual:
			manual++
		case r.Outcome == Missed || r.Outcome == Skipped:
			n := 0
			for _, tick := range c.model.ticks {
				if tick.Before(r.Tick.Time) || tick.After(last.Time) {
					continue
				}
				n++
				for _, region := range c.model.regions {
					if len(r.Runs) == 0 || slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Region == region }) {
						got[place(tick, region)+" "+string(r.Outcome)]++
					}
				}
			}
			check.Equal(c.t, max(r.Ticks, 1), n, fmt.Sprintf("ticks of the record of %s", r.Tick))
		default:
			got[place(r.Tick.Time, r.Runs[0].Region)]++
		}
	}
	check.Equal(c.t, manual, c.manual, "manual runs")
	want := map[string]int{}
	for at, n := range c.want {
		want[at] += n
	}
	missed := 0
	for i, tick := range c.model.ticks[:c.model.closed] {
		for _, region := range c.model.regions {
			at := place(tick, region)
			if has := c.model.has[at]; i >= firstSeen && has != "run" || has == string(Skipped) {
				want[at+" "+has]++
				if has == string(Missed) {
					missed++
				}
			}
		}
	}
	for _, at := range slices.Sorted(func(yield func(string) bool) {
		for at := range want {
			if !yield(at) {
				return
			}
		}
		for at := range got {
			if want[at] == 0 && !yield(at) {
				return
			}
		}
	}) {
		if min(got[at], 1) != want[at] {
			check.Equal(c.t, got[at], want[at], at)
		}
	}
	if missed == 0 {
		check.Equal(c.t, view.Missed, (*MissedTicks)(nil), "missed as it is read")
	}
}
