package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/quotactl/quotactl/internal/secret"
)

// read takes a body apart.
func (f *Fetch) read(body []byte) (*page, error) {
	lines, err := f.lines(body)
	if err != nil {
		return nil, err
	}
	if err := checkUTF8(body); err != nil {
		return nil, err
	}
	next, err := f.nextToken(body)
	if err != nil {
		return nil, err
	}
	return &page{lines: lines, next: next}, nil
}

// checkUTF8 fails with the place of the first byte that is not UTF-8, which JSON has to
// be: whoever reads the output could not take it apart.
func checkUTF8(body []byte) error {
	for at := 0; at < len(body); {
		r, size := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && size == 1 {
			line := 1 + bytes.Count(body[:at], []byte("\n"))
			return fmt.Errorf("the body is not UTF-8: byte 0x%02x at offset %d (line %d, byte %d of it); nothing of this page is written: have the upstream send UTF-8",
				body[at], at, line, at-bytes.LastIndexByte(body[:at], '\n'))
		}
		at += size
	}
	return nil
}

// isCut reports whether a body is the beginning of a JSON value: where nothing tells
// its length, a connection that ends early leaves such a one.
func isCut(body []byte) bool {
	var value json.RawMessage
	var syntax *json.SyntaxError
	err := json.Unmarshal(body, &value)
	return errors.As(err, &syntax) && syntax.Error() == "unexpected end of JSON input"
}

// lines is what a body adds to the output: the body itself on a line of its
// own, or each of its items.
func (f *Fetch) lines(body []byte) ([]byte, error) {
	var lines bytes.Buffer
	if f.Items == "" {
		if err := json.Compact(&lines, body); err != nil {
			return nil, fmt.Errorf("the body is not JSON: %w", err)
		}
		lines.WriteByte('\n')
		return lines.Bytes(), nil
	}
	found, err := dig(body, f.Items)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fmt.Errorf("the body has no %q: look at items", f.Items)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(found, &items); err != nil {
		return nil, fmt.Errorf("%q is no array: look at items", f.Items)
	}
	for _, item := range items {
		if err := json.Compact(&lines, item); err != nil {
			return nil, fmt.Errorf("an item is not JSON: %w", err)
		}
		lines.WriteByte('\n')
	}
	return lines.Bytes(), nil
}

// nextToken is the token of the next page; empty when this is the last.
func (f *Fetch) nextToken(body []byte) (string, error) {
	if f.NextFrom == "" {
		return "", nil
	}
	found, err := dig(body, f.NextFrom)
	if err != nil || found == nil {
		return "", err
	}
	var token any
	decoder := json.NewDecoder(bytes.NewReader(found))
	decoder.UseNumber()
	if err := decoder.Decode(&token); err != nil {
		return "", fmt.Errorf("%q cannot be read: %w", f.NextFrom, err)
	}
	switch value := token.(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	case json.Number:
		return value.String(), nil
	}
	if token == false {
		return "", nil
	}
	return "", fmt.Errorf("%q is neither text nor number: look at next_page", f.NextFrom)
}

// dig follows a dotted path from the top of a body; nil when it leads nowhere.
func dig(body []byte, path string) (json.RawMessage, error) {
	if !json.Valid(body) {
		return nil, errors.New("the body is not JSON")
	}
	found := json.RawMessage(body)
	for name := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		if json.Unmarshal(found, &object) != nil {
			return nil, nil // not an object: the path ends here
		}
		next, ok := object[name]
		if !ok {
			return nil, nil
		}
		found = next
	}
	return found, nil
}

// maxExcerpt is how many characters of an upstream's error are told, maxSearched
// how many bytes of it are searched for the secret.
const (
	maxExcerpt  = 200
	maxSearched = 64 << 10
)

// excerpt is what an error body says, after a colon; empty when nothing. The
// secret is taken out first, so that no cut leaves a part of it. A body that is
// not whole may end within a secret.
func (s *secrets) excerpt(body []byte, whole bool, hidden string) string {
	text := string(body)
	for _, path := range []string{"error.message", "message", "error_description", "error", "detail"} {
		found, err := dig(body, path)
		var message string
		if err == nil && found != nil && json.Unmarshal(found, &message) == nil {
			text = message
			break
		}
	}
	if !whole || len(text) > maxSearched {
		text = s.hide(text[:min(len(text), maxSearched)], hidden)
		text = text[:max(0, len(text)-secret.Edge)]
	} else {
		text = s.hide(text, hidden)
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return ""
	}
	if cut := []rune(text); len(cut) > maxExcerpt {
		text = string(cut[:maxExcerpt]) + "…"
	}
	return ": " + text
}
