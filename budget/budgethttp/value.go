package budgethttp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/jsonpath"
)

// maxBody is how much of a body is read, in bytes. A longer JSON document is not read.
const maxBody = 1 << 20

// Why a value in a response could not be read. The errors do not contain the value.
var (
	errNegative  = errors.New("it is negative")
	errTooMuch   = errors.New("it is far above the limit's quota")
	errNoNumber  = errors.New("it is not a number")
	errNoText    = errors.New("it is neither a number nor a text")
	errNoItem    = errors.New("it has no such item")
	errNoInstant = errors.New("it is not in the expected form")
	errFarAway   = errors.New("it is more than 400 days away: is it written in another unit?")
	errNoPolicy  = errors.New("it is no RateLimit field")
)

// content is the parts of a response from which values are read.
type content struct {
	header http.Header
	body   []byte

	partial bool // more of the body may come

	parsed   bool
	document string // the body, if it is a JSON object or array
	lower    string // the body in small letters, once a text is looked for
}

func newContent(header http.Header, body []byte) *content {
	return &content{header: header, body: body[:min(len(body), maxBody)]}
}

// number is the number at s; nil if there is no value. The error says why the value is
// not a number; of several values, one number is enough.
func (c *content) number(s *feedback.Source) (*big.Rat, error) {
	if s.As == feedback.AsRateLimit {
		limit, err := readRateLimit(c.header.Values(s.Header), s.Item)
		if !limit.hasRemaining {
			return nil, err
		}
		return new(big.Rat).SetInt64(limit.remaining), nil
	}
	texts, err := c.texts(s)
	for _, text := range texts {
		if n, ok := limit.ParseDecimal(text); ok {
			return n, nil
		}
		err = errNoNumber
	}
	return nil, err
}

// until is the reset at s; of several values, the first that lies ahead. The error says
// why a value cannot be read.
func (c *content) until(s *feedback.Source, now time.Time) (moment, error) {
	if s.As == feedback.AsRateLimit {
		limit, err := readRateLimit(c.header.Values(s.Header), s.Item)
		if !limit.hasReset {
			return moment{}, err
		}
		return parseUntil(feedback.AsSeconds, strconv.FormatInt(limit.reset, 10), now)
	}
	texts, err := c.texts(s)
	passed := false
	for _, text := range texts {
		until, wrong := parseUntil(s.As, text, now)
		if !until.IsZero() {
			return until, nil
		}
		passed, err = passed || until.passed, cmp.Or(err, wrong)
	}
	return moment{passed: passed}, err
}

// texts are the values at s, as strings. The error is about other values there.
func (c *content) texts(s *feedback.Source) ([]string, error) {
	if s.Header == "" {
		return c.jsonTexts(s.JSON)
	}
	lines := c.header.Values(s.Header)
	if len(lines) == 0 {
		return nil, nil
	}
	if s.Item == "" {
		text, err := single(lines, s.As)
		if err != nil {
			return nil, err
		}
		return []string{text}, nil
	}
	item, err := strconv.Atoi(s.Item)
	items := strings.Split(strings.ReplaceAll(strings.Join(lines, ","), "/", ","), ",")
	if err != nil || item < 1 || item > len(items) {
		return nil, errNoItem
	}
	return items[item-1 : item], nil
}

// jsonTexts are the strings and numbers at a path of the body. The error is about other
// values there; null is ignored.
func (c *content) jsonTexts(path string) (texts []string, err error) {
	for _, value := range c.values(path) {
		switch value.Kind {
		case jsonpath.String, jsonpath.Number:
			texts = append(texts, value.Text())
		case jsonpath.Null:
		default:
			err = errNoText
		}
	}
	return texts, err
}

// values are the values at a path of the body.
func (c *content) values(path string) []jsonpath.Value {
	if path == "" || !c.isJSON() {
		return nil
	}
	return jsonpath.All(c.document, path)
}

// isJSON reports whether the body is a JSON document.
func (c *content) isJSON() bool {
	if !c.parsed {
		c.parsed = true
		c.document = jsonDocument(c.body)
	}
	return c.document != ""
}

// jsonDocument is the body if it is one JSON object or array. The standard library checks
// it, because it bounds the nesting of a document; the look-up does not.
func jsonDocument(body []byte) string {
	body = bytes.TrimPrefix(body, byteOrderMark)
	text := strings.TrimLeft(string(body), " \t\r\n")
	if text == "" || text[0] != '{' && text[0] != '[' || !json.Valid(body) {
		return ""
	}
	return text
}

// hasJSON reports whether one of the wanted values is at a path of the body; "*" is any
// value but null.
func (c *content) hasJSON(path string, wanted []string) bool {
	return slices.ContainsFunc(c.values(path), func(value jsonpath.Value) bool {
		return value.Kind != jsonpath.Null && slices.ContainsFunc(wanted, func(one string) bool {
			return one == anyValue || one == value.Text()
		})
	})
}

// hasText reports whether the body contains a text, which must be in lower case.
func (c *content) hasText(text string) bool {
	if c.lower == "" {
		c.lower = strings.ToLower(string(c.body))
	}
	return strings.Contains(c.lower, text)
}
