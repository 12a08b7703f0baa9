package budgethttp

import (
	"bytes"
	"mime"
	"strings"
)

// byteOrderMark may precede a text in UTF-8.
var byteOrderMark = []byte("\ufeff")

// scanner cuts a body into documents while it is read: the whole body, or each event of a
// text/event-stream, or each line of newline-delimited JSON. It keeps at most one
// document, and skips documents longer than maxBody.
type scanner struct {
	found func(document []byte)
	// lost is called, in order with found, for a document that cannot be read: one that
	// is too long, or an event that does not end.
	lost  func(document []byte, why string)
	lines bool // the body is a stream of lines
	event bool // its "data:" lines up to an empty line make an event

	line    []byte
	data    []byte // of the event so far
	tooLong bool   // the line, or without lines the body
	skip    bool   // the event has a line that is too long
	// passedOver: a document was too long.
	passedOver bool
	afterCR    bool
	begun      bool // the first line has ended
	strays     bool // a line among the events is not a field
}

// newScanner makes a scanner for a media type. It calls found with each document, which
// found must not keep.
func newScanner(mediaType string, found func([]byte), lost func([]byte, string)) *scanner {
	s := &scanner{found: found, lost: lost}
	mediaType, _, _ = mime.ParseMediaType(mediaType)
	switch mediaType = strings.ToLower(mediaType); mediaType {
	case "text/event-stream":
		s.lines, s.event = true, true
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonl", "application/jsonlines",
		"application/x-jsonlines", "application/json-lines", "application/json-seq", "application/stream+json", "application/x-json-stream":
		s.lines = true
	}
	return s
}

// write scans the next bytes.
func (s *scanner) write(p []byte) {
	if !s.lines {
		s.keep(p)
		return
	}
	for len(p) > 0 {
		if s.afterCR && p[0] == '\n' { // the second half of a line's end
			s.afterCR, p = false, p[1:]
			continue
		}
		s.afterCR = false
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			s.keep(p)
			return
		}
		s.keep(p[:end])
		s.afterCR = p[end] == '\r'
		p = p[end+1:]
		s.endLine()
	}
}

// takesMore reports whether further bytes may still matter.
func (s *scanner) takesMore() bool { return s.lines || !s.tooLong }

// end scans what is left when the body has ended.
func (s *scanner) end() {
	switch {
	case !s.lines && s.tooLong:
		s.lost(nil, whyTooLong)
	case !s.lines:
		if len(s.line) > 0 {
			s.found(s.line)
		}
	case s.event: // an event without its empty line does not count
		if len(s.line) > 0 || s.tooLong {
			s.endLine()
		}
		switch {
		case s.skip:
			s.lost(nil, whyTooLong)
		case len(s.data) > 0:
			s.lost(s.data, "the last event is cut: it has no empty line after it")
		}
	default:
		s.endLine()
	}
	s.line, s.data = nil, nil
}

// keep adds to the line.
func (s *scanner) keep(p []byte) {
	if s.tooLong || len(s.line)+len(p) > maxBody {
		s.tooLong, s.passedOver, s.line = true, true, nil
		return
	}
	s.line = append(s.line, p...)
}

// endLine handles a complete line.
func (s *scanner) endLine() {
	line, tooLong := s.line, s.tooLong
	s.line, s.tooLong = s.line[:0], false
	if !s.begun {
		line, s.begun = bytes.TrimPrefix(line, byteOrderMark), true
	}
	if !s.event {
		if tooLong {
			s.lost(nil, whyTooLong)
		}
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte{0x1e})) // RFC 7464
		if len(line) > 0 {
			s.found(line)
		}
		return
	}
	if len(line) == 0 && !tooLong {
		switch {
		case s.skip:
			s.lost(nil, whyTooLong)
		case len(s.data) > 0:
			s.found(s.data)
		}
		s.data, s.skip = s.data[:0], false
		return
	}
	data, isData := bytes.CutPrefix(line, []byte("data:"))
	if s.skip = s.skip || tooLong || len(s.data)+len(data)+1 > maxBody; s.skip {
		s.data, s.passedOver = nil, true
		return
	}
	if !isData {
		s.strays = s.strays || !isField(line)
		return
	}
	if len(s.data) > 0 {
		s.data = append(s.data, '\n')
	}
	s.data = append(s.data, bytes.TrimPrefix(data, []byte(" "))...)
}

// isField reports whether a line of an event stream is valid in that format: a field or a
// comment.
func isField(line []byte) bool {
	name, _, _ := bytes.Cut(line, []byte(":"))
	switch string(name) {
	case "", "data", "event", "id", "retry":
		return true
	}
	return false
}
