package jobs

import (
	"sync"
	"time"
)

// watch tells those who hold something and are dead from those who only look so. A
// hold ends by the store's clock, which jumps where a server's clock is set or
// another server takes over, and a store that was away let nobody renew; to a
// machine that was suspended the others look dead, and its own passes. So who holds
// something is dead when it was seen, past its end and not renewed meanwhile, for
// longer than the patience of this process, by a clock that does none of that, and
// with the store within reach all the while.
type watch struct {
	patience time.Duration // above the time between two renewals
	gap      time.Duration // at most so long between two looks; what was seen before a longer one is void

	mu   sync.Mutex
	seen map[string]map[string]sighting // by document and holder
}

// sighting is when a hold was first and last seen past its end.
type sighting struct {
	until       int64 // µs, of the hold
	first, last time.Time
}

// forget voids what was seen of a document that could not be changed: who holds it
// could not renew that either.
func (w *watch) forget(document string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, document)
}

// dead are those of a document's holders past their end, each with that, who are
// dead; wait is how long until the next of the others may be: 0 where there is none.
func (w *watch) dead(document string, past map[string]int64) (dead map[string]bool, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, now := w.seen[document], time.Now()
	delete(w.seen, document)
	if len(past) == 0 {
		return nil, 0
	}
	if w.seen == nil {
		w.seen = map[string]map[string]sighting{}
	}
	seen := map[string]sighting{}
	w.seen[document], dead = seen, map[string]bool{}
	for holder, until := range past {
		s := before[holder]
		if s.first.IsZero() || s.until != until || now.Sub(s.last) > w.gap {
			s = sighting{until: until, first: now}
		}
		s.last = now
		seen[holder] = s
		if left := w.patience - now.Sub(s.first); left <= 0 {
			dead[holder] = true
		} else if wait == 0 || left < wait {
			wait = left
		}
	}
	return dead, wait
}
