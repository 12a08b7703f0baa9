package config

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/feedback"
)

// headerName is what a header may be called.
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// encodings are those that a value may have, and the one that it has where none
// is given; empty: it must be given.
type encodings struct {
	all       []feedback.Encoding
	otherwise feedback.Encoding
}

// What values are read for.
var (
	amounts = encodings{[]feedback.Encoding{feedback.AsNumber, feedback.AsRateLimit}, feedback.AsNumber}
	actuals = encodings{[]feedback.Encoding{feedback.AsNumber}, feedback.AsNumber}
	resets  = encodings{[]feedback.Encoding{
		feedback.AsEpoch, feedback.AsEpochMilli, feedback.AsSeconds, feedback.AsMinutes, feedback.AsDuration, feedback.AsRFC3339, feedback.AsHTTPDate, feedback.AsRetryAfter, feedback.AsRateLimit,
	}, ""}
)

// readSources reads one place of a value or several.
func readSources(node Node, may encodings) []feedback.Source {
	list := node.Elements()
	if node.Exists() && len(list) == 0 {
		node.Fail("%s is empty: write where the value stands, or take it out", node.Key())
	}
	var sources []feedback.Source
	for _, one := range list {
		if source := readSource(one, may); source != nil {
			sources = append(sources, *source)
		}
	}
	return sources
}

// readSource reads where a value stands; nil when there is none, or something is
// wrong with it.
func readSource(node Node, may encodings) *feedback.Source {
	if !node.Exists() {
		return nil
	}
	before := len(node.doc.errors)
	if !node.IsTable() {
		node.Fail("%s says where the value stands: write { header = \"…\" } or { json = \"…\" }", node.Key())
		return nil
	}
	t := node.Table("header", "json", "as", "item")
	var s feedback.Source
	switch {
	case t["header"].Exists() && t["json"].Exists():
		node.Fail("%s stands in a header and in the body: keep one of header and json", node.Key())
	case !t["header"].Exists() && !t["json"].Exists():
		node.Fail("%s stands nowhere: write { header = \"…\" } or { json = \"…\" }", node.Key())
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
	default:
		source.Fail("%s does not say how it is written, which is never guessed: add as = %s", source.Key(), quoteList(choices))
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
		node.Fail("item is %s: of as = %q it is a policy's name, in quotes", node.typeName(), s.As)
	case s.As == feedback.AsRateLimit:
		s.Item, _ = filled(node)
	case s.JSON != "":
		node.Fail("item belongs to a header: name the element in the path, such as json = \"usage.1\"")
	case s.As == feedback.AsRetryAfter || s.As == feedback.AsHTTPDate:
		node.Fail("item makes no sense with as = %q, whose comma is a date's: take it out", s.As)
	default:
		if n, ok := node.Number(1, 100); ok {
			s.Item = strconv.FormatInt(n, 10)
		}
	}
}

// readHeaderName reads the name of a header. What is none is not shown: it may
// be a secret.
func readHeaderName(node Node) string {
	name, ok := node.Text()
	if ok && !headerName.MatchString(name) {
		node.Fail("header is no header's name: write one such as \"x-ratelimit-remaining\"")
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
		node.Fail("once says what tells uploads or sessions apart: write { query = \"upload_id\" } or { header = \"…\" }")
		return nil
	}
	t := node.Table("query", "header")
	switch {
	case t["query"].Exists() && t["header"].Exists():
		node.Fail("once stands in query and header: keep one")
	case !t["query"].Exists() && !t["header"].Exists():
		node.Fail("once stands nowhere: write { query = \"upload_id\" } or { header = \"…\" }")
	}
	query, _ := filled(t["query"])
	key := feedback.Key{Query: query, Header: readHeaderName(t["header"])}
	if key == (feedback.Key{}) {
		return nil
	}
	return &key
}
