package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/look"
)

// readings is a shelf, and a way to read from it that takes a while and counts.
type readings struct {
	*shelf
	takes       time.Duration
	fails       error
	count, told atomic.Int64
	worked      atomic.Int64 // ns
}

func newReadings(t *testing.T) *readings {
	base, stop := context.WithCancel(t.Context())
	r := &readings{takes: time.Second}
	r.shelf = &shelf{
		base: base, stop: stop, now: time.Now, slow: make(chan struct{}, 1), books: map[string]*book{}, log: func(string, error) {},
		tell: func() { r.told.Add(1) }, work: func(d time.Duration) { r.worked.Add(int64(d)) },
	}
	return r
}

func (r *readings) read(key string, t terms) string {
	got := r.get(context.Background(), key, t, &look.Reader{}, func(ctx context.Context, _ *look.Reader) (any, error) {
		select {
		case <-time.After(r.takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return r.count.Add(1), r.fails
	})
	if !got.known {
		return fmt.Sprintf("none, late %v, error %v", got.late, got.err)
	}
	return fmt.Sprintf("%v, late %v, error %v", got.value, got.late, got.err)
}

// However many ask, one reading is made; it is served while it is fresh, and afterwards until the
// next one is there.
func TestShelf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReadings(t)
		usual := terms{fresh: 2 * time.Second, patient: 100 * time.Millisecond, first: 10 * time.Second}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { check.Equal(t, r.read("a", usual), "1, late false, error <nil>", "the first") })
		}
		all.Wait()
		check.Equal(t, r.read("a", usual), "1, late false, error <nil>", "fresh")
		time.Sleep(3 * time.Second)
		began := time.Now()
		check.Equal(t, r.read("a", usual), "1, late true, error <nil>", "while the next is read")
		check.Equal(t, time.Since(began), 100*time.Millisecond, "the wait for the next")
		time.Sleep(time.Second)
		check.Equal(t, r.told.Load(), 1, "notices to those who got an older one")
		check.Equal(t, r.read("a", usual), "2, late false, error <nil>", "the next")
		r.takes = time.Millisecond
		r.changed()
		check.Equal(t, r.read("a", usual), "3, late false, error <nil>", "after a change")
		r.fails = errors.New("out of reach")
		r.changed()
		check.Equal(t, r.read("a", usual), "3, late false, error out of reach", "an older one where the next fails")
		check.Equal(t, r.read("b", usual), "none, late false, error out of reach", "none where the first fails")
		check.Equal(t, r.count.Load(), 5, "readings")
		r.end()
		check.Equal(t, r.read("c", usual), "none, late false, error "+errBusy.Error(), "at the end")
	})
}

// A plan is read in the background, seldom if it costs much, and a change does not make it stale.
func TestShelfOfPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReadings(t)
		r.takes = 10 * time.Second
		check.Equal(t, r.read("plan", ofFuture), "none, late true, error <nil>", "the first")
		time.Sleep(r.takes)
		synctest.Wait()
		check.Equal(t, r.told.Load(), 1, "notices to those who got none")
		r.changed()
		time.Sleep(199 * time.Second)
		check.Equal(t, r.read("plan", ofFuture), "1, late false, error <nil>", "within 20 times its cost")
		time.Sleep(time.Second)
		check.Equal(t, r.read("plan", ofFuture), "1, late true, error <nil>", "afterwards")
		r.end()
		check.Equal(t, r.worked.Load(), 0, "a plan is not counted as work for open pages: it is seldom enough")
	})
}

// A page that hears of each failure does not read a failing value again and again.
func TestShelfOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReadings(t)
		open := func(key string, terms terms) int64 {
			before := r.count.Load()
			for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
				r.read(key, terms)
			}
			return r.count.Load() - before
		}
		r.takes, r.fails = 200*time.Millisecond, errors.New("too many passes")
		check.Equal(t, open("plan", ofFuture), 1, "a plan that was never read")
		check.Equal(t, r.read("plan", ofFuture), "none, late false, error too many passes")
		time.Sleep(ofFuture.fresh)
		check.Equal(t, open("plan", ofFuture), 1, "when it is old")
		r.fails = nil
		check.Equal(t, r.read("jobs", ofPresent), "3, late false, error <nil>")
		r.fails = errors.New("out of reach")
		r.changed()
		check.Equal(t, open("jobs", ofPresent), 5, "each 2 s, after a change")
		r.fails = nil
		r.changed()
		check.Equal(t, r.read("jobs", terms{patient: time.Second}), "9, late false, error <nil>", "after a further change, at once")
		r.end()
	})
}

// A panic in a reading, or in a look for changes, is an error of it: the daemon goes on.
func TestPanicsAreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var log bytes.Buffer
		w.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		var none *look.Spending
		w.shelf.get(t.Context(), "budget up/key", ofPresent, w.reader, func(context.Context, *look.Reader) (any, error) { return none.At, nil })
		page := w.answer(t, "/budget?name=up/key").Body.String()
		check.Contains(t, page, "This program has a mistake here")
		check.Equal(t, strings.Contains(page, "nil pointer"), false, "the panic is shown")
		check.Contains(t, log.String(), `what="budget up/key" error.panic="runtime error: invalid memory address`)
		check.Contains(t, log.String(), "shelf_test.go", "its stack")
		works := w.o.Reader
		var looks atomic.Int64
		w.o.Reader = func() *look.Reader {
			if looks.Add(1) == 1 {
				panic("this look")
			}
			return works()
		}
		ctx, cancel := context.WithCancel(t.Context())
		following := make(chan struct{})
		go func() {
			defer close(following)
			w.Follow(ctx)
		}()
		_, over := w.listen(ctx)
		time.Sleep(3 * time.Second)
		check.Equal(t, looks.Load() >= 3, true, "there are further looks")
		cancel()
		<-following
		<-over
		check.Contains(t, log.String(), `what="what has changed" error.panic="this look"`)
	})
}

// The shelf counts the readings of open pages.
func TestShelfCountsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReadings(t)
		usual := terms{fresh: time.Second, first: 10 * time.Second}
		r.read("a", usual)
		check.Equal(t, r.worked.Load(), 0, "for a visitor")
		usual.live = true
		r.read("b", usual)
		check.Equal(t, time.Duration(r.worked.Load()), time.Second, "for an open page")
		r.end()
	})
}

// The shelf is bounded: what nobody asked for longest goes. Readings under way are bounded too.
func TestShelfIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReadings(t)
		r.takes = time.Millisecond
		usual := terms{fresh: time.Hour, first: time.Second}
		for i := range mostKept + 10 {
			r.read(fmt.Sprint(i), usual)
		}
		check.Equal(t, len(r.books), mostKept)
		check.Equal(t, r.books["9"] == nil && r.books["10"] != nil, true, "the oldest are gone")
		r.takes = time.Second
		for i := range mostReadings {
			check.Equal(t, r.read(fmt.Sprint("slow ", i), terms{}), "none, late true, error <nil>", i)
		}
		check.Equal(t, r.read("one more", terms{}), "none, late false, error "+errBusy.Error())
		r.end()
	})
}
