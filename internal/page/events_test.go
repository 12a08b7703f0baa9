package page

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/must"
)

// ear is a listener's connection.
type ear struct {
	header http.Header
	mu     sync.Mutex
	heard  bytes.Buffer
	status int
}

func (e *ear) Header() http.Header    { return e.header }
func (e *ear) WriteHeader(status int) { e.status = status }
func (e *ear) FlushError() error      { return nil }
func (e *ear) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard.Write(p)
}

func (e *ear) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard.String()
}

// changes is how many changes were heard.
func (e *ear) changes() int {
	return strings.Count(e.text(), "event: change\n")
}

// listen opens a stream; over is closed when it has ended.
func (w *world) listen(ctx context.Context) (e *ear, over chan struct{}) {
	e, over = &ear{header: http.Header{}}, make(chan struct{})
	go func() {
		defer close(over)
		w.ServeHTTP(e, httptest.NewRequest(http.MethodGet, eventsPath, nil).WithContext(ctx))
	}()
	return e, over
}

// A change reaches all open pages within two seconds, nothing is sent without one but that the
// stream is alive, and all streams end with the daemon.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		following := make(chan struct{})
		go func() {
			defer close(following)
			w.Follow(ctx)
		}()
		first, firstOver := w.listen(t.Context())
		second, secondOver := w.listen(t.Context())
		time.Sleep(5 * time.Second)
		before, beforeToo := first.changes(), second.changes()
		check.Equal(t, first.header.Get("Content-Type"), "text/event-stream")
		time.Sleep(time.Minute)
		check.Equal(t, first.changes(), before, "nothing has changed")
		check.Contains(t, first.text(), ": nothing has changed\n\n", "but the stream is alive")
		must.Get(w.key.Charge(t.Context(), budget.Call{Operation: "get"}))(t)
		time.Sleep(2 * time.Second)
		check.Equal(t, first.changes(), before+1, "a charge")
		check.Equal(t, second.changes(), beforeToo+1, "for all")
		w.job(t, "hourly", map[string]any{"pause": map[string]any{"by": "me", "at": evening}})
		time.Sleep(2 * time.Second)
		check.Equal(t, first.changes(), before+2, "a pause")
		w.Changed()
		synctest.Wait()
		check.Equal(t, first.changes(), before+3, "an action, at once")
		cancel()
		<-following
		<-firstOver
		<-secondOver
		late, over := w.listen(t.Context())
		<-over
		check.Equal(t, late.status, http.StatusServiceUnavailable, "after the end")
	})
}

// While no page is open, nothing is looked at; and the dearer the looks and pages, the fewer.
func TestLooksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var looks atomic.Int64
		reader := w.o.Reader
		w.o.Reader = func() *look.Reader { looks.Add(1); return reader() }
		ctx, cancel := context.WithCancel(t.Context())
		following := make(chan struct{})
		go func() {
			defer close(following)
			w.Follow(ctx)
		}()
		time.Sleep(time.Minute)
		check.Equal(t, looks.Load(), 0, "nobody listens")
		listening, leave := context.WithCancel(t.Context())
		_, over := w.listen(listening)
		time.Sleep(10*time.Second + time.Millisecond)
		check.Equal(t, looks.Load(), 11, "each second")
		w.working.Store(int64(atOnce + 300*time.Millisecond)) // what pages took
		time.Sleep(lookLatest)
		check.Equal(t, looks.Load(), 12, "in 15 s, since that was 300 ms too much")
		time.Sleep(30 * time.Second)
		check.Equal(t, looks.Load() > 40, true, "afterwards, each second again")
		leave()
		<-over
		before := looks.Load()
		time.Sleep(5 * time.Minute)
		check.Equal(t, looks.Load() <= before+1, true, "nobody listens any longer")
		cancel()
		<-following
	})
}

// slowStore is a store whose jobs are read slowly.
type slowStore struct {
	open.Backend
	takes atomic.Int64 // ns
	fails atomic.Bool
}

func (s *slowStore) Jobs(ctx context.Context, names []string) ([]driver.JobDocument, error) {
	select {
	case <-time.After(time.Duration(s.takes.Load())):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.fails.Load() {
		return nil, errors.New("out of reach")
	}
	return s.Backend.Jobs(ctx, names)
}

// A slow store delays changes by what it takes, and no longer: waiting for it costs nothing.
func TestLooksAtASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		store := &slowStore{Backend: w.store}
		w.reader.Store = store
		ctx, cancel := context.WithCancel(t.Context())
		following := make(chan struct{})
		go func() {
			defer close(following)
			w.Follow(ctx)
		}()
		page, over := w.listen(ctx)
		soon := func(within time.Duration, what string) {
			t.Helper()
			before := page.changes()
			must.Get(w.key.Charge(t.Context(), budget.Call{Operation: "list"}))(t)
			time.Sleep(within)
			check.Equal(t, page.changes(), before+1, what)
		}
		time.Sleep(5 * time.Second)
		store.takes.Store(int64(9 * time.Second))
		time.Sleep(5 * time.Second) // the slow look is under way
		store.takes.Store(0)
		time.Sleep(5 * time.Second)
		soon(2*time.Second, "after one look that took 9 s")
		store.takes.Store(int64(time.Hour))
		time.Sleep(time.Minute) // all looks fail, each after 10 s
		store.takes.Store(0)
		time.Sleep(12 * time.Second)
		soon(2*time.Second, "after looks that failed")
		store.takes.Store(int64(300 * time.Millisecond))
		time.Sleep(time.Minute)
		soon(lookLatest+time.Second, "while each look takes 300 ms")
		store.takes.Store(0)
		time.Sleep(lookLatest)
		before := page.changes()
		store.fails.Store(true)
		time.Sleep(5 * time.Second)
		check.Equal(t, page.changes(), before+1, "when looks begin to fail, and not again while they do")
		store.fails.Store(false)
		time.Sleep(2 * time.Second)
		check.Equal(t, page.changes(), before+2, "when they succeed again, since pages may show a failure")
		cancel()
		<-following
		<-over
	})
}

// Streams are bounded.
func TestListenersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, leave := context.WithCancel(t.Context())
		var all []chan struct{}
		for range mostListeners {
			_, over := w.listen(ctx)
			all = append(all, over)
		}
		synctest.Wait()
		late, over := w.listen(ctx)
		<-over
		check.Equal(t, late.status, http.StatusServiceUnavailable)
		leave()
		for _, one := range all {
			<-one
		}
		again, cancel := context.WithCancel(t.Context())
		free, ended := w.listen(again)
		synctest.Wait()
		check.Equal(t, free.changes(), 1, "there is room again")
		cancel()
		<-ended
	})
}
