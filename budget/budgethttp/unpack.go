package budgethttp

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// If the caller decodes a body itself, it is also unpacked here, to be read. The cost of
// that is bounded: the scanner keeps maxBody of the unpacked text, a decoder keeps the
// window of its format, and unpacking stops if the body expands too much.
const (
	// mostCodings is how many nested codings a body may have.
	mostCodings = 2
	// mostExpansion bounds how many times larger the unpacked text may be than what was
	// received, plus maxBody. Deflate reaches 1,032.
	mostExpansion = 1100
	// zstdWindow is the largest window that HTTP allows (RFC 9659). Brotli's format
	// allows 16 MiB, the others 32 KiB.
	zstdWindow = 8 << 20
)

var errExpands = fmt.Errorf("it expands more than %d times", mostExpansion)

// decoders make readers of what a content coding holds.
var decoders = map[string]func(io.Reader) (io.Reader, error){
	"gzip":    func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"x-gzip":  func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"deflate": newInflater,
	"br":      func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
	"zstd": func(r io.Reader) (io.Reader, error) {
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	},
}

// newInflater reads deflate. By RFC 9110 that is zlib's format, but many servers send it
// without zlib's frame.
func newInflater(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	start, err := buffered.Peek(2)
	if len(start) == 2 && start[0]&0x0f == 8 && (int(start[0])<<8|int(start[1]))%31 == 0 {
		return zlib.NewReader(buffered)
	}
	if len(start) == 0 {
		return nil, err
	}
	return flate.NewReader(buffered), nil
}

// codingsOf are the content codings of a body, the innermost first. The error names a
// coding that cannot be read.
func codingsOf(header http.Header) ([]string, error) {
	var codings []string
	for coding := range strings.SplitSeq(strings.Join(header.Values("Content-Encoding"), ","), ",") {
		coding = strings.ToLower(strings.Trim(coding, blanks))
		if coding == "" || coding == "identity" {
			continue
		}
		if decoders[coding] == nil {
			return nil, fmt.Errorf("the encoding %.40q is not gzip, deflate, br or zstd", coding)
		}
		codings = append(codings, coding)
	}
	if len(codings) > mostCodings {
		return nil, fmt.Errorf("it has more than %d encodings", mostCodings)
	}
	return codings, nil
}

// unpacker removes the codings from a body piece by piece. Decoders read their input
// themselves, so they run in their own goroutine. It runs only while write or end wait
// for it, so nothing is accessed concurrently.
type unpacker struct {
	found func(text []byte) (more bool)

	in    chan []byte
	idle  chan struct{} // it has read everything that was written
	done  chan struct{} // closed when it has ended
	err   error         // once done: why it has ended before the body; nil: it has not, or nobody wants more
	taken int64         // of the body
	piece []byte        // being read
	ended bool          // no more input follows
}

// newUnpacker calls found with the unpacked text, which found must not keep, until found
// returns false. Every unpacker must be ended, because it runs a goroutine.
func newUnpacker(codings []string, found func(text []byte) (more bool)) *unpacker {
	u := &unpacker{found: found, in: make(chan []byte), idle: make(chan struct{}), done: make(chan struct{})}
	go u.run(codings)
	u.wait()
	return u
}

// write unpacks the next piece of the body.
func (u *unpacker) write(p []byte) {
	select {
	case <-u.done:
	case u.in <- p:
		u.wait()
	}
}

func (u *unpacker) wait() {
	select {
	case <-u.idle:
	case <-u.done:
	}
}

// end unpacks what is left when the body has ended. The error says that the body is
// damaged or truncated; such a body is unpacked as far as possible.
func (u *unpacker) end() error {
	close(u.in)
	<-u.done
	return u.err
}

func (u *unpacker) run(codings []string) {
	defer close(u.done)
	err := u.unpack(codings)
	if u.taken > 0 || !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) { // an empty body lacks nothing
		u.err = err
	}
}

func (u *unpacker) unpack(codings []string) error {
	var r io.Reader = reading(u.take)
	for i := len(codings) - 1; i >= 0; i-- {
		decoder, err := newDecoder(codings[i], r)
		if err != nil {
			return err
		}
		if c, ok := decoder.(io.Closer); ok {
			defer func() {
				defer catch(new(error))
				_ = c.Close() // it only frees
			}()
		}
		r = u.bounded(decoder)
	}
	text := make([]byte, 32<<10)
	for {
		n, err := r.Read(text)
		if n > 0 && !u.found(text[:n]) {
			return nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// newDecoder makes the reader of one coding.
func newDecoder(coding string, from io.Reader) (decoder io.Reader, err error) {
	defer catch(&err)
	return decoders[coding](from)
}

// catch, deferred, turns a decoder's panic into an error. A decoder's input comes from
// outside, and it runs in a goroutine where the caller cannot recover.
func catch(err *error) {
	if problem := recover(); problem != nil {
		*err = fmt.Errorf("its decoder panicked: %v", problem)
	}
}

// take is the decoders' input.
func (u *unpacker) take(p []byte) (int, error) {
	for len(u.piece) == 0 {
		if u.ended { // some decoders read again
			return 0, io.EOF
		}
		u.idle <- struct{}{}
		piece, more := <-u.in
		u.piece, u.ended = piece, !more
	}
	n := copy(p, u.piece)
	u.piece = u.piece[n:]
	u.taken += int64(n)
	return n, nil
}

// bounded reads from a decoder at most as much as the body may expand to.
func (u *unpacker) bounded(from io.Reader) io.Reader {
	unpacked := int64(0)
	return reading(func(p []byte) (n int, err error) {
		defer catch(&err)
		n, err = from.Read(p)
		if unpacked += int64(n); unpacked > maxBody+mostExpansion*u.taken {
			return n, errExpands
		}
		return n, err
	})
}

// reading makes a function an io.Reader.
type reading func(p []byte) (int, error)

// Read implements io.Reader.
func (r reading) Read(p []byte) (int, error) { return r(p) }

// damaged is why a body could not be unpacked.
func damaged(err error) string {
	switch {
	case errors.Is(err, errExpands):
		return "the body is not unpacked: " + err.Error()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the body is cut: its encoding goes on"
	}
	return "the body is damaged, or not in the encoding that its header names"
}

// unpackStart unpacks the beginning of a body as far as possible, until it has maxBody.
func unpackStart(codings []string, body []byte) (text []byte, err error) {
	if len(codings) == 0 {
		return body, nil
	}
	u := newUnpacker(codings, func(more []byte) bool {
		text = append(text, more...)
		return len(text) < maxBody
	})
	u.write(body)
	err = u.end()
	return text, err
}
