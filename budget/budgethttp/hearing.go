package budgethttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"unicode"
)

// hearing reads what a response's body says, document by document, while the caller reads
// it.
type hearing struct {
	reader    *reader
	operation string
	status    int
	header    http.Header
	cached    bool                    // it says nothing about the upstream's current state
	covers    func(limit string) bool // whether a limit counts the operation

	cost   *costSaid
	asks   bool  // the body may say what the call cost
	judges bool  // rules look at the body
	before facts // already acted on

	facts  facts // from the documents so far
	heard  bool  // a document
	strays bool  // a document that should be JSON is not
	isJSON bool  // a document is JSON
	how    howEnded
	cut    string // why a document that begins as JSON could not be read; empty: all could
	scan   *scanner
	unpack *unpacker // nil: there is nothing to unpack, or it has not begun
	packed []string  // the body's codings
}

// howEnded is how a body ended.
type howEnded int

const (
	whole   howEnded = iota
	broken           // by an error
	dropped          // its caller closed it before its end
)

// begin prepares it for the body.
func (h *hearing) begin(codings []string) {
	h.packed = codings
	h.scan = newScanner(unrepeated(h.header.Values("Content-Type")), h.document, h.lost)
}

// write reads the next bytes of the body.
func (h *hearing) write(p []byte) {
	switch {
	case len(h.packed) == 0:
		h.scan.write(p)
		return
	case len(p) == 0:
		return
	case h.unpack == nil:
		h.unpack = newUnpacker(h.packed, func(text []byte) bool {
			h.scan.write(text)
			return h.scan.takesMore()
		})
	}
	h.unpack.write(p)
}

// end reads what is left, and returns what could not be read. It is no fault if the body
// of an error or a redirect is not JSON, or is dropped.
func (h *hearing) end(how howEnded) []Unread {
	var damage error
	if h.unpack != nil {
		damage = h.unpack.end()
		if how != whole && !errors.Is(damage, errExpands) { // it is truncated, which is reported below
			damage = nil
		}
	}
	h.how = how
	h.scan.end()
	ofReports := ""
	switch {
	case damage != nil:
		ofReports = damaged(damage)
	case h.scan.passedOver:
		ofReports = whyTooLong
	}
	if damage != nil || how == broken { // what could be read may be damaged too
		h.cost.doubt = true
	}
	ofCost := ofReports
	switch {
	case ofCost != "" || h.status/100 != 2:
	case how == broken:
		ofCost = whyBroken
	case how == dropped:
		ofCost = "the body was not read to its end"
	case h.cut != "" && h.scan.lines:
		ofCost = h.cut
	case (h.strays || h.scan.strays) && !h.isJSON:
		ofCost = whyNoJSON
	}
	if ofReports == "" && how != dropped {
		ofReports = h.cut
	}
	found := append(h.misreadCost(ofCost), h.misreadRules(ofReports)...)
	ofBody := func(one Unread) bool { return one.Place == "" }
	switch {
	case slices.ContainsFunc(found, ofBody):
	case damage != nil:
		found = append(found, Unread{What: UnreadBody, Why: damaged(damage)})
	case how == broken && (h.judges || h.asks):
		found = append(found, Unread{What: UnreadBody, Why: whyBroken})
	}
	return found
}

// misreadCost returns what of the cost could not be read, if no earlier place states it:
// the values at its places, or the body, for the reason why.
func (h *hearing) misreadCost(why string) []Unread {
	_, known := h.cost.known()
	misread := h.cost.misread()
	switch {
	case !h.asks || h.before.free || h.facts.free:
		return nil
	case known && h.cost.inDoubt():
		return slices.Concat(misread, h.cost.missed)
	case len(misread) > 0:
		return misread
	case why != "" && h.cost.inBody():
		return []Unread{{What: UnreadActual, Why: why}}
	}
	return nil
}

