package alert

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// record is an alert's document: its situations, and the messages that are still to be
// delivered. All instants are µs.
type record struct {
	// Since is when a daemon first looked for the alert.
	Since      int64                `json:"since"`
	Situations map[string]situation `json:"situations,omitempty"` // by subject
	Messages   []pending            `json:"messages,omitempty"`   // the oldest first
	// Planned is when the newest plan was begun that the record has gone by.
	Planned int64 `json:"planned,omitempty"`
	// GivenUp counts the messages that were never delivered, and Last is the newest of them.
	GivenUp int64   `json:"given_up,omitempty"`
	Last    *failed `json:"last,omitempty"`
}

// pending is a message that is to be delivered, by the store's clock.
type pending struct {
	Message
	Key     string `json:"key"`            // of its subject: messages of one are sent in order
	Since   int64  `json:"since"`          // when it was written down
	Next    int64  `json:"next,omitempty"` // when it is tried next
	Tries   int    `json:"tries,omitempty"`
	Error   string `json:"error,omitempty"`   // of the last try
	Holder  string `json:"holder,omitempty"`  // the daemon that is sending it, until
	Claimed int64  `json:"claimed,omitempty"` // this instant
	// To are the mail's recipients who did not get it yet, once others have; nil: nobody has.
	To []string `json:"to,omitempty"`
}

// failed is a message that was given up.
type failed struct {
	At    int64  `json:"at"`
	Text  string `json:"text"`
	Error string `json:"error"`
}

const (
	// mostPending bounds the document. Beyond it the oldest message is given up.
	mostPending = 200
	// keepTrying is how long a message is tried again.
	keepTrying = 24 * time.Hour
	// shownFor is how long status shows a message that was given up.
	shownFor = 7 * 24 * time.Hour
)

// documentOf is the name of an alert's document; no job's name begins with '@'.
func documentOf(alert string) string { return "@alerts/" + alert }

// read parses a document; one that does not exist is empty.
func read(alert string, found driver.JobDocument) (*record, error) {
	r := &record{Situations: map[string]situation{}}
	if found.Text == nil {
		return r, nil
	}
	if err := json.Unmarshal(found.Text, r); err != nil {
		return nil, fmt.Errorf("read the record of alert %s: %w; was it written by another version?", alert, err)
	}
	if r.Situations == nil {
		r.Situations = map[string]situation{}
	}
	return r, nil
}

// errStays leaves a record unchanged.
var errStays = errors.New("the record stays unchanged")

// change reads a record, has do change it, and swaps it; if another daemon changed it
// meanwhile, it starts over. now is the store's clock.
func change(ctx context.Context, state driver.JobStore, alert string, do func(r *record, now int64) error) error {
	name := documentOf(alert)
	for {
		found, err := state.Job(ctx, name)
		if err != nil {
			return err
		}
		r, err := read(alert, found)
		if err != nil {
			return err
		}
		if err := do(r, found.Now); errors.Is(err, errStays) {
			return nil
		} else if err != nil {
			return err
		}
		text, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("write the record of alert %s: %w", alert, err)
		}
		if swapped, err := state.SwapJob(ctx, driver.JobSwap{Job: name, Version: found.Version, Text: text}); err != nil || swapped {
			return err
		}
	}
}

// take applies facts, and reports whether that changes the record. A pass that ends exhausted
// begins nothing of its own while its whole budget is known to be exhausted.
//
// whole: the facts are of all that the alert is about; what is not among them is gone.
func (r *record) take(alert string, facts []fact, whole bool, now int64) (changed bool) {
	if r.Since == 0 {
		r.Since, changed = now, true
	}
	seen, planned := map[string]bool{}, r.Planned
	for _, f := range facts {
		key := f.key()
		seen[key] = true
		if f.Kind == kindForecast {
			if f.at < planned {
				continue // another daemon's plan is newer
			}
			changed, r.Planned = changed || f.at > r.Planned, f.at
		}
		before := r.Situations[key]
		if f.Job != "" && f.Kind == kindExhausted && f.on && !before.Open && f.at > before.Changed && r.covers(f) {
			before.Changed, changed = f.at, true // an alert has said so
			r.Situations[key] = before
			continue
		}
		after, turns := before.step(f)
		for _, t := range turns {
			m := newMessage(alert, f.subject, t)
			if t.phase == Begin && f.by != "" {
				m.Limit = name(f.by)
			}
			r.add(pending{Message: m, Key: key, Since: now}, now)
			changed = true
		}
		if after != (situation{}) {
			r.Situations[key] = after
		}
	}
	for key, s := range r.Situations {
		if whole && !seen[key] && s.past(now) {
			delete(r.Situations, key)
			changed = true
		}
		changed = changed || seen[key] && now-s.Seen >= seenEvery.Microseconds()
	}
	if !changed {
		return false
	}
	for key, s := range r.Situations {
		if seen[key] {
			s.Seen = max(s.Seen, now)
			r.Situations[key] = s
		}
	}
	return true
}

