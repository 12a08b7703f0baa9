// Package storetest tests every store against one contract, that of driver.Store. The doc
// of package driver lists the tests that a store calls, [Run] first.
package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// Store is everything that a store implements.
type Store interface {
	driver.Store
	driver.JobStore
}

// Open makes a fresh, empty store with the given clock, in µs since the Unix epoch, and
// closes it when the test ends.
type Open func(t testing.TB, clock func() int64) Store

// Run checks the invariants that a single process can show, but for the tests that are named.
func Run(t *testing.T, open Open, but ...string) {
	t.Helper()
	left := 0
	for _, one := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"I1NeverOver", testNeverOver},
		{"I1AllOrNothing", testAllOrNothing},
		{"I1FloorAndHeadroom", testFloorAndHeadroom},
		{"I1Debt", testDebt},
		{"I1Filters", testFilters},
		{"I2RollingInstants", testRollingInstants},
		{"I2CalendarInstants", testCalendarInstants},
		{"I2SeveralLimits", testSeveralLimits},
		{"I2Reservations", testReservationInstants},
		{"I2NeverFits", testNeverFits},
		{"I1CoarseNeverOver", testCoarseNeverOver},
		{"I2CoarseInstants", testCoarseInstants},
		{"I2CalendarLengths", testCalendarLengths},
		{"I2Guard", testGuard},
		{"I2BucketInstants", testBucketInstants},
		{"I2BucketEdges", testBucketEdges},
		{"BucketAfterNothing", testBucketAfterNothing},
		{"I2BucketReservations", testBucketReservations},
		{"BucketMeters", testBucketMeters},
		{"Concurrent", testConcurrent},
		{"ManyOpen", testManyOpen},
		{"MixedKinds", testMixedKinds},
		{"TwoConfigurations", testTwoConfigurations},
		{"Merging", testMerging},
		{"Spent", testSpent},
		{"ExportCounting", testExportCounting},
		{"I3RefusalChargesNothing", testRefusalChargesNothing},
		{"I4Replay", testReplay},
		{"I4ReplayInBatch", testReplayInBatch},
		{"I4Held", testHeld},
		{"I1IDAgain", testIDAgain},
		{"I4Finish", testFinish},
		{"I4Lease", testLease},
		{"I4AcrossReset", testReplayAcrossReset},
		{"Recorded", testRecorded},
		{"FinishedEarlier", testFinishedEarlier},
		{"Lost", testLost},
		{"Recover", testRecover},
		{"RecoverBucket", testRecoverBucket},
		{"RecoverOpen", testRecoverOpen},
		{"RecoverOwn", testRecoverOwn},
		{"Mark", testMark},
		{"Others", testOthers},
		{"RolledBack", testRolledBack},
		{"Recovering", testRecovering},
		{"Hosts", testHosts},
		{"Reset", testReset},
		{"Lock", testLock},
		{"LockStands", testLockStands},
		{"LockLimit", testLockLimit},
		{"Observe", testObserve},
		{"Drift", testDrift},
		{"DriftOld", testDriftOld},
		{"DriftKinds", testDriftKinds},
		{"DriftHuge", testDriftHuge},
		{"I6Backwards", testClockBackwards},
		{"I6BackwardsToAHold", testClockBackwardsToAHold},
		{"I6Forwards", testClockForwards},
		{"I6FarBehind", testClockFarBehind},
		{"I6Witness", testClockWitness},
		{"I6TrueTime", testClockTrueTime},
		{"I6OwnMicrosecond", testOwnMicrosecond},
		{"I7ManyExpire", testManyExpire},
		{"I7LongWalk", testLongWalk},
		{"I7NewWindow", testNewWindow},
		{"I7ManyOperations", testManyOperations},
		{"I8Idle", testIdle},
		{"Boundary", testBoundary},
		{"Goroutines", testGoroutines},
		{"Batch", testBatch},
		{"Finishes", testFinishes},
		{"FinishesBeforeItems", testFinishesBeforeItems},
		{"Deadline", testDeadline},
		{"Cancelled", testCancelled},
		{"Ranges", testRanges},
		{"LookBehind", testLookBehind},
		{"Labels", testLabels},
		{"Closed", testClosed},
		{"Fence", testFence},
		{"Move", testMove},
		{"MoveConflict", testMoveConflict},
		{"MoveConflictHome", testMoveConflictHome},
		{"MoveMerged", testMoveMerged},
		{"MoveLater", testMoveLater},
		{"MoveDrift", testMoveDrift},
		{"MoveBucket", testMoveBucket},
		{"MoveBucketMerged", testMoveBucketMerged},
		{"MoveIntoMerged", testMoveIntoMerged},
		{"Shares", testShares},
		{"SharesBehind", testSharesBehind},
		{"SharesWait", testSharesWait},
		{"SharesLater", testSharesLater},
		{"SharesLookedAt", testSharesLookedAt},
		{"SharesLapse", testSharesLapse}, {"SharesPlanned", testSharesPlanned}, {"SharesPlannedTogether", testSharesPlannedTogether}, {"PlanRecords", testPlanRecords},
		{"SharesTogether", testSharesTogether},
		{"SharesTenants", testSharesTenants},
		{"SharesFloor", testSharesFloor},
		{"SharesLowered", testSharesLowered},
		{"SharesMerged", testSharesMerged},
		{"SharesCrowded", testSharesCrowded},
		{"ShareTables", testShareTables},
		{"Hold", testHold},
		{"HoldEnds", testHoldEnds},
		{"HoldCounts", testHoldCounts},
		{"HoldSkips", testHoldSkips},
		{"HoldGivesBack", testHoldGivesBack},
		{"HoldSettledBelow", testHoldSettledBelow},
		{"HoldSettledAbove", testHoldSettledAbove},
		{"HoldAgain", testHoldAgain},
		{"HoldWaits", testHoldWaits},
		{"HoldAboveFloor", testHoldAboveFloor},
		{"HoldsOnTime", testHoldsOnTime},
		{"History", testHistory},
		{"HistoryOfMany", testHistoryOfMany},
		{"HistoryOfManyDays", testHistoryOfManyDays},
		{"HistoryMoved", testHistoryMoved},
		{"HistoryOfOlderExport", testHistoryOfOlderExport},
		{"HistoryAnew", testHistoryAnew},
		{"HistoryUnnoted", testHistoryUnnoted},
		{"HistoryKept", testHistoryKept},
		{"Refusals", testRefusals},
		{"RefusalsOfMany", testRefusalsOfMany},
		{"RefusalsTogether", testRefusalsTogether},
		{"Entries", testEntries},
		{"Budgets", testBudgets},
		{"RefusalsMoved", testRefusalsMoved},
		{"JobDocument", testJobDocument},
		{"JobClock", testJobClock},
		{"JobValues", testJobValues},
		{"JobHistory", testJobHistory},
		{"JobRemove", testJobRemove},
		{"JobTogether", testJobTogether},
		{"JobWalk", testJobWalk},
	} {
		if slices.Contains(but, one.name) {
			left++
			continue
		}
		t.Run(one.name, func(t *testing.T) { one.test(t, newWorld(t, open)) })
	}
	must.Equal(t, left, len(but), "tests left out, of", but)
}

