package alert

import (
	"fmt"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/jobs"
)

// The kinds of alerts, as a configuration names them.
const (
	kindExhausted = "exhausted"
	kindForecast  = "forecast"
	kindStarved   = "starved"
	kindFailed    = "failed"
	kindLocked    = "locked"
	kindDrift     = "drift"
	kindOutage    = "outage"
	kindLost      = "lost"
	kindMissed    = "missed"
	kindUsed      = "used"
	kindTest      = "test"
)

// usedEnds is by how many percent use must fall below its threshold to end.
const usedEnds = 5

func usedKind(percent int64) string { return fmt.Sprintf("%s %d%%", kindUsed, percent) }

// period is the end of the period of a limit that an instant (µs) is in, and whether it counts
// anew then: a calendar's period, else the window. Other limits have none.
func period(w limit.Window, at int64) (until int64, anew, ok bool) {
	switch w.Kind {
	case limit.Rolling:
		return at + w.Length, false, true
	case limit.CalendarKind:
		_, next := w.Calendar.Period(at)
		return next, true, true
	}
	return 0, false, false
}

// longest is the end of the period of a whole budget: that of its calendar limit whose period
// ends last, else of its longest window; a day if it has neither.
func longest(limits []limit.Limit, at int64) (until int64) {
	calendar := false
	for _, l := range limits {
		end, anew, ok := period(l.Window, at)
		if ok && !l.Window.Brief() && (anew && !calendar || anew == calendar && end > until) {
			until, calendar = end, anew
		}
	}
	if until == 0 {
		return at + (24 * time.Hour).Microseconds()
	}
	return until
}

// ofBudget are the facts that a budget's status shows; used has the percentages that somebody
// wants alerts for.
func ofBudget(s budget.Status, used []int64) (list []fact) {
	at := s.At.UnixMicro()
	var limits []limit.Limit
	for _, l := range s.Limits {
		limits = append(limits, l.Limit)
	}
	overall, tightest := longest(limits, at), s.Tightest()
	lost := !s.Recovering.IsZero()
	for _, l := range s.Limits {
		until, anew, counts := period(l.Window, at)
		if !counts {
			until = overall
		}
		about := func(kind string) fact {
			return fact{subject: subject{Kind: kind, Budget: s.Budget, Limit: l.Name}, at: at, until: until}
		}
		lost = lost || l.Recovered > 0
		drift := about(kindDrift)
		drift.on, drift.off = l.Drift > 0, l.Drift == 0
		drift.begin = fmt.Sprintf("%s reports %d more than was charged in limit %s of %s: something that does not ask quotactl spends it", s.Budget, l.Drift, l.Name, s.Budget)
		drift.end = fmt.Sprintf("limit %s of %s counts nothing any more that no charge explains", l.Name, s.Budget)
		list = append(list, drift, lockFact(s, l.Name, about(kindLocked)))
		if isTightest := tightest.Refuses() && l.Name == tightest.Name; isTightest || !l.Observe {
			f := about(kindExhausted)
			if f.anew = anew; l.Window.Brief() {
				f.until, f.anew = overall, false
			}
			list = append(list, exhaustedFact(s, l, f, isTightest))
		}
		if !counts {
			continue
		}
		for _, percent := range used {
			f := about(usedKind(percent))
			f.anew = anew
			f.on, f.off = l.Used*100 >= percent*l.Limit.Limit, l.Used*100 < (percent-usedEnds)*l.Limit.Limit
			f.begin = fmt.Sprintf("%d of %d of limit %s of %s are used: %d %% or more", l.Used, l.Limit.Limit, l.Name, s.Budget, percent)
			f.end = fmt.Sprintf("%d of %d of limit %s of %s are used: less than %d %%", l.Used, l.Limit.Limit, l.Name, s.Budget, percent-usedEnds)
			if l.Limit.Limit > 0 {
				list = append(list, f)
			}
		}
	}
	list = append(list, lockFact(s, "", fact{subject: subject{Kind: kindLocked, Budget: s.Budget}, at: at, until: overall}))
	return append(list, fact{
		subject: subject{Kind: kindLost, Budget: s.Budget}, at: at, until: overall, on: lost, off: !lost,
		begin: fmt.Sprintf("the store had lost data of %s: what hosts know to be missing was recorded again", s.Budget),
		end:   fmt.Sprintf("no limit of %s counts anything any more that was recorded after a loss of data", s.Budget),
	})
}

// exhaustedFact is whether a limit says that a budget has nothing left: it begins while that is the
// tightest limit, and ends when something of it is left.
func exhaustedFact(s budget.Status, l budget.LimitStatus, f fact, tightest bool) fact {
	alone := s.Only(l.Name, "").Tightest()
	f.on, f.off = tightest && alone.Empty(), !alone.Empty()
	f.begin = fmt.Sprintf("%s is exhausted: 0 of %d are left of limit %s", s.Budget, l.Limit.Limit, l.Name)
	switch {
	case alone.Lock != nil:
		f.lock, f.begin = l.Remaining > 0, s.Budget+" is exhausted: "+lockedText("it", *alone.Lock)
	case !l.NextReturn.IsZero():
		f.begin += fmt.Sprintf("; the next %d return at %s", l.NextAmount, instant(l.NextReturn))
	}
	f.end = fmt.Sprintf("%s has units again: %d of %d are left of limit %s", s.Budget, l.Remaining, l.Limit.Limit, l.Name)
	return f
}

