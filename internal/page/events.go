package page

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	// mostListeners bounds the streams.
	mostListeners = 64
	// lookEvery is the shortest time between two looks for changes, and lookLatest the longest: a
	// page that says it is live is never older. Up to there looking and open pages together take
	// less than one part in lookCosts of a core, beyond what they may take at once.
	lookEvery  = time.Second
	lookLatest = 15 * time.Second
	lookCosts  = 200
	atOnce     = 250 * time.Millisecond
	// mostWork is the most that one look, reading or page counts for: what took longer has waited
	// for the store, which costs nothing here.
	mostWork = 100 * time.Millisecond
	// lookTakes bounds a look.
	lookTakes = 10 * time.Second
	// heartbeat is how often a stream without news says that it is alive, and writeTakes how long a
	// write to one may take.
	heartbeat  = 15 * time.Second
	writeTakes = 10 * time.Second
)

// events tells open pages that what they show has changed.
type events struct {
	mu        sync.Mutex // guards all below
	version   uint64     // the last version that pages have heard of
	next      chan struct{}
	listeners int
	came      chan struct{} // gets one when the first listener comes
	over      chan struct{} // closed when nobody follows changes any longer
	ended     bool
}

func newEvents() *events {
	// Versions grow over restarts too, so that an open page knows which is newer.
	return &events{version: uint64(max(1, time.Now().UnixMilli())), next: make(chan struct{}), came: make(chan struct{}, 1), over: make(chan struct{})}
}

func (e *events) stamp() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.version
}

// tell tells all listeners.
func (e *events) tell() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.version++
	close(e.next)
	e.next = make(chan struct{})
}

// news is the present version, and what is closed once it is another one.
func (e *events) news() (version uint64, next <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.version, e.next
}

// join adds a listener; false: there are too many, or nobody follows changes any longer.
func (e *events) join() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended || e.listeners == mostListeners {
		return false
	}
	if e.listeners++; e.listeners == 1 {
		select {
		case e.came <- struct{}{}:
		default:
		}
	}
	return true
}

func (e *events) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listeners--
}

func (e *events) heard() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.listeners > 0
}

// end ends all streams.
func (e *events) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		e.ended = true
		close(e.over)
	}
}

// stream serves the events to one open page: at once the present version, then each further one.
func (s *Site) stream(w http.ResponseWriter, r *http.Request) {
	if !s.events.join() {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many pages are open, or the daemon is stopping: this one shows changes when it is loaded again", http.StatusServiceUnavailable)
		return
	}
	defer s.events.leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy hands it on at once
	to := http.NewResponseController(w)
	_ = to.SetReadDeadline(time.Time{}) // an error means that there is no connection to time out
	send := func(format string, args ...any) bool {
		_ = to.SetWriteDeadline(time.Now().Add(writeTakes)) // likewise
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && to.Flush() == nil
	}
	if r.Method == http.MethodHead {
		return
	}
	version, next := s.events.news()
	if !send("retry: 2000\n\nevent: change\ndata: %d\n\n", version) {
		return
	}
	quiet := time.NewTicker(heartbeat)
	defer quiet.Stop()
	for {
		alive := false
		select {
		case <-next:
			version, next = s.events.news()
			alive = send("event: change\ndata: %d\n\n", version)
		case <-quiet.C:
			alive = send(": nothing has changed\n\n")
		case <-s.events.over:
		case <-r.Context().Done():
		}
		if !alive {
			return
		}
	}
}

// Follow looks for changes while pages are open, and tells them, until ctx ends. Then it ends all
// streams and readings; later ones are refused.
func (s *Site) Follow(ctx context.Context) {
	defer s.shelf.end()
	defer s.events.end()
	var mark uint64
	failed := false         // the last look has
	var spent time.Duration // of a core, beyond the part that is theirs
	since := time.Now()
	for {
		if !s.events.heard() {
			select {
			case <-s.events.came:
			case <-ctx.Done():
				return
			}
		}
		began := time.Now()
		looking, cancel := context.WithTimeout(ctx, lookTakes)
		now := mark
		err := caught(func() (err error) {
			now, err = s.o.Reader().Mark(looking)
			return err
		})
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.unread(slog.LevelDebug, "what has changed", err)
			if !failed { // open pages say so, too
				s.shelf.changed()
				s.events.tell()
			}
		case now != mark || failed: // a page may still say that numbers could not be read
			mark = now
			s.shelf.changed()
			s.events.tell()
		}
		if failed = err != nil; !failed {
			s.worked(time.Since(began))
		}
		spent = max(0, spent-time.Since(since)/lookCosts) + time.Duration(s.working.Swap(0))
		spent = min(spent, atOnce+lookLatest/lookCosts)
		since = time.Now()
		wait := time.NewTimer(max(lookEvery, lookCosts*(spent-atOnce)))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
	}
}

// worked counts what a look, a reading or a page took.
func (s *Site) worked(took time.Duration) { s.working.Add(int64(min(max(0, took), mostWork))) }