// covers reports whether a pass ended exhausted while a limit of its whole budget was.
func (r *record) covers(f fact) bool {
	prefix := subject{Kind: kindExhausted, Budget: f.Budget}.key()
	prefix = strings.TrimRight(prefix, "|") + "|"
	for key, s := range r.Situations {
		limit, ofBudget := strings.CutPrefix(key, prefix)
		if ofBudget && !strings.HasPrefix(limit, "|") && (s.Open || f.at <= s.Changed) {
			return true
		}
	}
	return false
}

// open counts the open situations.
func (r *record) open() (n int) {
	for _, s := range r.Situations {
		if s.Open {
			n++
		}
	}
	return n
}

// add appends a message to be delivered.
func (r *record) add(p pending, now int64) {
	r.Messages = append(r.Messages, p)
	if len(r.Messages) > mostPending {
		r.Messages[0].Error = fmt.Sprintf("more than %d messages wait", mostPending)
		r.giveUp(r.Messages[0], now)
		r.Messages = slices.Delete(r.Messages, 0, 1)
	}
}

func (r *record) giveUp(p pending, now int64) {
	r.GivenUp++
	r.Last = &failed{At: now, Text: p.Text, Error: p.Error}
}

// claim gives a holder up to most messages that are due, for claimHold. Of one subject only the
// oldest may be sent.
func (r *record) claim(holder string, now int64, most int) (list []pending) {
	earlier := map[string]bool{}
	for i := range r.Messages {
		p := &r.Messages[i]
		first := !earlier[p.Key]
		earlier[p.Key] = true
		if first && len(list) < most && p.due(now) {
			p.Holder, p.Claimed, p.Others = holder, now+claimHold.Microseconds(), r.open()
			list = append(list, *p)
		}
	}
	return list
}

// due reports whether a message is to be sent now and nobody is sending it. A claim that ends
// later than possible was made by a clock that was ahead.
func (p *pending) due(now int64) bool {
	return p.Next <= now && (p.Holder == "" || p.Claimed <= now || p.Claimed > now+2*claimHold.Microseconds())
}

// conclude notes what became of a message: delivered if err is empty, else it is tried again
// after a wait, or given up after a day. It reports whether it was given up; and false for ok if
// there was nothing to note, because another daemon has delivered it, or is sending it.
func (r *record) conclude(id, holder, err string, now int64, wait time.Duration) (givenUp, ok bool) {
	i := slices.IndexFunc(r.Messages, func(p pending) bool { return p.ID == id })
	if i < 0 {
		return false, false
	}
	p := &r.Messages[i]
	if err == "" { // whoever sends it now has begun too late to know
		r.Messages = slices.Delete(r.Messages, i, i+1)
		return false, true
	}
	if p.Holder != holder {
		return false, false
	}
	p.Holder, p.Claimed, p.Error, p.Next = "", 0, err, now+wait.Microseconds()
	p.Tries++
	if now-p.Since >= keepTrying.Microseconds() {
		r.giveUp(*p, now)
		r.Messages = slices.Delete(r.Messages, i, i+1)
		return true, true
	}
	return false, true
}

// part notes that some recipients of a message got it: the others get it later, or, if the server
// refused them for good, are given up.
func (r *record) part(id string, e *partlyError, now int64) {
	i := slices.IndexFunc(r.Messages, func(p pending) bool { return p.ID == id })
	switch {
	case i < 0:
	case e.final:
		p := r.Messages[i]
		p.Error = e.Error()
		r.giveUp(p, now)
	default:
		r.Messages[i].To = e.rest
	}
}

// identify makes the id of a message: the same whichever daemon makes it.
func identify(alert string, s subject, t turn) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s|%d|%s", alert, s.key(), t.begun, t.phase))
	return hex.EncodeToString(sum[:12])
}