// misreadRules returns what could not be read of what the rules need: values, or reports
// in the body, for the reason why.
func (h *hearing) misreadRules(why string) []Unread {
	if h.cached || h.status == http.StatusNotModified { // its reports are not acted on
		return nil
	}
	var found []Unread
	for _, one := range slices.Concat(h.before.unread, h.facts.unread) {
		if one.What != UnreadReport || h.covers(h.reader.limitOf(one.Rule)) {
			found = append(found, one)
		}
	}
	if !h.judges || why == "" {
		return found
	}
	for i := range h.reader.reports {
		one := &h.reader.reports[i]
		known := func(other reported) bool { return other.rule == one.rule }
		if one.needsBody() && one.fitsHeader(h.operation, h.status, h.header) && h.covers(one.rule.Limit) &&
			!slices.ContainsFunc(h.before.reports, known) && !slices.ContainsFunc(h.facts.reports, known) {
			found = append(found, Unread{What: UnreadReport, Rule: one.rule.Name, Why: why})
		}
	}
	return found
}

// know notes whether a document is JSON. One that begins as JSON should be JSON, and so
// should every line of newline-delimited JSON; events may also contain other texts, which
// are not documents.
func (h *hearing) know(document *content) {
	text := bytes.TrimSpace(bytes.TrimPrefix(document.body, byteOrderMark))
	switch {
	case len(text) == 0:
	case document.isJSON():
		h.isJSON = true
	case h.scan.lines && (isSentinel(text) || json.Valid(text)): // a number or a string is a document that says nothing
	case text[0] == '{' || text[0] == '[' || h.scan.lines && !h.scan.event:
		h.strays = true
		h.miss(h.whyNoDocument())
	default:
		h.strays = true
	}
}

// lost notes an unreadable document, which may have contained what rules or costs need.
func (h *hearing) lost(text []byte, why string) {
	document := newContent(h.header, text)
	switch trimmed := bytes.TrimSpace(text); {
	case len(trimmed) == 0: // too long
		h.miss(why)
	case isSentinel(trimmed):
	case document.isJSON():
		if h.cost.tells(document) {
			h.miss(why)
		}
	case trimmed[0] == '{' || trimmed[0] == '[':
		h.strays = true
		h.miss(why)
	default:
		h.strays = true
	}
}

// miss notes that a document could not be read, unless the caller cut the body short.
func (h *hearing) miss(why string) {
	if h.how == dropped {
		return
	}
	if h.asks {
		h.cost.miss(why)
	}
	h.cut = why
	if why == whyTooLong && h.judges && h.before.refusal == nil {
		for _, one := range h.reader.unjudged(h.operation, h.status, h.header, why) {
			h.facts.unread.add(one)
		}
	}
}

func (h *hearing) whyNoDocument() string {
	if h.scan.lines {
		return whyCut
	}
	return whyNoJSON
}

// isSentinel reports whether a text is a mark such as [DONE], with which streams end.
func isSentinel(text []byte) bool {
	inner, opens := bytes.CutPrefix(text, []byte("["))
	inner, closes := bytes.CutSuffix(inner, []byte("]"))
	return opens && closes && len(inner) > 0 && !bytes.ContainsFunc(inner, func(r rune) bool { return !unicode.IsLetter(r) && r != '_' && r != ' ' })
}

// document reads one document of the body: the body itself, an event or a line; nil if
// there is none. If several documents are refusals, the rule that is first in costs.toml
// applies.
func (h *hearing) document(text []byte) {
	h.heard = true
	document := newContent(h.header, text)
	document.partial = h.how == dropped
	h.know(document)
	if h.asks {
		h.cost.document(document)
	}
	if !h.judges {
		return
	}
	t := h.reader.judge(h.operation, h.status, document)
	h.facts.free = h.facts.free || t.free
	if t.refusal != nil && h.before.refusal == nil && (h.facts.refusal == nil || h.reader.place(t.refusal) < h.reader.place(h.facts.refusal)) {
		h.facts.refusal, h.facts.reset = t.refusal, t.reset
	}
	for _, one := range t.unread {
		h.facts.unread.add(one)
	}
	for _, one := range t.reports {
		same := func(other reported) bool { return other.rule == one.rule }
		if slices.ContainsFunc(h.before.reports, same) {
			continue // already acted on
		}
		h.facts.reports = append(slices.DeleteFunc(h.facts.reports, same), one)
	}
}
