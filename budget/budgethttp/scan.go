package budgethttp

import (
	"bytes"
	"mime"
	"strings"
)

// scanner cuts a body into documents as it passes by: the whole body, or each event
// of a text/event-stream, or each line of newline-delimited JSON. It keeps no more
// than one document, and passes over what is longer than maxBody.
type scanner struct {
	found func(document []byte)
	lines bool // the body is a stream of lines
	event bool // of which those of "data:" make an event, up to an empty one

	line    []byte
	data    []byte // of the event so far
	tooLong bool   // the line, or without lines the body
	skip    bool   // the event has a line that is too long
	afterCR bool
}

// newScanner makes a scanner for a media type. found is given each document, which
// it must not keep.
func newScanner(mediaType string, found func([]byte)) *scanner {
	s := &scanner{found: found}
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

// write looks at the next bytes.
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

// end looks at what is left when the body has ended.
func (s *scanner) end() {
	switch {
	case !s.lines:
		if len(s.line) > 0 && !s.tooLong {
			s.found(s.line)
		}
	case s.event: // one without its empty line is none
	default:
		s.endLine()
	}
	s.line, s.data = nil, nil
}

// keep adds to the line.
func (s *scanner) keep(p []byte) {
	if s.tooLong || len(s.line)+len(p) > maxBody {
		s.tooLong, s.line = true, nil
		return
	}
	s.line = append(s.line, p...)
}

// endLine looks at a line.
func (s *scanner) endLine() {
	line, tooLong := s.line, s.tooLong
	s.line, s.tooLong = s.line[:0], false
	if !s.event {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte{0x1e})) // RFC 7464
		if len(line) > 0 {
			s.found(line)
		}
		return
	}
	if len(line) == 0 && !tooLong {
		if len(s.data) > 0 && !s.skip {
			s.found(s.data)
		}
		s.data, s.skip = s.data[:0], false
		return
	}
	data, isData := bytes.CutPrefix(line, []byte("data:"))
	if s.skip = s.skip || tooLong || len(s.data)+len(data)+1 > maxBody; s.skip {
		s.data = nil
		return
	}
	if !isData {
		return
	}
	if len(s.data) > 0 {
		s.data = append(s.data, '\n')
	}
	s.data = append(s.data, bytes.TrimPrefix(data, []byte(" "))...)
}
