package sqlitestore_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, openForSuite(func(*sqlitestore.Store) {}))
}

// TestConformanceInSteps holds the store to the same when hardly anything fits
// into one transaction.
func TestConformanceInSteps(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	storetest.Run(t, openForSuite(func(s *sqlitestore.Store) { sqlitestore.SetSteps(s, 100, 60) }))
}

// TestConformanceWithSums holds the store to the same where sums are made of few entries.
func TestConformanceWithSums(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	storetest.Run(t, openForSuite(func(s *sqlitestore.Store) {
		sqlitestore.SetSteps(s, 100, 60)
		sqlitestore.SetSums(s, 3)
	}))
}

func openForSuite(prepare func(*sqlitestore.Store)) func(testing.TB, func() int64) storetest.Store {
	return func(t testing.TB, clock func() int64) storetest.Store {
		s := must.Get(sqlitestore.OpenWithClock(t.Context(), filepath.Join(t.TempDir(), "q.db"), sqlitestore.Options{Timeout: patience}, clock))(t)
		prepare(s)
		t.Cleanup(func() {
			if _, err := sqlitestore.CheckSums(context.Background(), s); !errors.Is(err, driver.ErrClosed) {
				check.NoError(t, err)
			}
			_ = s.Close() // a second time where the test closed it
		})
		return s
	}
}

func TestWalk(t *testing.T) {
	t.Parallel()
	storetest.Walk(t, openForSuite(func(*sqlitestore.Store) {}), 30_000)
}

// TestWalkInSteps walks where hardly anything fits into one transaction.
func TestWalkInSteps(t *testing.T) {
	t.Parallel()
	storetest.Walk(t, openForSuite(func(s *sqlitestore.Store) { sqlitestore.SetSteps(s, 3, 2) }), 5000)
}

// TestWalkWithSums walks where sums are made of two entries, which decisions go by from the
// fifth on.
func TestWalkWithSums(t *testing.T) {
	t.Parallel()
	storetest.Walk(t, openForSuite(func(s *sqlitestore.Store) { sqlitestore.SetSums(s, 2) }), 10_000)
}

// TestWalkWithSumsInSteps has them go by sums in several transactions, too.
func TestWalkWithSumsInSteps(t *testing.T) {
	t.Parallel()
	storetest.Walk(t, openForSuite(func(s *sqlitestore.Store) {
		sqlitestore.SetSteps(s, 8, 2)
		sqlitestore.SetSums(s, 2)
	}), 5000)
}

func TestSoak(t *testing.T) {
	t.Parallel()
	storetest.Soak(t, openForSuite(func(*sqlitestore.Store) {}), 60)
}

// TestSoakInSteps has batches that come at the same time take turns.
func TestSoakInSteps(t *testing.T) {
	t.Parallel()
	storetest.Soak(t, openForSuite(func(s *sqlitestore.Store) { sqlitestore.SetSteps(s, 100, 60) }), 60)
}
