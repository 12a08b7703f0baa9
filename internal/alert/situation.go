package alert

import (
	"strings"
	"time"
)

// subject is what a situation is about. Empty parts do not apply.
type subject struct {
	Kind   string `json:"kind"` // as in the configuration: "exhausted", "used 80%"
	Budget string `json:"budget,omitempty"`
	Limit  string `json:"limit,omitempty"`
	Job    string `json:"job,omitempty"`
}

// key identifies a subject; no name contains its separator.
func (s subject) key() string { return strings.Join([]string{s.Kind, s.Budget, s.Limit, s.Job}, "|") }

// fact is what a look has seen of a subject.
type fact struct {
	subject
	// on begins its situation, off ends it. Neither is true between two thresholds.
	on, off bool
	at      int64 // µs: when it was so
	// until is the end (µs) of the period that the fact is in; anew: what is counted begins
	// anew then, so that a situation ends with its period.
	until int64
	anew  bool
	// by is the limit that causes a situation of a job; it may be another one each time.
	by string
	// lock: only a lock makes it so. An alert that tells of locks tells nothing else of it.
	lock bool
	// begin and end are the texts of both phases.
	begin, end string
	// still: the fact is of the newest record, which still is what is known at this instant (µs);
	// stillUntil is the end of that instant's period. 0: at is the instant.
	still, stillUntil int64
}

// situation is what is known of a subject.
type situation struct {
	Open bool `json:"open,omitempty"`
	// Begun is when it began last, Changed when it began or ended last.
	Begun   int64 `json:"begun"`
	Changed int64 `json:"changed"`
	// Until is the end of the period in which it began: it does not begin again before.
	Until int64 `json:"until"`
	// Seen is when any daemon saw it last, on or off, to within seenEvery.
	Seen int64 `json:"seen,omitempty"`
}

// Phase says whether something begins or ends.
type Phase string

// The phases of a message.
const (
	Begin Phase = "begin"
	End   Phase = "end"
)

// turn is a begin or an end.
type turn struct {
	phase Phase
	at    int64
	begun int64 // of the situation
	text  string
}

// step applies a fact. Within one period of a subject it returns at most one begin and one
// end. A fact of before the last change, seen by a slower daemon, changes nothing.
func (s situation) step(f fact) (situation, []turn) {
	if f.at <= s.Changed {
		return s, nil
	}
	var turns []turn
	if s.Open && f.anew && f.at >= s.Until {
		turns = append(turns, turn{End, s.Until, s.Begun, f.end})
		s.Open, s.Changed = false, s.Until
		if f.on {
			turns[0].text = "a new period has begun, and " + f.begin
		}
	}
	switch {
	case !s.Open && f.on && (s.Begun == 0 || max(f.at, f.still) >= s.Until):
		until := f.until
		if s.Begun != 0 && f.at < s.Until {
			until = f.stillUntil // it begins late: in this period, not in its own
		}
		s = situation{Open: true, Begun: f.at, Changed: f.at, Until: until, Seen: s.Seen}
		turns = append(turns, turn{Begin, f.at, f.at, f.begin})
	case s.Open && f.off:
		s.Open, s.Changed = false, f.at
		turns = append(turns, turn{End, f.at, s.Begun, f.end})
	}
	return s, turns
}

const (
	// forgotten is how long nobody must have seen a situation for it to be forgotten, such as one
	// of a job that was removed. One daemon may know fewer jobs than another.
	forgotten = 24 * time.Hour
	// seenEvery is how often it is written down that situations are seen.
	seenEvery = time.Hour
)

// past reports whether a situation need not be kept, unless it is seen.
func (s situation) past(now int64) bool {
	return now >= s.Until && now >= s.Seen+forgotten.Microseconds()
}