// lockFact is whether a limit, or with an empty name the whole budget, is locked.
func lockFact(s budget.Status, name string, f fact) fact {
	what := s.Budget
	if name != "" {
		what = fmt.Sprintf("limit %s of %s", name, s.Budget)
	}
	lock, locked := s.LockOf(name)
	f.on, f.off = locked, !locked
	lock.Limit = ""
	f.begin = lockedText(what, lock)
	f.end = what + " is no longer locked"
	return f
}

// lockedText is until when a limit, or what a lock of the whole budget closes, is locked, and by what.
func lockedText(whole string, l budget.Lock) string {
	if l.Limit != "" {
		whole = "limit " + l.Limit
	}
	text := fmt.Sprintf("%s is locked until %s", whole, instant(l.Until))
	if l.Why != "" {
		text += ": " + l.Why
	}
	return text
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ofPass are the facts that a pass's record shows. until is the end of the period of the job's
// budget that an instant is in. still is when the record was read, if it is the job's newest;
// else 0.
func ofPass(j *jobs.Job, pass jobs.Record, until func(at int64) int64, still int64) []fact {
	at := ended(pass)
	complete := j.Complete(pass)
	about := func(kind string, outcomes ...jobs.Outcome) fact {
		f := fact{subject: subject{Kind: kind, Budget: j.Budget, Job: j.Name}, at: at, until: until(at), off: complete, still: still}
		if still > 0 {
			f.stillUntil = until(still)
		}
		for _, o := range outcomes {
			f.on = f.on || pass.Outcome == o
		}
		f.begin = fmt.Sprintf("the pass of %s of %s ended %s", j.Name, instant(pass.Tick.Time), pass.Outcome)
		if pass.Reason != "" {
			f.begin += " (" + pass.Reason + ")"
		}
		if why := firstError(pass); why != "" {
			f.begin += ": " + why
		}
		f.end = fmt.Sprintf("the pass of %s of %s is complete", j.Name, instant(pass.Tick.Time))
		return f
	}
	return []fact{
		about(kindExhausted, jobs.Exhausted),
		about(kindFailed, jobs.Failed, jobs.TimedOut),
		about(kindLost, jobs.Lost),
	}
}

// ended is when a pass ended, in µs; its tick if it never began.
func ended(pass jobs.Record) int64 {
	if pass.Ended.IsZero() {
		return pass.Tick.UnixMicro()
	}
	return pass.Ended.UnixMicro()
}

// firstError is what went wrong first in a pass; jobs have removed secrets from it.
func firstError(pass jobs.Record) string {
	if pass.Error != "" {
		return pass.Error
	}
	for _, run := range pass.Runs {
		if run.Outcome != pass.Outcome || run.Error == "" {
			continue
		}
		if run.Region == "" {
			return run.Error
		}
		return run.Region + ": " + run.Error
	}
	return ""
}

// ofStarved is whether a job is starved: its last complete pass is longer ago than its
// stale_after, and the last one ended for want of units. since is when it was first looked at.
func ofStarved(j *jobs.Job, complete time.Time, last jobs.Outcome, since, now, until int64) fact {
	base := since
	if !complete.IsZero() {
		base = complete.UnixMicro()
	}
	stale := now-base > j.StaleAfter.Microseconds()
	f := fact{subject: subject{Kind: kindStarved, Budget: j.Budget, Job: j.Name}, at: now, until: until, on: stale && last == jobs.Exhausted, off: !stale}
	f.begin = fmt.Sprintf("%s has had no complete pass for longer than %s, for want of units", j.Name, limit.SpanText(j.StaleAfter))
	if !complete.IsZero() {
		f.begin += "; the last one ended at " + instant(complete)
	}
	f.end = j.Name + " is no longer starved"
	return f
}

// ofMissed is whether runs of a job are missing that cron is to start.
func ofMissed(j *jobs.Job, missed *jobs.MissedTicks, now, until int64) fact {
	f := fact{subject: subject{Kind: kindMissed, Budget: j.Budget, Job: j.Name}, at: now, until: until, on: missed != nil, off: missed == nil}
	if f.end = j.Name + " runs again"; missed != nil {
		of := ""
		if len(missed.Regions) > 0 {
			of = " for " + strings.Join(missed.Regions, ", ")
		}
		f.begin = fmt.Sprintf("the run of %s of %s%s is missing: cron has not started quotactl meter --job %s", j.Name, instant(missed.First.Time), of, j.Name)
	}
	return f
}
