package sqlitestore_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

// TestForgottenAsTheModel goes where random walks hardly come: windows that are
// longer than all before begin while what they would have counted lies in the
// file still, forgotten or not.
func TestForgottenAsTheModel(t *testing.T) {
	days := must.Get(limit.NewCalendar(limit.Month, "UTC", 0))(t)
	short, long, longest := rolling(100, minute), rolling(100, 7*day), rolling(100, 30*day)
	month := limit.Limit{Name: "month", Limit: 100, Counts: limit.CountCalls, Window: limit.CalendarWindow(days)}
	type step struct {
		wait   int64
		limits []limit.Limit
		items  []driver.Item
	}
	for what, steps := range map[string][]step{
		"forgotten, then a longer window": {
			{0, []limit.Limit{short}, []driver.Item{item("a", 10), lease(item("r", 3), 2*minute)}},
			{hour + minute, []limit.Limit{short}, []driver.Item{item("b", 1)}},
			{0, []limit.Limit{short, longest}, []driver.Item{item("a", 20), item("b", 1)}},
			{second, []limit.Limit{short, long, month}, []driver.Item{item("c", 1), item("r", 3)}},
		},
		"not yet forgotten, then a longer window": {
			{0, []limit.Limit{short}, []driver.Item{item("a", 10), lease(item("r", 3), 2*minute)}},
			{hour + minute, []limit.Limit{short, long}, []driver.Item{item("a", 10), item("r", 4), item("b", 5)}},
			{hour, []limit.Limit{short, month}, []driver.Item{item("a", 10), item("c", 0)}},
			{8 * day, []limit.Limit{longest}, []driver.Item{item("a", 11), item("c", 0)}},
		},
		"dropped, then live again": {
			{0, []limit.Limit{short, long}, []driver.Item{item("a", 10), lease(item("r", 3), day)}},
			{6 * day, []limit.Limit{short}, []driver.Item{item("b", 1)}},
			{9 * day, []limit.Limit{short}, []driver.Item{item("c", 1)}},
			{hour, []limit.Limit{long, longest}, []driver.Item{item("a", 1), item("b", 2), item("c", 1)}},
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			sqlitestore.SetSteps(b.store, 2000, 0) // nothing is pruned
			model := memstore.New(func() int64 { return b.now })
			for i, one := range steps {
				b.now += one.wait
				batch := driver.Batch{Budget: name, Now: b.now, Limits: one.limits, Items: one.items}
				want, wantErr := model.Decide(context.Background(), batch)
				got, gotErr := b.store.Decide(context.Background(), batch)
				got.Mark.Ledger, got.Mark.Kept = want.Mark.Ledger, want.Mark.Kept // random; a store's own
				if !reflect.DeepEqual(got, want) || gotErr != nil || wantErr != nil {
					t.Errorf("step %d:\n got %+v, %v\nwant %+v, %v", i, got, gotErr, want, wantErr)
				}
				for _, on := range []time.Duration{0, 59 * time.Second} { // looked at, by windows live or not
					b.now += on.Microseconds()
					ask := driver.Look{Budget: name, Now: b.now, Limits: []limit.Limit{short, long, longest, month}}
					want, wantErr := model.Look(context.Background(), ask)
					got, gotErr := b.store.Look(context.Background(), ask)
					got.Mark.Ledger, got.Mark.Kept = want.Mark.Ledger, want.Mark.Kept // random; a store's own
					got.Entries = want.Entries                                        // also those that no limit counts any more
					if !reflect.DeepEqual(got, want) || gotErr != nil || wantErr != nil {
						t.Errorf("look %d:\n got %+v, %v\nwant %+v, %v", i, got, gotErr, want, wantErr)
					}
				}
			}
		})
	}
}
