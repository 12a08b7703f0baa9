package outage_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/internal/check"
)

// distantStore does not answer its first calls in time.
type distantStore struct {
	driver.Store
	late    int  // how many
	answers bool // it answers something meanwhile, as one does that is far away
	calls   int
	heard   int64
}

func (s *distantStore) Distance() (near time.Duration, answers int64) {
	return 100 * time.Millisecond, s.heard
}

func (s *distantStore) Look(ctx context.Context, look driver.Look) (driver.View, error) {
	if s.calls++; s.calls > s.late {
		return s.Store.Look(ctx, look)
	}
	if s.answers {
		s.heard++
	}
	<-ctx.Done()
	return driver.View{}, ctx.Err()
}

// A store that has answered, or that a starved process could not hear, is asked again; one that is
// silent is out of reach at once, and whatever it is, the call ends.
func TestOnlyTheStoresPartCounts(t *testing.T) {
	for name, c := range map[string]struct {
		late             int
		answers, starved bool
		calls            int
		opened           bool
	}{
		"silent":               {late: 100, calls: 1, opened: true},
		"far away":             {late: 3, answers: true, calls: 4},
		"starved":              {late: 3, starved: true, calls: 4},
		"too far away":         {late: 100, answers: true, calls: 8},
		"starved, and silent":  {late: 100, starved: true, calls: 8, opened: true},
		"it answers as always": {calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := func() int64 { return time.Now().UnixMicro() }
				inner := &distantStore{Store: memstore.New(now), late: c.late, answers: c.answers}
				store := outage.New(inner, outage.Options{Dir: t.TempDir(), Timeout: time.Second, Clocks: newWorldInFakeTime(t).clocks})
				began := time.Now()
				outage.SetWaited(store, func() time.Duration {
					if c.starved {
						return time.Since(began) / 2
					}
					return 0
				})
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, driver.ErrUnavailable)
				defer cancel()
				_, err := store.Look(ctx, driver.Look{Budget: "up/key1", Now: now()})
				check.Equal(t, inner.calls, c.calls, "calls")
				check.Equal(t, errors.Is(err, context.DeadlineExceeded), c.late >= c.calls, "failed:", err)
				_, out := store.OutOfReach()
				check.Equal(t, out, c.opened, "the breaker is open")
				check.NoError(t, store.Close())
			})
		})
	}
}

// A caller that gives up itself is not kept.
func TestACallersOwnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &distantStore{late: 100, answers: true}
		store := outage.New(inner, outage.Options{Dir: t.TempDir(), Timeout: time.Second, Clocks: newWorldInFakeTime(t).clocks})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := store.Look(ctx, driver.Look{Budget: "up/key1"})
		check.Is(t, err, context.DeadlineExceeded)
		check.Equal(t, inner.calls, 1, "calls")
	})
}
