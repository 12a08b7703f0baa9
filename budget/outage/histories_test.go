package outage_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/internal/must"
)

// The charges of a process are missed also where it looked before the loss, and another
// process of its host heard of the other history.
func TestMissedThoughCarriedBefore(t *testing.T) {
	for _, looks := range []bool{false, true} {
		t.Run(fmt.Sprint("it looked: ", looks), func(t *testing.T) {
			s := newSides(t)
			dir := t.TempDir()
			one, two, other := s.process(dir), s.process(dir), s.host()
			s.charge(one, "a0", 1)
			s.used(two)
			s.used(other)
			s.tick(2 * time.Second)
			s.used(one)
			s.used(two) // both have read the directory now
			restore := s.keep()
			s.tick(10 * time.Millisecond)
			s.charge(one, "a1", 100)
			if looks {
				s.tick(10 * time.Millisecond)
				s.used(one)
			}
			restore()
			s.chargesOn(other, 2, 3)
			s.charge(two, "b3", 3) // it has not read of a1
			s.settles(110, one, two, other)
		})
	}
}

// Answers of one process may cross: a slow call is answered by the history that stays,
// after a quick one by the history that does not.
func TestMissedThoughAnswersCross(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		t.Run(fmt.Sprint("the next call was interrupted: ", interrupted), func(t *testing.T) {
			s := newSides(t)
			one, other := s.host(), s.host()
			s.charge(one, "a0", 1)
			s.used(other)
			restore := s.keep()
			s.before = func(batch driver.Batch) *driver.Decisions {
				if batch.Items[0].ID != "slow" {
					return nil
				}
				s.before = nil
				s.charge(one, "a1", 100)
				s.used(one)
				restore()
				for i := range 3 {
					s.tick(time.Millisecond)
					s.charge(other, fmt.Sprint("b", i), 3)
				}
				return nil
			}
			s.charge(one, "slow", 1)
			if interrupted { // its answer tells nothing of the ledger
				s.before = func(batch driver.Batch) *driver.Decisions {
					return &driver.Decisions{Now: batch.Now, Items: []driver.Decision{{Result: driver.Interrupted, Limit: -1}}}
				}
				_, err := one.Decide(context.Background(), driver.Batch{Budget: "up/key1", Now: s.clock.Load(), Limits: s.limits, Items: []driver.Item{{ID: "x", Operation: "list", Units: 1}}})
				must.Do(s.t, err)
				s.before = nil
			}
			s.settles(111, one, other)
		})
	}
}

// A process that ends leaves to the next what it had no call to ask for.
func TestMissedThoughTheProcessesEnded(t *testing.T) {
	s := newSides(t)
	dir := t.TempDir()
	one, two, other := s.process(dir), s.process(dir), s.host()
	s.charge(one, "a0", 1)
	s.used(two)
	s.used(other)
	restore := s.keep()
	s.tick(10 * time.Millisecond)
	s.charge(one, "a1", 100)
	must.Do(s.t, one.Close())
	restore()
	for i := range 3 {
		s.tick(time.Millisecond)
		s.charge(other, fmt.Sprint("b", i), 3)
	}
	s.charge(two, "b9", 1)
	must.Do(s.t, two.Close())
	s.settles(111, s.process(dir), other)
}

// A process that ends with charges that it had not written leaves to the next to tell of
// them, once another has recovered.
func TestToldThoughTheProcessEnded(t *testing.T) {
	s := newSides(t)
	dir := t.TempDir()
	one, two, other := s.process(dir), s.process(dir), s.host()
	s.charge(two, "p0", 1)
	s.charge(other, "o0", 1)
	s.charge(one, "a0", 1)
	s.tick(2 * time.Second)
	s.used(one)
	s.used(two)
	s.used(other)
	s.charge(one, "a00", 1) // it is written
	split := s.keep()
	s.tick(200 * time.Millisecond)
	s.charge(one, "a1", 100) // it is not
	s.tick(100 * time.Millisecond)
	first := s.keep()
	split()
	s.charge(other, "b1", 50)
	second := s.keep()
	first()
	s.tick(100 * time.Millisecond)
	s.used(two) // it sees a1
	second()
	s.tick(100 * time.Millisecond)
	s.used(two) // and notices
	must.Do(s.t, one.Close())
	s.settles(154, two, other)
}

