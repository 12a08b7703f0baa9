package storetest

import (
	"strconv"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// soakProbe is an operation that always fits. It is the first item of each batch, so that
// its instant shows when the batch was decided.
const soakProbe = "probe"

// begin starts a new budget with new limits.
func (s *soakLane) begin() {
	s.budget = "soak/" + s.name + "-" + strconv.FormatUint(s.step, 10)
	s.recent, s.open, s.lately = nil, nil, nil
	long := []int64{70 * minute, 2 * hour, 3 * hour}[s.rng.IntN(3)]
	short := []int64{100, 5000, second, minute, 20 * minute}[s.rng.IntN(5)]
	slot := []int64{second, minute, 7 * minute}[s.rng.IntN(3)]
	period, length := hour, limit.Hour
	if s.rng.IntN(4) == 0 {
		period, length = 24*hour, limit.Day
	}
	reset, err := limit.NewCalendar(length, "UTC", 0)
	if err != nil {
		panic(err) // of constants
	}
	micro := func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
	units := int64(s.most) * (20 + s.rng.Int64N(80))
	every := []string{"!" + soakProbe}
	s.limits = []limit.Limit{
		{Name: "long", Limit: units, Counts: limit.CountUnits, Window: limit.RollingWindow(micro(long)), Operations: every},
		{Name: "short", Limit: units/4 + s.rng.Int64N(units), Counts: limit.CountUnits, Window: limit.RollingWindow(micro(short)), Operations: []string{"videos"}},
		{Name: "reset", Limit: units/2 + s.rng.Int64N(2*units), Counts: limit.CountUnits, Window: limit.CalendarWindow(reset), Operations: every},
		{Name: "slots", Limit: int64(s.most) + s.rng.Int64N(2*int64(s.most)), Counts: limit.CountCalls, Window: limit.CoarseWindow(micro(hour), micro(slot)), Operations: []string{"search"}},
		{Name: "open", Limit: 3 + s.rng.Int64N(60), Counts: limit.CountCalls, Window: limit.ConcurrentWindow(), Operations: every},
		{Name: "probes", Limit: limit.MaxUnits, Counts: limit.CountCalls, Window: limit.RollingWindow(micro(long)), Operations: []string{soakProbe}},
	}
	if s.rng.IntN(2) == 0 {
		l := &s.limits[0]
		l.Headroom = 1 + s.rng.Int64N(20)
		l.Quota, l.OutagePart = l.Limit+l.Headroom, s.rng.Int64N(l.Headroom+1)
	}
	s.lengths = []int64{long, short, slot, hour}
	s.ledger = newSoakLedger(s.limits, []int64{0, 0, period, 0, 0, 0})
}

// pass lets time pass, to and around the instants at which something returns.
func (s *soakLane) pass() {
	length := s.lengths[s.rng.IntN(len(s.lengths))]
	switch s.rng.IntN(9) {
	case 0, 1:
	case 2:
		s.now += 1 + s.rng.Int64N(99)
	case 3:
		s.now += length - 1
	case 4:
		s.now += length
	case 5:
		s.now += length/2 + 1
	case 6:
		s.now += s.rng.Int64N(2 * length)
	case 7: // to the next reset, give or take
		s.now += hour - s.now%hour - 3 + s.rng.Int64N(6)
	case 8: // to where something comes back
		if l := s.ledger.limits[s.rng.IntN(3)]; len(l.byReturn) > 0 {
			s.now = max(s.now, l.byReturn[0].at-1+s.rng.Int64N(2))
		}
	}
	switch {
	case len(s.ledger.held) > s.most:
		s.now += 20*minute + s.rng.Int64N(2*hour)
	case s.rng.IntN(50) == 0: // a clock that is set back
		s.now -= s.rng.Int64N(minute)
	}
	// Ids are kept as of a calendar's last use, so that those of a day end with
	// the first batch that begins after it: batches that cross midnight in several
	// steps may keep them or not.
	if day := 24 * hour; s.ledger.limits[2].period == day && s.now%day > day-second {
		s.now += second
	}
}

// batch is one of up to 128 charges, most of them full.
func (s *soakLane) batch() driver.Batch {
	b := driver.Batch{Budget: s.budget, Now: s.now, Limits: s.limits, Items: []driver.Item{{ID: s.id(), Operation: soakProbe}}}
	n := driver.MaxBatch - 1
	if s.rng.IntN(4) == 0 {
		n = s.rng.IntN(n)
	}
	for range min(n, s.most) {
		b.Items = append(b.Items, s.item())
	}
	return b
}

func (s *soakLane) id() string {
	s.made++
	return s.name + "-" + strconv.Itoa(s.made)
}

// item is a new charge, or a recent one, the same or changed.
func (s *soakLane) item() driver.Item {
	if len(s.recent) > 0 && s.rng.IntN(10) == 0 {
		again := s.recent[s.rng.IntN(len(s.recent))]
		if s.rng.IntN(5) == 0 {
			again.Units++
		}
		return again
	}
	i := driver.Item{ID: s.id(), Operation: []string{"search", "videos", "channels"}[s.rng.IntN(3)], Units: 1 + s.rng.Int64N(20)}
	switch s.rng.IntN(40) {
	case 0:
		i.Units = 0
	case 1:
		i.Units = 1 + s.rng.Int64N(2*s.limits[0].Limit)
	}
	if s.rng.IntN(10) == 0 {
		i.Floor = s.rng.Int64N(20)
	}
	i.UseHeadroom = s.rng.IntN(10) == 0
	if s.rng.IntN(3) > 0 {
		i.Labels = driver.Labels{Job: []string{"trending", "comments"}[s.rng.IntN(2)], Region: "US"}
	}
	if i.DryRun = s.rng.IntN(20) == 0; i.DryRun {
		return i
	}
	if s.rng.IntN(7) == 0 {
		i.Lease = []int64{1, 50, second, minute, 30 * minute, 3 * hour}[s.rng.IntN(6)]
	}
	if len(s.recent) < 256 {
		s.recent = append(s.recent, i)
	} else {
		s.recent[s.rng.IntN(len(s.recent))] = i
	}
	return i
}
