package outage

import (
	"maps"
	"path/filepath"
	"slices"
	"time"
)

// breakersFolder holds a folder for each budget whose own breaker is open.
const breakersFolder = "breakers"

// maxBreakers bounds the breakers that a process keeps: a credential "*" has any
// number of budgets. A dropped breaker's state is in the directory.
const maxBreakers = 4096

// abandonedAfter is how long a breaker stays open without a probe: a budget of a
// credential "*" may never be used again.
const abandonedAfter = time.Hour

// breaker returns the breaker of a budget's server.
func (s *Store) breaker(name string) *breaker {
	if !s.o.PerBudget {
		name = ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.breakers[name]
	if b == nil {
		s.makeRoom()
		b = s.newBreaker(name)
		s.breakers[name] = b
	}
	return b
}

func (s *Store) newBreaker(name string) *breaker {
	b := &breaker{dir: s.o.Dir, interval: s.o.Interval, boot: s.bootClock}
	if s.o.PerBudget && b.dir != "" {
		b.dir, b.ownDir = filepath.Join(b.dir, breakersFolder, fileName(name)), true
	}
	b.damaged = func(data []byte, why error) { s.damaged(name, "breaker", b.file(), data, why) }
	return b
}

// makeRoom drops idle breakers, and if that is not enough, any: a budget whose open
// breaker is dropped asks the store once more. s.mu is held.
func (s *Store) makeRoom() {
	for _, inUse := range []bool{false, true} {
		for name, b := range s.breakers {
			if len(s.breakers) < maxBreakers {
				return
			}
			if inUse || b.idle() {
				delete(s.breakers, name)
			}
		}
	}
}

// allBreakers returns the breakers that may be open, in this process or another one
// of the host. It closes abandoned ones.
func (s *Store) allBreakers() []*breaker {
	if !s.o.PerBudget {
		return []*breaker{s.breaker("")}
	}
	s.mu.Lock()
	known := maps.Clone(s.breakers)
	s.mu.Unlock()
	var list []*breaker
	if s.o.Dir != "" {
		folders, _ := filepath.Glob(filepath.Join(s.o.Dir, breakersFolder, "*"))
		for _, folder := range folders {
			name := budgetName(filepath.Base(folder))
			b := known[name]
			if b == nil {
				b = s.newBreaker(name) // for this list only
			}
			delete(known, name)
			list = append(list, b)
		}
	}
	for _, b := range known {
		if !b.idle() {
			list = append(list, b)
		}
	}
	return slices.DeleteFunc(list, (*breaker).abandoned)
}
