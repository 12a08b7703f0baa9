package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
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
	seed  uint64
	start time.Time // a midnight, Pacific
	days  int

	outages  []span
	partings []parting
	crashes  []crash
	steps    []step
	suspends []span
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

// draw is the month of a seed; days is 0 for all of it.
func draw(seed uint64, days int) month {
	which := months[seed%uint64(len(months))]
	if days == 0 {
		days = which.days
	}
	m := month{seed: seed, start: time.Date(which.year, which.month, 1, 0, 0, 0, 0, pacific), days: days}
	luck := rand.New(rand.NewPCG(seed, 1))
	for range 2 {
		m.outages = append(m.outages, m.span(luck, 2*time.Minute, time.Hour))
	}
	m.partings = append(m.partings, parting{m.span(luck, time.Minute, 30*time.Minute), luck.IntN(daemons)})
	for range 3 {
		m.crashes = append(m.crashes, crash{m.span(luck, time.Minute, 15*time.Minute), luck.IntN(daemons)})
	}
	half := (m.days + 1) / 2 // one clock at a time
	m.steps = append(m.steps,
		step{m.within(luck, 0, half, time.Minute, 4*time.Hour), luck.IntN(daemons), between(luck, 2*time.Minute, time.Hour)},
		step{m.within(luck, m.days-half, m.days, time.Minute, 4*time.Hour), luck.IntN(daemons), -between(luck, 2*time.Minute, time.Hour)},
	)
	m.suspends = append(m.suspends, m.span(luck, time.Minute, time.Hour))
	return m
}

// span is one that is over well before the month is.
func (m month) span(luck *rand.Rand, least, most time.Duration) span {
	return m.within(luck, 0, m.days, least, most)
}

// within is a span that is over well before some days of the month are. Every other
// one begins in an evening, when most is under way.
func (m month) within(luck *rand.Rand, from, until int, least, most time.Duration) span {
	whole := m.midnight(until).Sub(m.midnight(from))
	at := m.midnight(from).Add(between(luck, whole/50, whole-whole/50-most))
	if evening, evenings := luck.IntN(2) == 0, until-from-1; evening && evenings > 0 {
		at = m.midnight(from + luck.IntN(evenings)).Add(between(luck, 18*time.Hour, 18*time.Hour+40*time.Minute))
	}
	return span{at.Truncate(time.Microsecond), between(luck, least, most)}
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
	touches := func(s span) bool { return s.at.Before(until) && s.at.Add(s.dur+slowest).After(from) }
	return slices.ContainsFunc(m.outages, touches) ||
		slices.ContainsFunc(m.partings, func(p parting) bool { return touches(p.span) })
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
	for _, s := range m.suspends {
		tell("the machine is suspended", s)
	}
	return text
}
