package plan

import "github.com/quotactl/quotactl/jobs"

// wait is how long something has waited for units.
type wait struct{ latest, longest int64 }

// waitForUnits has something asked again when what refused it may have ended; if the job does
// not wait as long, the pass starts nothing more.
func (s *simulation) waitForUnits(p *pass, w *wait, no *refused, again func()) {
	if w.latest == 0 {
		if w.longest = p.job.StartWait.Microseconds(); p.running > 0 {
			w.longest = p.job.MaxWait.Microseconds()
		}
		w.latest = s.now + w.longest
	}
	at, waits := s.waitUntil(no, w)
	switch {
	case no.never:
		s.neverFits(p)
	case no.multi && no.at > w.latest && no.next-s.now <= w.longest: // asked again whenever the bucket has more
		s.later(p, no.last(w.latest), func() { s.refuse(p, no) })
	case waits && at <= w.latest:
		s.laterBy(p, at, waitersLater+p.job.order(p.place+1), again)
	default:
		s.refuse(p, no)
	}
}

// waitUntil is when to ask again, and whether that is worth waiting for.
func (s *simulation) waitUntil(no *refused, w *wait) (at int64, waits bool) {
	const least = 100e3 // the shortest wait for requests under way
	if no.at-s.now <= w.longest {
		return no.at, no.at > s.now
	}
	at = max(no.soonest, s.now+least)
	return at, at < no.at && at <= w.latest
}

// refuse ends the starts of a pass: its next region was refused.
func (s *simulation) refuse(p *pass, no *refused) {
	r := p.runs[p.place]
	r.cut, r.over = true, true
	s.noteRefusal(p, no)
	s.stop(p)
}

// neverFits goes on after a region whose needs can never fit.
func (s *simulation) neverFits(p *pass) {
	r := p.runs[p.place]
	r.failed, r.over = true, true
	if p.job.Hold == jobs.HoldPass && p.hold == nil {
		for _, r := range p.runs {
			r.failed = true
		}
		s.stop(p)
		return
	}
	p.place++
	s.next(p)
}

// stop starts no further region.
func (s *simulation) stop(p *pass) {
	p.turn++
	p.ended, p.waiting = true, false
	s.endIfDone(p)
}