// noon is an instant in the middle of an ordinary day, in µs.
var noon = time.Date(2026, 6, 10, 12, 0, 0, 0, time.UTC).UnixMicro()

const (
	second = int64(1_000_000)
	minute = 60 * second
	hour   = 60 * minute
)

// world is a store under test and its clock.
type world struct {
	t      *testing.T
	store  Store
	now    int64
	limits []limit.Limit
	budget string
}

func newWorld(t *testing.T, open Open) *world {
	w := &world{t: t, now: noon, budget: "up/key1"}
	w.store = open(t, func() int64 { return w.now })
	return w
}

// rolling is a limit of units over a trailing window.
func rolling(name string, most int64, window time.Duration, operations ...string) limit.Limit {
	return limit.Limit{Name: name, Limit: most, Counts: limit.CountUnits, Window: limit.RollingWindow(window), Operations: operations}
}

// calendar is a limit of units over a calendar's period.
func calendar(t testing.TB, name string, most int64, length, zone string) limit.Limit {
	c := must.Get(limit.NewCalendar(length, zone, 0))(t)
	return limit.Limit{Name: name, Limit: most, Counts: limit.CountUnits, Window: limit.CalendarWindow(c)}
}

// item is a plain charge.
func item(id, operation string, units int64) driver.Item {
	return driver.Item{ID: id, Operation: operation, Units: units}
}

