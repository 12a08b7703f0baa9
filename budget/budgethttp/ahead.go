package budgethttp

import (
	"io"
	"sync"
	"time"
)

const (
	// mostAhead is how much of a body is read before the caller gets the response.
	mostAhead = 64 << 10
	// longestAhead is how long that may take.
	longestAhead = 3 * time.Second
)

// ahead is a body whose beginning is read before the caller asks for it. The caller gets
// all of it, with the error that ended it.
type ahead struct {
	body io.ReadCloser
	over chan struct{} // closed when no more is read ahead

	mu     sync.Mutex // guards all below
	text   []byte     // read ahead
	at     int        // how much of it the caller has
	err    error      // the error that ended the body
	handed bool       // the caller has the body: the read under way is the last
}

// readAhead reads until the body's end, mostAhead bytes, the end of the wait or of the
// request. ended is the error that ended the body, io.EOF included; nil: there may be
// more than text.
func readAhead(body io.ReadCloser, wait time.Duration, done <-chan struct{}) (rest io.ReadCloser, text []byte, ended error) {
	h := &ahead{body: body, over: make(chan struct{})}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	go h.read()
	select {
	case <-h.over:
	case <-timer.C:
	case <-done:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handed = true
	return h, h.text[:len(h.text):len(h.text)], h.err
}

// read ends with the body, at the latest when the body is closed.
func (h *ahead) read() {
	defer close(h.over)
	buffer := make([]byte, 8<<10)
	for left := mostAhead; left > 0; {
		n, err := h.body.Read(buffer[:min(len(buffer), left)])
		left -= n
		h.mu.Lock()
		h.text, h.err = append(h.text, buffer[:n]...), err
		last := err != nil || h.handed
		h.mu.Unlock()
		if last {
			return
		}
	}
}

// Read returns what was read ahead, and then reads the rest of the body.
func (h *ahead) Read(p []byte) (int, error) {
	if n := h.take(p); n > 0 || len(p) == 0 {
		return n, nil
	}
	<-h.over
	if n := h.take(p); n > 0 {
		return n, nil
	}
	h.mu.Lock()
	err := h.err
	h.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return h.body.Read(p)
}

// take copies the part of the text that the caller does not have yet.
func (h *ahead) take(p []byte) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := copy(p, h.text[h.at:])
	h.at += n
	return n
}

// Close also ends a read that is under way.
func (h *ahead) Close() error { return h.body.Close() }