// The charges of one process to the side that is dropped are reported however much another
// one of its host charged to the side that stays before either noticed.
func TestToldThoughManyCame(t *testing.T) {
	for _, n := range []int64{60, 70, 150} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newSides(t)
			dir := t.TempDir()
			one, two := s.process(dir), s.process(dir)
			s.charge(one, "a0", 1)
			s.used(two)
			s.tick(2 * time.Second)
			restore := s.keep()
			s.used(one)
			s.used(two)
			burst := func(process *outage.Store, name string) {
				for i := range n {
					s.tick(time.Millisecond)
					s.charge(process, fmt.Sprint(name, i), 1)
				}
			}
			burst(one, "x")
			restore()
			burst(two, "b")
			s.settles(1+2*n, two, one)
		})
	}
}

// A reservation that was open when its side was dropped counts as reserved.
func TestOpenReservationIsTold(t *testing.T) {
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprint("settled: ", settled), func(t *testing.T) {
			s := newSides(t)
			one, other := s.host(), s.host()
			s.charge(one, "a0", 1)
			s.charge(other, "o0", 1)
			s.tick(2 * time.Second)
			s.used(one)
			split := s.keep()
			s.item(one, driver.Item{ID: "r1", Operation: "list", Units: 100, Lease: time.Minute.Microseconds()})
			split()
			s.charge(other, "b0", 50)
			s.settles(152, one, other)
			if settled {
				_, err := driver.FinishOne(context.Background(), one, "up/key1", s.clock.Load(), driver.Finish{ID: "r1", Units: 100})
				must.Do(s.t, err)
			}
			s.tick(2 * time.Minute)
			s.settles(152, one, other)
			s.flush()
			s.settles(152, one, other)
		})
	}
}

// What was used before a window's end is not held against the next, however calls overlap.
func TestOverlappingCallsForget(t *testing.T) {
	s := newSides(t)
	s.limits[0].Window = limit.RollingWindow(time.Minute)
	process := s.host()
	s.charge(process, "first", 1)
	var mu sync.Mutex
	gates := map[string]chan struct{}{}
	gate := func(name string) chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		if gates[name] == nil {
			gates[name] = make(chan struct{})
		}
		return gates[name]
	}
	s.before = func(batch driver.Batch) *driver.Decisions {
		close(gate("begun " + batch.Items[0].ID))
		<-gate("goes on " + batch.Items[0].ID)
		return nil
	}
	begin := func(i int, units int64) {
		go func() {
			s.charge(process, fmt.Sprint("c", i), units)
			close(gate(fmt.Sprint("done c", i)))
		}()
		<-gate(fmt.Sprint("begun c", i))
	}
	end := func(i int) {
		close(gate(fmt.Sprint("goes on c", i)))
		<-gate(fmt.Sprint("done c", i))
	}
	// There are always two under way.
	begin(0, 1000)
	const all = 300
	for i := 1; i < all; i++ {
		begin(i, 1)
		s.tick(500 * time.Millisecond)
		end(i - 1)
	}
	end(all - 1)
	s.before = nil
	s.flush()
	if used := s.used(process); used < 119 || used > 125 {
		t.Errorf("%d are used, and about 120 were charged in the last minute", used)
	}
}

// What is in doubt costs a call little: each is carried once.
func TestDoubtsAreFew(t *testing.T) {
	s := newSides(t)
	process := s.host()
	var calls sync.WaitGroup
	for n := range 16 {
		calls.Go(func() {
			for i := range 25 {
				s.charge(process, fmt.Sprint(n, "-", i), 1)
			}
		})
	}
	calls.Wait()
	if calls, others := s.calls.Load(), s.others.Load(); others > calls {
		t.Errorf("%d calls carried %d marks besides", calls, others)
	}
}

// A host that still owes a limit of an earlier ledger, when the present one is put back,
// records that limit first. It then still notices what the present ledger lacks.
func TestPutBackWhileALimitIsOwed(t *testing.T) {
	s := newSides(t)
	day := s.limits
	both := append(slices.Clone(day), limit.Limit{
		Name: "search", Limit: 1000, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour), Operations: []string{"search"},
	})
	host := s.host()
	defer func() { must.Do(t, host.Close()) }()
	s.limits = both
	s.item(host, driver.Item{ID: "a", Operation: "search", Units: 8})
	s.flush()
	s.limits = day // the recovery leaves out search
	s.charge(host, "b", 1)
	restore := s.keep()
	s.charge(host, "c", 9)
	restore()
	s.limits = both
	s.charge(host, "d", 2)
	s.settles(8+1+9+2, host)
}

