package redisstore

import (
	"fmt"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// offset tells how far the server's clock stands ahead of the local one, in µs.
// Each answer's clock was read before the answer came, so what an answer shows
// is never too much; the most of the last few seconds is the best of them.
type offset struct {
	known         bool
	best, earlier int64
	since         time.Time
}

// offsetSpan is after how long an answer's offset is forgotten, once or twice:
// the clocks may be set.
const offsetSpan = 5 * time.Second

// learn takes in the server's clock as an answer told it.
func (s *Store) learn(text string) error {
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("the Redis server's clock %q is no number: %w", text, budget.ErrStoreConfig)
	}
	s.learnAt(at)
	return nil
}

func (s *Store) learnAt(at int64) {
	now := time.Now()
	seen := at - now.UnixMicro()
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &s.offset
	switch age := now.Sub(o.since); {
	case !o.known || age > 2*offsetSpan:
		*o = offset{known: true, best: seen, earlier: seen, since: now}
	case age > offsetSpan:
		o.earlier, o.best, o.since = o.best, seen, now
	default:
		o.best = max(o.best, seen)
	}
}

// clockOffset is the best known offset, and whether one is known.
func (s *Store) clockOffset() (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.offset.best, s.offset.earlier), s.offset.known
}

// forgetOffset drops what is known: an answer contradicted it.
func (s *Store) forgetOffset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset = offset{}
}

// deadlines turns instants of a caller's clock into the server's.
type deadlines struct{ shift int64 }

// deadlines needs the offset to be known. callerNow is the caller's clock as it
// stood at the local instant at.
func (s *Store) deadlines(callerNow int64, at time.Time) deadlines {
	offset, _ := s.clockOffset()
	return deadlines{shift: at.UnixMicro() - callerNow + offset}
}

// of is the deadline in the server's time: 0 for none, at least 1 else.
func (d deadlines) of(deadline time.Time) int64 {
	if deadline.IsZero() {
		return 0
	}
	return max(1, deadline.UnixMicro()+d.shift)
}
