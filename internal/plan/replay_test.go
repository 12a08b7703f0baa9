package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// history is a store that has charged, for replays.
type history struct {
	t     *testing.T
	store *memstore.Store
	spec  budget.Spec
	n     int
}

func newHistory(t *testing.T, limits ...limit.Limit) *history {
	for i := range limits {
		limits[i].Counts = limit.CountUnits
	}
	return &history{t: t, store: memstore.New(nil), spec: budget.Spec{Name: "past/key", Limits: limits, Timeout: time.Minute, Costs: map[string]budget.Cost{"search": {Units: 100}, "list": {Units: 1}}}}
}

// charge makes calls, and says how many were granted.
func (h *history) charge(operation, job string, calls int) (granted int) {
	b := must.Get(budget.New(h.store, h.spec))(h.t)
	for range calls {
		h.n++
		_, err := b.Charge(h.t.Context(), budget.Call{ID: fmt.Sprint("c", h.n), Operation: operation, Labels: budget.Labels{Job: job}})
		if err == nil {
			granted++
		}
	}
	return granted
}

func (h *history) replay(spec budget.Spec, span time.Duration) *Replay {
	b := must.Get(budget.New(h.store, spec))(h.t)
	return must.Get(NewReplay(h.t.Context(), h.store, must.Get(budget.New(h.store, h.spec))(h.t), b, time.Now(), span))(h.t)
}

func rolling(name string, units int64, over time.Duration) limit.Limit {
	return limit.Limit{Name: name, Limit: units, Window: limit.RollingWindow(over)}
}

// What would not have fitted other limits, prices and shares, by whom, from which hour on and because of which limit.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, rolling("day", 1000, 24*time.Hour))
		time.Sleep(20 * time.Minute) // it is 00:20 on 2000-01-01
		begin := time.Now().UTC().Truncate(time.Hour)
		h.charge("search", "nightly", 3)
		time.Sleep(2 * time.Hour)
		h.charge("list", "backfill", 200)
		time.Sleep(time.Hour)
		h.charge("search", "nightly", 4)
		time.Sleep(time.Hour)

		same := h.replay(h.spec, 24*time.Hour)
		check.Equal(t, len(same.Refused), 0, "refused by the present limits")
		check.Equal(t, same.Calls, 207, "calls")
		check.Equal(t, same.Units, 900, "units")

		low := h.spec
		low.Limits = []limit.Limit{rolling("low", 650, 24*time.Hour)}
		low.Limits[0].Counts = limit.CountUnits
		got := h.replay(low, 24*time.Hour)
		check.EqualSlices(t, got.Refused, []ReplayRefused{{"nightly", "search", 3, 300, begin.Add(3 * time.Hour), "low"}}, "refused by a lower limit")

		dear := h.spec
		dear.Costs = map[string]budget.Cost{"search": {Units: 100}, "list": {Units: 5}}
		got = h.replay(dear, 24*time.Hour)
		check.EqualSlices(t, got.Refused, []ReplayRefused{{"nightly", "search", 4, 400, begin.Add(3 * time.Hour), "day"}, {"backfill", "list", 60, 300, begin.Add(2 * time.Hour), "day"}}, "refused at another price")
		check.Equal(t, got.Units, 1700, "units at another price")

		shared := h.spec
		shared.Limits = []limit.Limit{h.spec.Limits[0]}
		shared.Limits[0].Shares = []limit.Share{{Name: "nightly", Jobs: []string{"nightly"}, Guarantee: 850}}
		got = h.replay(shared, 24*time.Hour)
		check.EqualSlices(t, got.Refused, []ReplayRefused{{"backfill", "list", 50, 50, begin.Add(2 * time.Hour), "day"}}, "refused by a share")

		got = h.replay(low, 2*time.Hour) // what came before counts, and is not judged
		check.Equal(t, got.Calls, 204, "calls of the last two hours")
		check.EqualSlices(t, got.Refused, []ReplayRefused{{"nightly", "search", 3, 300, begin.Add(3 * time.Hour), "low"}}, "refused in the last two hours")
		check.Equal(t, got.Since.IsZero(), true, "the history reaches back")
	})
}

// An hour holds what a bucket has and what flows into it until the hour ends.
func TestReplayFillsABucketsHour(t *testing.T) {
	effort.Unraced(t)
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, rolling("day", 10_000, 24*time.Hour))
		h.charge("list", "a", 3699)
		time.Sleep(time.Hour)
		small := h.spec
		small.Limits = []limit.Limit{{Name: "bucket", Limit: 100, Counts: limit.CountUnits, Window: limit.BucketWindow(must.Get(limit.NewRefill(3600, time.Hour))(t))}}
		check.Equal(t, len(h.replay(small, 2*time.Hour).Refused), 0, "refused of what fits")
		time.Sleep(30 * time.Minute)
		h.charge("list", "a", 3701)
		time.Sleep(time.Hour)
		refused := h.replay(small, 2*time.Hour).Refused
		must.Equal(t, len(refused), 1, "refused")
		check.Equal(t, refused[0].Calls, 101, "calls beyond an hour's refill: the hour before left nothing")
	})
}

// Whatever fitted a rolling limit over whole hours, a calendar or a bucket fits again, at whatever instants of the hours it
// was charged.
func TestReplayRefusesNothingThatFitted(t *testing.T) {
	effort.Unraced(t)
	seed := effort.Seed(t)
	refused := 0
	for i := range uint64(effort.Of(60, 100, 600)) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, i)) //nolint:gosec // repeatable on purpose
			time.Sleep(time.Duration(rng.Int64N(300*24*3600e6)) * time.Microsecond)
			day := func(zone string, starts time.Duration) limit.Window {
				return limit.CalendarWindow(must.Get(limit.NewCalendar(limit.Day, zone, starts))(t))
			}
			window := []limit.Window{
				limit.RollingWindow(24 * time.Hour), limit.RollingWindow(time.Hour), limit.RollingWindow(5 * time.Hour), limit.CoarseWindow(24*time.Hour, time.Hour),
				day("Asia/Kolkata", 0), day("America/Los_Angeles", 20*time.Minute), limit.BucketWindow(must.Get(limit.NewRefill(40, time.Hour))(t)),
			}[i%7]
			h := newHistory(t, limit.Limit{Name: "one", Limit: 100 + rng.Int64N(400), Window: window})
			for range 60 {
				time.Sleep(time.Duration(rng.Int64N(5400e6)) * time.Microsecond)
				calls := 1 + rng.IntN(60)
				refused += calls - h.charge([]string{"list", "list", "search"}[rng.IntN(3)], []string{"a", "b"}[rng.IntN(2)], calls)
			}
			time.Sleep(time.Hour)
			if got := h.replay(h.spec, 14*24*time.Hour); len(got.Refused) > 0 {
				t.Errorf("ledger %d: %s: refused %+v of %d calls", i, window.Key(), got.Refused, got.Calls)
			}
		})
	}
	if refused == 0 {
		t.Error("nothing was refused when it was charged: the limits are not used to the full")
	}
}

// A history that begins later says since when it is known.
func TestReplaySince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(200 * 24 * time.Hour)
		h := newHistory(t, rolling("day", 1000, 24*time.Hour))
		h.charge("list", "a", 1)
		r := h.replay(h.spec, 120*24*time.Hour)
		check.Equal(t, r.Since.After(r.From), true, "it is known later than asked")
		check.Equal(t, r.Since.UnixMicro() <= time.Now().UnixMicro()-driver.HistoryKept+driver.HistoryHour*24, true, "as far back as the history is kept")
	})
}
