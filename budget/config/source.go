package config

import (
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/feedback"
)

// headerName matches a header's name.
var headerName = lazily("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// encodings are the encodings that a value may have, and the default; an empty default
// means that the encoding must be given.
type encodings struct {
	all       []feedback.Encoding
	otherwise feedback.Encoding
}

// The encodings of amounts, actual costs and resets.
var (
	amounts = encodings{[]feedback.Encoding{feedback.AsNumber, feedback.AsRateLimit}, feedback.AsNumber}
	actuals = encodings{[]feedback.Encoding{feedback.AsNumber}, feedback.AsNumber}
	resets  = encodings{[]feedback.Encoding{
		feedback.AsEpoch, feedback.AsEpochMilli, feedback.AsMilliseconds, feedback.AsSeconds, feedback.AsMinutes, feedback.AsDuration,
		feedback.AsRFC3339, feedback.AsHTTPDate, feedback.AsRetryAfter, feedback.AsRateLimit,
	}, ""}
)

// readSources reads one or several places of a value.
func readSources(node Node, may encodings) []feedback.Source {
	list := node.Elements()
	if node.Exists() && len(list) == 0 {
		node.Fail("%s is empty: write where the value is, or take it out", node.Key())
	}
	var sources []feedback.Source
	for _, one := range list {
		if source := readSource(one, may); source != nil {
			sources = append(sources, *source)
		}
	}
	return sources
}

// readSource reads where a value is; nil if it is not given, or has an error.
func readSource(node Node, may encodings) *feedback.Source {
	if !node.Exists() {
		return nil
	}
	before := len(node.doc.errors)
	if !node.IsTable() {
		node.Fail("%s must say where the value is: write { header = \"…\" } or { json = \"…\" }", node.Key())
		return nil
	}
	t := node.Table("header", "json", "as", "item")
	var s feedback.Source
	switch {
	case t["header"].Exists() && t["json"].Exists():
		node.Fail("%s names both a header and a place in the body: keep header or json", node.Key())
	case !t["header"].Exists() && !t["json"].Exists():
		node.Fail("%s names no place: write { header = \"…\" } or { json = \"…\" }", node.Key())
	}
	s.Header = readHeaderName(t["header"])
	s.JSON, _ = t["json"].JSONPath()
	readEncoding(&s, node, t["as"], may)
	if len(node.doc.errors) == before {
		readItem(&s, t["item"])
	}
	if len(node.doc.errors) > before {
		return nil
	}
	return &s
}

// readEncoding reads as.
func readEncoding(s *feedback.Source, source, node Node, may encodings) {
	choices := make([]string, len(may.all))
	for i, e := range may.all {
		choices[i] = string(e)
	}
	s.As = may.otherwise
	switch as, ok := node.OneOf(choices...); {
	case ok:
		s.As = feedback.Encoding(as)
	case node.Exists() || s.As != "":
	case strings.EqualFold(s.Header, "Retry-After"):
		s.As = feedback.AsRetryAfter
	case strings.EqualFold(s.Header, "Retry-After-Ms"):
		s.As = feedback.AsMilliseconds
	default:
		source.Fail("%s does not say how the value is written, and it is never guessed: add as = %s", source.Key(), quoteList(choices))
	}
	if s.As == feedback.AsRateLimit && s.JSON != "" {
		node.Fail("as = %q is a header's encoding: write header = \"RateLimit\" instead of json", s.As)
	}
}

// readItem reads which value of several is meant.
func readItem(s *feedback.Source, node Node) {
	switch {
	case !node.Exists():
	case s.As == feedback.AsRateLimit && !node.IsText():
		node.Fail("item is %s: with as = %q it is a policy's name, in quotes", node.typeName(), s.As)
	case s.As == feedback.AsRateLimit:
		s.Item, _ = filled(node)
	case s.JSON != "":
		node.Fail("item is for headers: name the element in the path, such as json = \"usage.1\"")
	case s.As == feedback.AsRetryAfter || s.As == feedback.AsHTTPDate:
		node.Fail("item makes no sense with as = %q, where the comma belongs to the date: take it out", s.As)
	default:
		if n, ok := node.Number(1, 100); ok {
			s.Item = strconv.FormatInt(n, 10)
		}
	}
}

// readHeaderName reads the name of a header. An invalid one is not shown: it may be a
// secret.
func readHeaderName(node Node) string {
	name, ok := node.Text()
	if ok && !headerName().MatchString(name) {
		node.Fail("header is not a header name: write one such as \"x-ratelimit-remaining\"")
		return ""
	}
	return name
}

// readOnce reads what makes several requests one charge.
func readOnce(node Node) *feedback.Key {
	if !node.Exists() {
		return nil
	}
	if !node.IsTable() {
		node.Fail("once must say what tells uploads or sessions apart: write { query = \"upload_id\" } or { header = \"…\" }")
		return nil
	}
	t := node.Table("query", "header")
	switch {
	case t["query"].Exists() && t["header"].Exists():
		node.Fail("once names both query and header: keep one")
	case !t["query"].Exists() && !t["header"].Exists():
		node.Fail("once names no place: write { query = \"upload_id\" } or { header = \"…\" }")
	}
	query, _ := filled(t["query"])
	key := feedback.Key{Query: query, Header: readHeaderName(t["header"])}
	if key == (feedback.Key{}) {
		return nil
	}
	return &key
}