// lease makes an item a reservation.
func lease(i driver.Item, d time.Duration) driver.Item {
	i.Lease = d.Microseconds()
	return i
}

// decide decides items at the world's instant, which the caller's clock shares.
func (w *world) decide(items ...driver.Item) []driver.Decision {
	w.t.Helper()
	got := must.Get(w.tryDecide(w.now, items...))(w.t)
	must.Equal(w.t, got.Now, w.now, "the store's clock shows")
	return got.Items
}

func (w *world) tryDecide(caller int64, items ...driver.Item) (driver.Decisions, error) {
	got, err := w.store.Decide(context.Background(), driver.Batch{Budget: w.budget, Now: caller, Limits: w.limits, Items: items})
	if err == nil && len(got.Items) != len(items) {
		w.t.Fatalf("%d decisions on %d items", len(got.Items), len(items))
	}
	return got, err
}

// granted charges one item that must fit.
func (w *world) granted(i driver.Item) driver.Decision {
	w.t.Helper()
	d := w.decide(i)[0]
	if d.Result != driver.Granted || d.Replayed {
		w.t.Fatalf("%s of %d units: %+v, want a new charge", i.ID, i.Units, d)
	}
	return d
}

// refused asks for one item that must be refused by limit until at.
func (w *world) refused(i driver.Item, limit int, at int64) {
	w.t.Helper()
	d := w.decide(i)[0]
	if d.Result != driver.Refused || d.Limit != limit || d.RetryAt != at {
		w.t.Fatalf("%s of %d units: %+v, want a refusal by limit %d until %d (%+d µs off)", i.ID, i.Units, d, limit, at, d.RetryAt-at)
	}
}

// onTime asks for an item one microsecond early, which must be refused until the instant
// given, and then at that instant, which must be granted.
func (w *world) onTime(i driver.Item, limit int, at int64) {
	w.t.Helper()
	w.now = at - 1
	w.refused(i, limit, at)
	w.now = at
	w.granted(i)
}

// used is what one limit has used.
func (w *world) used(limit int) int64 {
	w.t.Helper()
	return w.look().Limits[limit].Used
}

func (w *world) look() driver.View {
	w.t.Helper()
	view := must.Get(w.store.Look(context.Background(), driver.Look{Budget: w.budget, Now: w.now, Limits: w.limits}))(w.t)
	if len(view.Limits) != len(w.limits) {
		w.t.Fatalf("a view of %d limits, asked for %d", len(view.Limits), len(w.limits))
	}
	return view
}

// finish settles or releases, and checks the result.
func (w *world) finish(f driver.Finish, want driver.FinishResult, replayed bool) driver.Finished {
	w.t.Helper()
	got, err := driver.FinishOne(context.Background(), w.store, w.budget, w.now, f)
	if err != nil {
		w.t.Fatalf("finish %s: %v", f.ID, err)
	}
	must.Equal(w.t, got.Result, want, "finish", f)
	must.Equal(w.t, got.Replayed, replayed, "finish", f)
	return got
}

func (w *world) wantError(err, want error) {
	w.t.Helper()
	must.Is(w.t, err, want)
}
