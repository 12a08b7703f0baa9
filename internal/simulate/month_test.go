package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// pacific is where the upstream's day begins at midnight.
var pacific = func() *time.Location {
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		panic(err)
	}
	return zone
}()

// month is what happens in a simulation, all of it drawn from the seed. Its
// instants are those of the true time.
type month struct {
	setting
	seed  uint64
	start time.Time // a midnight, Pacific
	days  int

	outages  []span
	partings []parting
	crashes  []crash
	steps    []step
	suspends []span
	stops    []span // of the daemon that has a search's pass then, alone

	intrusions []intrusion
	missed     []time.Time // ticks that come while the store is out of reach

	quiet  []span                    // when nothing goes wrong but what is planned
	apart  []span                    // when the store stays in reach, and daemons stay alive
	filled func(day int) time.Time   // when what is left of a day's units is begun to be spent
	busy   []func(day int) time.Time // when most is under way
	wanted int                       // pages of the important job in a day

	guaranteed int64 // units of that job's share
}

// span is a stretch of time.
type span struct {
	at  time.Time
	dur time.Duration
}

// crash is the death of a daemon, without a last word, and how long it stays dead.
type crash struct {
	span
	daemon int
}

// parting keeps one daemon alone from the store.
type parting struct {
	span
	daemon int
}

// step sets a daemon's wall clock wrong by so much for a while.
type step struct {
	span
	daemon int
	by     time.Duration
}

// The months in turn: one with a day of 25 hours, one with a day of 23.
var months = []struct {
	year  int
	month time.Month
	days  int
}{
	{2026, time.November, 30},
	{2027, time.March, 31},
}

// filling is the job that takes what the others leave of a day; a daemon stands still in
// the midst of its pass.
const filling = "backfill"

// draw is the month of a seed; days is 0 for all of it.
func draw(t *testing.T, s setting, seed uint64, days int) month {
	t.Helper()
	which := months[seed%uint64(len(months))]
	if days == 0 {
		days = which.days
	}
	m := month{setting: s, seed: seed, start: time.Date(which.year, which.month, 1, 0, 0, 0, 0, pacific), days: days}
	m.plan(t, rand.New(rand.NewPCG(seed, 2)))
	luck := rand.New(rand.NewPCG(seed, 1))
	for range 2 {
		m.outages = append(m.outages, m.span(luck, 2*time.Minute, time.Hour, m.apart...))
	}
	m.partings = append(m.partings, parting{m.span(luck, time.Minute, 30*time.Minute, m.apart...), luck.IntN(daemons)})
	for range 3 {
		m.crashes = append(m.crashes, crash{m.span(luck, time.Minute, 15*time.Minute, m.apart...), luck.IntN(daemons)})
	}
	half := (m.days + 1) / 2 // one clock at a time
	m.steps = append(m.steps,
		step{m.within(luck, 0, half, time.Minute, 4*time.Hour), luck.IntN(daemons), between(luck, 2*time.Minute, time.Hour)},
		step{m.within(luck, m.days-half, m.days, time.Minute, 4*time.Hour), luck.IntN(daemons), -between(luck, 2*time.Minute, time.Hour)},
	)
	m.suspends = append(m.suspends, m.span(luck, time.Minute, time.Hour))
	if m.stranger {
		m.intrude(rand.New(rand.NewPCG(seed, 3)))
	}
	return m
}

// plan has things happen that no month is without, however short, while nothing else
// goes wrong: the store is out of reach at a tick that is to be caught up, and a daemon
// stands still in the midst of a pass, alone, until another has taken that for lost.
func (m *month) plan(t *testing.T, luck *rand.Rand) {
	t.Helper()
	cfg, list := load(t, writeConfig(t, t.TempDir(), m.setting))
	missed, backfill := jobOf(list, m.missing), jobOf(list, filling)
	const about = time.Hour
	m.filled = func(day int) time.Time { return backfill.Next(m.midnight(day)) }
	m.busy = []func(int) time.Time{m.filled}
	if m.important != "" {
		m.protect(jobOf(list, m.important))
		for _, l := range must.Get(cfg.Spec("youtube/key1"))(t).Limits {
			if share := l.ShareOf(m.important); share >= 0 {
				m.guaranteed = l.Guarantees()[share]
			}
		}
	}

	day := m.midnight(luck.IntN(m.days))
	var ticks []time.Time
	for tick := missed.Next(day.Add(about)); tick.Before(day.Add(m.calm)); tick = missed.Next(tick) {
		ticks = append(ticks, tick)
	}
	tick := ticks[luck.IntN(len(ticks))]
	away := between(luck, 2*time.Minute, 10*time.Minute)
	m.missed = append(m.missed, tick)
	m.outages = append(m.outages, span{tick.Add(-away), away + between(luck, 2*time.Minute, 30*time.Minute)})
	m.quiet = append(m.quiet, span{tick.Add(-about), 2 * about})

	tick = m.filled(luck.IntN(m.days))
	m.stops = append(m.stops, span{tick.Add(between(luck, time.Minute, 3*time.Minute)), between(luck, 4*time.Minute, 10*time.Minute)})
	m.quiet = append(m.quiet, span{tick.Add(-about), 2 * about})
}

