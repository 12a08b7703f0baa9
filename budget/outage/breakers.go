package outage

import (
	"maps"
	"path/filepath"
	"slices"
	"time"
)

// breakersFolder holds the folders of the budgets' own breakers, which are there
// while one is open.
const breakersFolder = "breakers"

// maxBreakers is how many breakers a process keeps: the budgets of a credential
// "*" have no end. What one that was let go knew lies in the directory.
const maxBreakers = 4096

// abandonedAfter is for how long nobody has probed for a breaker that counts no
// more: the visitors of a credential "*" need not come back.
const abandonedAfter = time.Hour

// breaker is that of a budget's server.
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
	return b
}

// makeRoom lets go of breakers that know nothing of their own, else of any: the
// budget of such a one asks the store once more. s.mu is held.
func (s *Store) makeRoom() {
	for _, inUse := range []bool{false, true} {
		for name, b := range s.breakers { // whichever comes first
			if len(s.breakers) < maxBreakers {
				return
			}
			if inUse || b.idle() {
				delete(s.breakers, name)
			}
		}
	}
}

// allBreakers are those that may be open, in this process or another of the
// host. Abandoned ones are shut.
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
				b = s.newBreaker(name) // it is not used again, and not kept
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
