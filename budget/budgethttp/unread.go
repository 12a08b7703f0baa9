package budgethttp

import (
	"cmp"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/feedback"
)

// Unread is a value that costs.toml expects in a response but that could not be read. The
// call then stays charged as it was, or the reset of a report or refusal stays unknown.
type Unread struct {
	Operation string
	What      UnreadWhat
	Rule      string // name of the report or refusal rule; empty for other values
	Place     string // "header x-cost", "json usage.total"; empty means the body
	Why       string // quotes nothing from the response except the name of an encoding
}

// UnreadWhat is the kind of value that could not be read.
type UnreadWhat string

// The kinds of values.
const (
	UnreadActual   UnreadWhat = "actual"   // the units that the call cost
	UnreadReport   UnreadWhat = "report"   // the units left or used, or their reset
	UnreadRefusal  UnreadWhat = "refusal"  // whether the response is a refusal, or when to retry
	UnreadBody     UnreadWhat = "body"     // a damaged body that rules need
	UnreadEncoding UnreadWhat = "encoding" // a body that rules need, in an unknown encoding
)

// Why a body, or a document in it, could not be read.
const (
	whyTooLong = "a document in the body is longer than 1 MiB"
	whyCut     = "a document in the body is truncated, or not JSON"
	whyNoJSON  = "the body is not a JSON object or array"
	whyBroken  = "reading the body failed before its end"
)

// placeOf names the place of a value.
func placeOf(s *feedback.Source) string {
	if s.Header != "" {
		return "header " + s.Header
	}
	return "json " + s.JSON
}

// unreads are the values of one response that could not be read, each once.
type unreads []Unread

// add adds one, and reports whether it was new.
func (u *unreads) add(one Unread) bool {
	for _, known := range *u {
		if known == one {
			return false
		}
	}
	*u = append(*u, one)
	return true
}

// unclear adds that a header on which a rule depends says several numbers; an empty name
// is none.
func (u *unreads) unclear(what UnreadWhat, rule, header string) {
	if header != "" {
		u.add(Unread{What: what, Rule: rule, Place: placeOf(&feedback.Source{Header: header}), Why: errDiffer.Error()})
	}
}

// sayAgain is the minimum interval between two log lines about the same Unread.
const sayAgain = time.Minute

// sayings remember when each Unread was logged. They are safe for concurrent use.
type sayings struct {
	mu   sync.Mutex // guards all below
	said map[Unread]*saying
}

type saying struct {
	at    time.Time
	since int // how many were not logged since
}

// again reports whether to log one, and how many were not logged since the last log
// line. An unknown encoding is logged once for each operation.
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

// unread reports values of this response that could not be read, each once.
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
		log.Warn("a value in a response could not be read")
	}
}
