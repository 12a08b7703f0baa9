package budgethttp

import (
	"strconv"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/must"
)

// The sessions used last are known, and no more than the most.
func TestSessionsAreBounded(t *testing.T) {
	b := must.Get(budget.New(memstore.New(func() int64 { return time.Now().UnixMicro() }), budget.Spec{
		Name: "video/key1", Limits: []limit.Limit{{Name: "hourly", Quota: 1, Limit: 1, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}},
	}))(t)
	meter := must.Get(New(b, Options{}))(t)
	one := func(i int) session { return newSession("video/key1", &feedback.Key{Query: "id"}, strconv.Itoa(i)) }
	for i := range mostSessions {
		meter.remember(one(i))
	}
	meter.remember(one(0))            // known already
	meter.remember(one(mostSessions)) // drops 1, which was used least
	meter.remember(session{})
	for i, known := range map[session]bool{one(0): true, one(1): false, one(2): true, one(mostSessions): true, {}: false} {
		if meter.sessions.Contains(i) != known {
			t.Errorf("session %x is known: %t", i, !known)
		}
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
