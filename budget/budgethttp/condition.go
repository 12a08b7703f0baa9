package budgethttp

import (
	"net/http"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
)

// anyValue stands for any value in a condition.
const anyValue = "*"

// condition is a [feedback.Condition] prepared for matching.
type condition struct {
	operations limit.Limit // whose filter is the condition's
	status     []int
	header     map[string][]string
	json       map[string][]string
	text       []string // in small letters
}

func newCondition(c feedback.Condition) condition {
	ready := condition{operations: limit.Limit{Operations: c.Operations}, status: c.Status, header: c.Header, json: c.JSON}
	for _, text := range c.Text {
		ready.text = append(ready.text, strings.ToLower(text))
	}
	return ready
}

// looksAtBody reports whether the condition needs the body.
func (c *condition) looksAtBody() bool { return len(c.json) > 0 || len(c.text) > 0 }

// fitsHeader reports whether everything except the body matches.
func (c *condition) fitsHeader(operation string, status int, header http.Header) bool {
	fits, _ := c.matchHeader(operation, status, header)
	return fits
}

// matchHeader is fitsHeader. If all would match but for a header that says several
// numbers, of which the condition wants one, it also returns that header's name.
func (c *condition) matchHeader(operation string, status int, header http.Header) (fits bool, unclear string) {
	if !c.operations.Covers(operation) || len(c.status) > 0 && !slices.Contains(c.status, status) {
		return false, ""
	}
	for name, wanted := range c.header {
		lines := header.Values(name)
		all := elements(lines)
		switch {
		case len(lines) > 0 && slices.Contains(wanted, anyValue):
		case len(lines) == 0 || !slices.ContainsFunc(wanted, func(one string) bool { return hasRun(all, one) }):
			return false, ""
		case sayDifferent(all) && (unclear == "" || name < unclear):
			unclear = name
		}
	}
	return unclear == "", unclear
}

// fitsBody reports whether the body matches. An unknown body matches no condition that
// needs the body.
func (c *condition) fitsBody(body *content) bool {
	for path, wanted := range c.json {
		if !body.hasJSON(path, wanted) {
			return false
		}
	}
	return len(c.text) == 0 || slices.ContainsFunc(c.text, body.hasText)
}
