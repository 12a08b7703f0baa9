package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/quotactl/quotactl/internal/jsonpath"
	"github.com/quotactl/quotactl/internal/secret"
)

// read extracts the output lines and the next page's token from a body.
func (f *Fetch) read(body []byte) (*page, error) {
	lines, err := f.lines(body)
	if err != nil {
		return nil, err
	}
	if err := checkUTF8(body); err != nil {
		return nil, err
	}
	next, named, err := f.nextToken(body)
	if err != nil {
		return nil, err
	}
	return &page{lines: lines, next: next, bare: !named}, nil
}

// checkUTF8 returns an error with the place of the first byte that is not UTF-8. JSON has
// to be UTF-8: otherwise programs that read the output could not parse it.
func checkUTF8(body []byte) error {
	for at := 0; at < len(body); {
		r, size := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && size == 1 {
			line := 1 + bytes.Count(body[:at], []byte("\n"))
			return fmt.Errorf("the body is not UTF-8: byte 0x%02x at offset %d (line %d, byte %d of that line); the page was not written: have the upstream send UTF-8",
				body[at], at, line, at-bytes.LastIndexByte(body[:at], '\n'))
		}
		at += size
	}
	return nil
}

// isCut reports whether a body is the beginning of a JSON value. When no header gives the
// body's length, a connection that ends early leaves such a body.
func isCut(body []byte) bool {
	var value json.RawMessage
	var syntax *json.SyntaxError
	err := json.Unmarshal(body, &value)
	return errors.As(err, &syntax) && syntax.Error() == "unexpected end of JSON input"
}

// lines returns what a body adds to the output: the body itself on one line, or each of
// its items on a line.
func (f *Fetch) lines(body []byte) ([]byte, error) {
	var lines bytes.Buffer
	if f.Items == "" {
		if err := json.Compact(&lines, body); err != nil {
			return nil, fmt.Errorf("the body is not JSON: %w", err)
		}
		lines.WriteByte('\n')
		return lines.Bytes(), nil
	}
	found, ok, err := dig(body, f.Items)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("the body has no %q: check items", f.Items)
	}
	var items []json.RawMessage
	if err := json.Unmarshal([]byte(found.Raw), &items); err != nil {
		return nil, fmt.Errorf("%q is not an array: check items", f.Items)
	}
	for _, item := range items {
		if err := json.Compact(&lines, item); err != nil {
			return nil, fmt.Errorf("an item is not JSON: %w", err)
		}
		lines.WriteByte('\n')
	}
	return lines.Bytes(), nil
}

// nextToken returns the token of the next page; empty for the last page. named reports
// whether the body has the field at all.
func (f *Fetch) nextToken(body []byte) (token string, named bool, err error) {
	if f.NextFrom == "" {
		return "", true, nil
	}
	found, ok, err := dig(body, f.NextFrom)
	switch {
	case err != nil:
		return "", false, err
	case !ok, found.Kind == jsonpath.Null, found.Raw == "false":
		return "", ok, nil
	case found.Kind == jsonpath.String, found.Kind == jsonpath.Number:
		return found.Text(), true, nil
	}
	return "", true, fmt.Errorf("%q is neither a string nor a number: check next_page", f.NextFrom)
}

// dig finds the value at a path of a body; false if the body has no such path.
func dig(body []byte, path string) (jsonpath.Value, bool, error) {
	if !json.Valid(body) {
		return jsonpath.Value{}, false, errors.New("the body is not JSON")
	}
	found, ok := jsonpath.Get(string(body), path)
	return found, ok, nil
}

// maxExcerpt is how many characters of an upstream's error are shown. maxSearched is how
// many bytes of it are searched for the secret.
const (
	maxExcerpt  = 200
	maxSearched = 64 << 10
)

// excerpt returns the error message in a body, after a colon; empty if the body has none.
// It takes the secret out before it shortens the text, so that no part of the secret is
// left at the cut. A body that is not whole may end within a secret, so its last bytes
// are dropped.
func (s *secrets) excerpt(body []byte, whole bool, hidden string) string {
	text := string(body)
	for _, path := range []string{"error.message", "message", "error_description", "error", "detail"} {
		found, ok, _ := dig(body, path)
		if ok && found.Kind == jsonpath.String {
			text = found.Text()
			break
		}
		if ok && found.Kind == jsonpath.Null {
			text = ""
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