func jobOf(list []*jobs.Job, name string) *jobs.Job {
	return list[slices.IndexFunc(list, func(j *jobs.Job) bool { return j.Name == name })]
}

// span is one that is over well before the month is.
func (m month) span(luck *rand.Rand, least, most time.Duration, avoid ...span) span {
	return m.within(luck, 0, m.days, least, most, avoid...)
}

// within is a span that is over well before some days of the month are, and that
// leaves what is planned alone, and what is to be avoided. Every other one begins in an evening, when most is under
// way.
func (m month) within(luck *rand.Rand, from, until int, least, most time.Duration, avoid ...span) span {
	avoid = slices.Concat(m.quiet, avoid)
	for {
		s := m.anywhere(luck, from, until, least, most)
		if !slices.ContainsFunc(avoid, func(q span) bool { return q.touches(s.at, s.at.Add(s.dur)) }) {
			return s
		}
	}
}

func (m month) anywhere(luck *rand.Rand, from, until int, least, most time.Duration) span {
	whole := m.midnight(until).Sub(m.midnight(from))
	at := m.midnight(from).Add(between(luck, whole/50, whole-whole/50-most))
	if evening, evenings := luck.IntN(2) == 0, until-from-1; evening && evenings > 0 {
		busy := m.busy[0]
		if len(m.busy) > 1 {
			busy = m.busy[luck.IntN(len(m.busy))]
		}
		at = busy(from + luck.IntN(evenings)).Add(between(luck, 0, 40*time.Minute))
	}
	return span{at.Truncate(time.Microsecond), between(luck, least, most)}
}

// touches reports whether a span has something in common with the time between two
// instants.
func (s span) touches(from, until time.Time) bool {
	return s.at.Before(until) && s.at.Add(s.dur).After(from)
}

func between(luck *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(luck.Int64N(int64(most-least)))
}

// midnight is the beginning of a day of the month, from 0.
func (m month) midnight(day int) time.Time { return m.start.AddDate(0, 0, day) }

func (m month) end() time.Time { return m.midnight(m.days) }

// day is the place of an instant's Pacific day in the month.
func (m month) day(at time.Time) int {
	y, mo, d := at.In(pacific).Date()
	sy, sm, sd := m.start.Date()
	const long = 24 * time.Hour
	return int(time.Date(y, mo, d, 0, 0, 0, 0, time.UTC).Sub(time.Date(sy, sm, sd, 0, 0, 0, 0, time.UTC)) / long)
}

// away reports whether a daemon may have had to do without the store between two
// instants.
func (m month) away(from, until time.Time) bool {
	touches := func(s span) bool { return s.touches(from.Add(-slowest), until) }
	return slices.ContainsFunc(m.outages, touches) ||
		slices.ContainsFunc(m.partings, func(p parting) bool { return touches(p.span) })
}

// troubled reports whether anything goes wrong between two instants.
func (m month) troubled(from, until time.Time) bool {
	all := slices.Concat(m.outages, m.suspends, m.stops)
	for _, p := range m.partings {
		all = append(all, p.span)
	}
	for _, c := range m.crashes {
		all = append(all, c.span)
	}
	for _, s := range m.steps {
		all = append(all, s.span)
	}
	return slices.ContainsFunc(all, func(s span) bool { return s.touches(from, until) })
}

// noticed reports whether a daemon was there to notice that it was kept from the store
// alone.
func (m month) noticed() bool {
	return slices.ContainsFunc(m.partings, func(p parting) bool {
		over := func(s span) bool { return s.touches(p.at, p.at.Add(p.dur)) }
		return !slices.ContainsFunc(m.suspends, over) && !slices.ContainsFunc(m.crashes, func(c crash) bool { return over(c.span) })
	})
}

// String tells what goes wrong, and when.
func (m month) String() string {
	const minute = "02 15:04"
	text := fmt.Sprintf("seed %d: %d days from %s (Pacific)", m.seed, m.days, m.start.Format(time.DateOnly))
	tell := func(what string, s span) {
		text += fmt.Sprintf("\n  %s  %s, for %s", s.at.In(pacific).Format(minute), what, s.dur.Round(time.Second))
	}
	for _, o := range m.outages {
		tell("the store is out of reach", o)
	}
	for _, p := range m.partings {
		tell(fmt.Sprintf("the store is out of reach of daemon %d alone", p.daemon+1), p.span)
	}
	for _, c := range m.crashes {
		tell(fmt.Sprintf("daemon %d crashes", c.daemon+1), c.span)
	}
	for _, s := range m.steps {
		tell(fmt.Sprintf("daemon %d's clock is off by %s", s.daemon+1, s.by.Round(time.Second)), s.span)
	}
	for _, s := range m.stops {
		tell("the daemon that fills the day stands still", s)
	}
	for _, s := range m.suspends {
		tell("the machine is suspended", s)
	}
	return text
}
