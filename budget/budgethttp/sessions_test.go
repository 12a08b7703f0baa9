package budgethttp

import (
	"strconv"
	"testing"

	"github.com/quotactl/quotactl/budget/feedback"
)

// The sessions used last are known, and no more than the most.
func TestSessionsAreBounded(t *testing.T) {
	s := newSessions(3)
	one := func(i int) session { return newSession("video/key1", &feedback.Key{Query: "id"}, strconv.Itoa(i)) }
	for i := range 3 {
		s.remember(one(i))
	}
	if !s.charged(one(0)) {
		t.Error("the first is not known")
	}
	s.remember(one(2)) // known already
	s.remember(one(3)) // drops 1, which was used least
	for i, known := range []bool{true, false, true, true} {
		if s.charged(one(i)) != known {
			t.Errorf("session %d is known: %v", i, !known)
		}
	}
	s.remember(session{})
	if s.order.Len() != 3 || len(s.known) != 3 || s.charged(session{}) {
		t.Errorf("%d sessions in order, %d known", s.order.Len(), len(s.known))
	}
}

// Sessions of other budgets, keys and values are others.
func TestSessionsDiffer(t *testing.T) {
	seen := map[session]string{}
	for _, budgetName := range []string{"a/b", "a/c"} {
		for _, key := range []feedback.Key{{Query: "id"}, {Header: "id"}, {Query: "i"}} {
			for _, value := range []string{"1", "2", "d1", "\x001"} {
				s := newSession(budgetName, &key, value)
				name := budgetName + key.Query + "|" + key.Header + "|" + value
				if other, known := seen[s]; known || s.none() {
					t.Errorf("%q is %q", name, other)
				}
				seen[s] = name
				if id := s.id(); len(id) > 128 {
					t.Errorf("an id of %d characters", len(id))
				}
			}
		}
	}
}
