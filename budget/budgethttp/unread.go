package budgethttp

import (
	"cmp"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/feedback"
)

// Unread is a value that costs.toml expects in a response and that could not be read.
// The call then keeps what it was charged, or the reset of a report or refusal stays
// unknown.
type Unread struct {
	Operation string
	What      UnreadWhat
	Rule      string // of the report or the refusal; else empty
	Place     string // where it stands: "header x-cost", "json usage.total"; empty: the body
	Why       string // it holds nothing of what was received, but for the name of an encoding
}

// UnreadWhat is what could not be read.
type UnreadWhat string

// What was to be read.
const (
	UnreadActual   UnreadWhat = "actual"   // what the call cost
	UnreadReport   UnreadWhat = "report"   // what remains or is used, or when that comes back
	UnreadRefusal  UnreadWhat = "refusal"  // whether it is one, or when to come back after it
	UnreadBody     UnreadWhat = "body"     // a body that rules look at, which is damaged
	UnreadEncoding UnreadWhat = "encoding" // a body that rules look at, in an encoding that is not known
)

// Why a body, or a document of it, could not be read.
const (
	whyTooLong = "a document of the body is longer than 1 MiB"
	whyCut     = "a document of the body is cut, or no JSON"
	whyNoJSON  = "the body is no JSON object or array"
	whyBroken  = "the body has broken off"
)

// placeOf is where a value stands, in words.
func placeOf(s *feedback.Source) string {
	if s.Header != "" {
		return "header " + s.Header
	}
	return "json " + s.JSON
}

// unreads are what of one response could not be read, each once.
type unreads []Unread

// add notes one; it is true the first time.
func (u *unreads) add(one Unread) bool {
	for _, known := range *u {
		if known == one {
			return false
		}
	}
	*u = append(*u, one)
	return true
}

// sayAgain is how often a log says at most that the same could not be read.
const sayAgain = time.Minute

// sayings remember what of what could not be read was logged. They are safe for
// concurrent use.
type sayings struct {
	mu   sync.Mutex // guards all below
	said map[Unread]*saying
}

type saying struct {
	at    time.Time
	since int // how many came since
}

// again reports whether one is to be logged, and how many were not since the last
// that was. An encoding is said once for each operation.
func (s *sayings) again(one Unread) (since int, say bool) {
	if one.What == UnreadEncoding {
		one.Why = "" // the upstream chooses it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.said[one]
	switch {
	case last == nil:
		if s.said == nil {
			s.said = map[Unread]*saying{}
		}
		s.said[one] = &saying{at: time.Now()}
		return 0, true
	case one.What == UnreadEncoding || time.Since(last.at) < sayAgain:
		last.since++
		return 0, false
	}
	since = last.since
	*last = saying{at: time.Now()}
	return since, true
}

// unread tells what could not be read of a response, the first time that it is found
// there.
func (a *attempt) unread(found ...Unread) {
	for _, one := range found {
		one.Operation = a.operation
		if !a.unreads.add(one) {
			continue
		}
		a.options.Observer.Unread(one)
		since, say := a.sayings.again(one)
		if !say {
			continue
		}
		log := a.logger(a.newest().ID).With("what", string(one.What), "place", cmp.Or(one.Place, "body"), "why", one.Why)
		if one.Rule != "" {
			log = log.With("rule", one.Rule)
		}
		if since > 0 {
			log = log.With("not_logged_since", since)
		}
		log.Warn("what a response says could not be read")
	}
}
