package budgethttp

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/quotactl/quotactl/budget"
)

// maxBody is how much of a body is looked at, in bytes. A JSON document that is
// longer is not read.
const maxBody = 1 << 20

// content is what of a response values are read from.
type content struct {
	header http.Header
	body   []byte

	parsed   bool
	document string // the body, where it is a JSON object or array
	lower    string // the body in small letters, once a text is looked for
}

func newContent(header http.Header, body []byte) *content {
	return &content{header: header, body: body[:min(len(body), maxBody)]}
}

// readNumber reads a number of units or calls from where s says; false when there
// is none, or what stands there is no whole number.
func readNumber(s *budget.Source, header http.Header, body []byte) (int64, bool) {
	return newContent(header, body).number(s)
}

// number is the number that s tells.
func (c *content) number(s *budget.Source) (int64, bool) {
	if s.As == budget.AsRateLimit {
		limit, ok := readRateLimit(c.header.Values(s.Header), s.Item)
		return limit.remaining, ok && limit.hasRemaining
	}
	for _, text := range c.texts(s) {
		if n, ok := parseNumber(text); ok {
			return n, true
		}
	}
	return 0, false
}

// until is the instant or span that s tells; zero when it tells none.
func (c *content) until(s *budget.Source, now time.Time) budget.Until {
	if s.As == budget.AsRateLimit {
		limit, ok := readRateLimit(c.header.Values(s.Header), s.Item)
		if !ok || !limit.hasReset {
			return budget.Until{}
		}
		return sane(span(strconv.FormatInt(limit.reset, 10), time.Second), now)
	}
	for _, text := range c.texts(s) {
		if until := parseUntil(s.As, text, now); !until.IsZero() {
			return until
		}
	}
	return budget.Until{}
}

// texts are the values that stand where s says.
func (c *content) texts(s *budget.Source) []string {
	if s.Header == "" {
		return c.jsonTexts(s.JSON)
	}
	// A proxy may send the same line twice; lines that differ are a list.
	lines := c.header.Values(s.Header)
	if s.Item == "" {
		lines = slices.Compact(slices.Clone(lines))
	}
	if len(lines) == 0 {
		return nil
	}
	text := strings.Join(lines, ",")
	if s.Item == "" {
		return []string{text}
	}
	item, err := strconv.Atoi(s.Item)
	items := strings.Split(strings.ReplaceAll(text, "/", ","), ",")
	if err != nil || item < 1 || item > len(items) {
		return nil
	}
	return items[item-1 : item]
}

// jsonTexts are the texts and numbers at a path of the body.
func (c *content) jsonTexts(path string) []string {
	var texts []string
	for _, value := range c.values(path) {
		switch value.Type {
		case gjson.String:
			texts = append(texts, value.Str)
		case gjson.Number:
			texts = append(texts, value.Raw)
		}
	}
	return texts
}

// values are what stands at a path of the body: of an array its elements, as deep
// as the path goes into arrays.
func (c *content) values(path string) []gjson.Result {
	if !c.parsed {
		c.parsed = true
		c.document = jsonDocument(c.body)
	}
	if c.document == "" || path == "" {
		return nil
	}
	return elements(nil, gjson.Get(c.document, path), 1+strings.Count(path, "#"))
}

// elements adds a value, or the elements of an array, to the list.
func elements(list []gjson.Result, value gjson.Result, depth int) []gjson.Result {
	switch {
	case !value.Exists():
	case value.IsArray() && depth > 0:
		for _, element := range value.Array() {
			list = elements(list, element, depth-1)
		}
	default:
		list = append(list, value)
	}
	return list
}

// jsonDocument is the body where it is one JSON object or array. The check is the
// standard library's, which bounds how deep a document goes; gjson's, and its
// look-up in what was not checked, do not.
func jsonDocument(body []byte) string {
	text := strings.TrimLeft(string(body), " \t\r\n")
	if text == "" || text[0] != '{' && text[0] != '[' || !json.Valid(body) {
		return ""
	}
	return text
}

// hasJSON reports whether one of the wanted values stands at a path of the body;
// "*" is any but null.
func (c *content) hasJSON(path string, wanted []string) bool {
	return slices.ContainsFunc(c.values(path), func(value gjson.Result) bool {
		return value.Type != gjson.Null && slices.ContainsFunc(wanted, func(one string) bool {
			return one == anyValue || one == jsonText(value)
		})
	})
}

// jsonText is a value as a condition writes it.
func jsonText(value gjson.Result) string {
	if value.Type == gjson.String {
		return value.Str
	}
	return value.Raw
}

// hasText reports whether the body holds a text, which is in small letters.
func (c *content) hasText(text string) bool {
	if c.lower == "" {
		c.lower = strings.ToLower(string(c.body))
	}
	return strings.Contains(c.lower, text)
}