// After a loss no more counts than was used, though units had come back and the processes of a
// host, some of which ended, had not heard of each other.
func TestALossBringsNothingBack(t *testing.T) {
	s := newSides(t)
	dir := t.TempDir()
	one, two, other := s.process(dir), s.process(dir), s.host()
	s.charge(other, "a0", 100)
	s.used(two)
	s.item(one, driver.Item{ID: "r0", Operation: "list", Units: 50, Lease: time.Minute.Microseconds()})
	s.item(one, driver.Item{ID: "r1", Operation: "list", Units: 19, Lease: time.Minute.Microseconds()})
	for _, id := range []string{"r0", "r1"} {
		done, err := driver.FinishOne(context.Background(), one, "up/key1", s.clock.Load(), driver.Finish{ID: id, Release: true})
		if must.Do(t, err); done.Result != driver.Released {
			t.Fatalf("%+v", done)
		}
	}
	s.charge(other, "a1", 12)
	s.charge(two, "b1", 3) // it has read of neither
	must.Do(t, one.Close())
	must.Do(t, two.Close())
	must.Do(t, other.Close())
	s.flush()
	s.settles(115, s.process(dir))
}

// An open reservation counts for longer than its window.
func TestMissedThoughTheWindowIsOver(t *testing.T) {
	s := newSides(t)
	s.limits[0].Window = limit.RollingWindow(time.Minute)
	dir := t.TempDir()
	one, two, other := s.process(dir), s.process(dir), s.host()
	s.charge(one, "a0", 1)
	s.used(two)
	s.used(other)
	s.tick(2 * time.Second)
	s.used(one)
	s.used(two)
	restore := s.keep()
	s.tick(10 * time.Millisecond)
	s.item(one, driver.Item{ID: "r1", Operation: "list", Units: 100, Lease: (10 * time.Minute).Microseconds()})
	restore()
	s.chargesOn(other, 3, 3)
	s.charge(two, "b3", 3)
	s.tick(70 * time.Second)
	s.charge(two, "b4", 3)
	s.settles(103, one, two, other) // what is reserved, and b4
}

// An id may be used again once it is not held any more.
func TestMissedThoughItsIDWasUsedBefore(t *testing.T) {
	s := newSides(t)
	s.limits[0].Window = limit.RollingWindow(2 * time.Hour)
	dir := t.TempDir()
	one, two, other := s.process(dir), s.process(dir), s.host()
	s.charge(one, "x", 1)
	s.charge(two, "p", 1)
	s.used(other)
	s.tick(4 * time.Hour)
	s.charge(two, "q", 1)
	s.charge(one, "q1", 1)
	s.tick(2 * time.Second)
	s.used(one)
	s.used(two)
	s.used(other)
	restore := s.keep()
	s.tick(10 * time.Millisecond)
	s.charge(one, "x", 100)
	restore()
	s.chargesOn(other, 3, 3)
	s.charge(two, "b3", 3)
	s.settles(114, one, two, other)
}

// What was held before its settlement may lack the settlement.
func TestMissedThoughItWasSettledLater(t *testing.T) {
	s := newSides(t)
	dir := t.TempDir()
	one, two, other := s.process(dir), s.process(dir), s.host()
	s.charge(two, "a0", 1)
	s.used(other)
	s.item(one, driver.Item{ID: "r", Operation: "list", Units: 1, Lease: time.Minute.Microseconds()})
	s.tick(2 * time.Second)
	s.used(one)
	s.used(two)
	restore := s.keep()
	_, err := driver.FinishOne(context.Background(), one, "up/key1", s.clock.Load(), driver.Finish{ID: "r", Units: 200})
	must.Do(t, err)
	s.used(one)
	restore()
	s.tick(10 * time.Millisecond)
	s.chargesOn(other, 5, 1)
	s.charge(two, "c", 1)
	s.tick(2 * time.Second)
	s.used(two)
	s.flush()
	s.settles(206, one, two, other) // but for c: the host's own are capped by the most that it saw used, which was before c
}

// What a process asks as it ends, it asks with its limits: the ledger that was put back may not
// know their windows.
func TestMissedThoughTheLimitIsNew(t *testing.T) {
	s := newSides(t)
	short := []limit.Limit{{Name: "hour", Quota: 1_000_000, Limit: 1_000_000, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Minute)}}
	long := append(short[:1:1], s.limits[0])
	dir := t.TempDir()
	s.limits = short
	one, two, other := s.process(dir), s.process(dir), s.host()
	s.charge(one, "a0", 1)
	s.used(two)
	s.used(other)
	s.tick(2 * time.Second)
	s.used(one)
	s.used(two)
	restore := s.keep() // before the day's limit came
	s.tick(10 * time.Millisecond)
	s.limits = long
	s.charge(one, "a1", 100)
	s.charge(one, "a2", 100)
	restore()
	s.limits = short
	s.chargesOn(other, 5, 3)
	s.charge(two, "b9", 3) // an older configuration
	must.Do(t, two.Close())
	s.tick(61 * time.Minute)
	must.Do(t, one.Close())
	s.limits = []limit.Limit{long[1], long[0]}
	s.settles(200+1+15+3, s.process(dir))
}
