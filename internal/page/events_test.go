package page

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
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
		time.Sleep(30 * time.Second)
		check.Equal(t, looks.Load(), 12, "in 30 s, since that was 300 ms too much")
		time.Sleep(30 * time.Second)
		check.Equal(t, looks.Load() > 30, true, "when it has been saved again")
		leave()
		<-over
		before := looks.Load()
		time.Sleep(5 * time.Minute)
		check.Equal(t, looks.Load() <= before+1, true, "nobody listens any longer")
		cancel()
		<-following
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
