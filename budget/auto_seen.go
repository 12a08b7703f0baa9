package budget

import (
	"context"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/headroom"
	"github.com/quotactl/quotactl/budget/limit"
)

// seenStep is what measured spans are rounded up to, in µs, so that they seldom change.
const seenStep = int64(100_000)

// plainCharges are those of this process in one limit: charges without a lease, for
// which nobody knows when their requests reach the upstream.
type plainCharges struct {
	recent headroom.Recent
	reset  int64 // of a calendar: the next one, µs
	period int64 // the period of evidence that most is of
	most   int64 // what was in flight at once
}

// saw notes what this process saw in the period of an instant (µs). at is 0 unless the
// upstream reported then. a.mu is held.
func (a *autos) saw(l limit.Limit, at int64, seen headroom.Seen) {
	for _, notes := range []*headroom.Notes{&a.notes, &a.pending} {
		if notes.Limits == nil {
			notes.Limits = map[string]headroom.Noted{}
		}
		noted := notes.Limits[l.Name]
		if now := noted.See(l.Window, at, seen); notes == &a.notes && !now {
			return
		}
		notes.Limits[l.Name] = noted
	}
}

// sawClock notes the difference between this process's and the store's clock. It matters only
// for calendars, and a process that has not charged notes nothing. a.mu is held.
func (a *autos) sawClock(off, now int64) {
	if !a.active {
		return
	}
	off = roundUp(min(off, headroom.MaxClock))
	for _, l := range a.own {
		if l.Window.Kind == limit.CalendarKind {
			start, _ := headroom.Period(l.Window, now)
			a.saw(l, 0, headroom.Seen{Start: start, Clock: &off})
		}
	}
}

func roundUp(span int64) int64 { return (span + seenStep - 1) / seenStep * seenStep }

// counts reports whether a store takes a report into account: neither of a past period, nor
// past its reset.
func counts(l limit.Limit, r driver.Report, now int64) bool {
	from := l.Window.Cut(now) + 1
	if l.Window.Kind == limit.CalendarKind {
		from, _ = l.Window.Span(now)
	}
	return (r.At == 0 || r.At >= from) && (r.Reset == 0 || r.Reset > now)
}

// reported takes in what a report said of a limit: that there was one, how long the request
// took, and drift, which raises the headroom at once.
func (a *autos) reported(ctx context.Context, l limit.Limit, r driver.Report, d driver.Drift) {
	if a == nil || !a.follows[l.Name] || !counts(l, r, d.Now) {
		return
	}
	a.ready(ctx)
	start, _ := headroom.Period(l.Window, d.Now)
	seen := headroom.Seen{Start: start, Reported: true}
	if took := d.Now - r.At; r.At > 0 && took > 0 {
		seen.Request = roundUp(min(took, headroom.MaxRequest))
	}
	a.mu.Lock()
	a.active = true
	first, lowered := !a.notes.Limits[l.Name].Reported(start), false
	a.saw(l, d.Now, seen)
	if d.Added > 0 {
		e := a.known[l.Name]
		hour, sum := driver.HourOf(d.Now), d.Added
		for _, s := range e.Drift {
			if s.Hour == hour {
				sum += s.Amount
			}
		}
		e.Drift = replace(e.Drift, []headroom.Sample{{Hour: hour, Amount: min(sum, limit.MaxUnits)}}, hour, limit.Never)
		a.known[l.Name] = e
		lowered = a.work([]limit.Limit{l}, d.Now)
	}
	a.mu.Unlock()
	if lowered { // a period has begun meanwhile
		a.lowered()
	}
	if first {
		a.share(ctx)
	}
}

// charged takes in the plain charges of a batch.
func (a *autos) charged(limits []limit.Limit, items []driver.Item, decided driver.Decisions) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, item := range items {
		d := &decided.Items[i]
		if d.Result != driver.Granted || item.DryRun || d.Replayed || d.Allowance {
			continue
		}
		a.active = true
		if item.Lease > 0 {
			continue
		}
		for _, l := range limits {
			if a.follows[l.Name] && l.Covers(item.Operation) {
				a.plainCharge(l, d.At, l.Amount(d.Units))
			}
		}
	}
}

// plainCharge adds one at an instant (µs). a.mu is held.
func (a *autos) plainCharge(l limit.Limit, at, amount int64) {
	p := a.plain[l.Name]
	if p == nil {
		p = &plainCharges{}
		a.plain[l.Name] = p
	}
	if c := l.Window.Calendar; c != nil {
		a.passReset(l, p, at)
		if p.reset == 0 {
			_, p.reset = c.Period(at)
		}
		p.recent.Add(at, amount)
		return
	}
	p.recent.Add(at, amount)
	if took := a.notes.Limits[l.Name].LongestRequest(); took > 0 {
		a.inFlight(l, p, at, p.recent.Sum(at-took, at+1))
	}
}

// inFlight notes what was in flight at once at an instant, if that is the most of its period.
// a.mu is held.
func (a *autos) inFlight(l limit.Limit, p *plainCharges, at, amount int64) {
	if start, _ := headroom.Period(l.Window, at); start != p.period {
		p.period, p.most = start, 0
	}
	if amount <= p.most {
		return
	}
	more := amount
	if l.Window.Kind == limit.CalendarKind { // the notes add it up
		more -= p.most
	}
	p.most = amount
	a.saw(l, 0, headroom.Seen{Start: p.period, InFlight: map[string]int64{hostName(): more}})
}

// passReset notes what was in flight at a calendar's reset, once an instant is past it. a.mu
// is held.
func (a *autos) passReset(l limit.Limit, p *plainCharges, now int64) {
	if p.reset == 0 || now < p.reset {
		return
	}
	a.atReset(l, p)
	_, p.reset = l.Window.Calendar.Period(now)
}

// atReset notes what may be counted after the next reset although it was charged before it
// and outside of the guard. a.mu is held.
func (a *autos) atReset(l limit.Limit, p *plainCharges) {
	from, until := p.reset-a.notes.Limits[l.Name].LongestRequest(), p.reset-l.Window.Guard
	if from < until {
		a.inFlight(l, p, p.reset, p.recent.Sum(from, until))
	}
}

// passResets does passReset for all limits. a.mu is held.
func (a *autos) passResets(now int64) {
	for _, l := range a.own {
		if p := a.plain[l.Name]; p != nil && l.Window.Calendar != nil {
			a.passReset(l, p, now)
		}
	}
}

// leave notes what a process that ends will not be there to note at the next reset. a.mu is
// held.
func (a *autos) leave(now int64) {
	a.passResets(now)
	for _, l := range a.own {
		if p := a.plain[l.Name]; p != nil && p.reset > 0 {
			a.atReset(l, p)
		}
	}
}
