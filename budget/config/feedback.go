package config

import (
	"slices"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/jsonpath"
	"github.com/quotactl/quotactl/internal/suggest"
)

// How long a refusal may lock, and how long it locks if no reset is stated or computed.
const (
	minLock     = time.Second
	maxLock     = 31 * 24 * time.Hour
	defaultLock = time.Minute
)

// The statuses that a response may have: HTTP defines none above 599, but some upstreams
// send them.
const (
	minStatus = 100
	maxStatus = 999
)

// readMode reads mode; true for "observe".
func readMode(node Node) bool {
	mode, _ := node.OneOf("enforce", "observe")
	return mode == "observe"
}

// feedbackReader reads the tables on what an upstream's responses say. names holds the
// names of all limits, also of those that could not be read.
type feedbackReader struct {
	upstream *Upstream
	names    []string
}

// read reads the tables of an upstream into its Feedback.
func (f *feedbackReader) read(t map[string]Node) {
	f.upstream.Feedback.Free = readStatuses(t["free_statuses"])
	var nodes []Node
	for _, node := range t["refusal"].List() {
		before := len(node.doc.errors)
		if rule := f.readRefusal(node); len(node.doc.errors) == before {
			f.upstream.Feedback.Refusals = append(f.upstream.Feedback.Refusals, rule)
			nodes = append(nodes, node)
		}
	}
	warnRefusals(f.upstream, nodes)
	for _, node := range t["report"].List() {
		before := len(node.doc.errors)
		if rule := f.readReport(node); len(node.doc.errors) == before {
			f.upstream.Feedback.Reports = append(f.upstream.Feedback.Reports, rule)
		}
	}
}

// readRefusal reads one rule and adds its errors to the list.
func (f *feedbackReader) readRefusal(node Node) feedback.Refusal {
	r := feedback.Refusal{Name: node.Key()}
	checkName(node, "refusal")
	if !node.IsTable() {
		node.List() // adds the error
		return r
	}
	t := node.Table("means", "status", "header", "json", "text", "operations", "limit", "reset", "lock", "longest", "free")
	means, ok := t["means"].OneOf(string(feedback.Exhausted), string(feedback.Throttled), string(feedback.Overloaded))
	if r.Means = feedback.Meaning(means); !t["means"].Exists() {
		node.Fail("refusal %s does not say what it means: write means = %s", r.Name, quoteList([]string{string(feedback.Exhausted), string(feedback.Throttled), string(feedback.Overloaded)}))
	}
	r.Condition = f.readCondition(t)
	if !t["status"].Exists() && !t["header"].Exists() && !t["json"].Exists() && !t["text"].Exists() {
		node.Fail("refusal %s has no condition, so it would match every response: write status, header, json or text", r.Name)
	}
	r.Limit = f.readLimitName(t["limit"])
	r.Reset = readSources(t["reset"], resets)
	r.Free, _ = t["free"].Bool()
	r.Lock = defaultLock
	if lock, isSpan := t["lock"].Duration(minLock, maxLock); isSpan {
		r.Lock = lock
	}
	r.Longest, _ = t["longest"].Duration(defaultLock, maxLock)
	if ok && r.Means == feedback.Overloaded {
		r.Lock = 0
		for _, key := range []string{"limit", "reset", "lock", "longest"} {
			if t[key].Exists() {
				t[key].Fail("%s is for exhausted and throttled only: means = %q locks nothing; take it out", key, feedback.Overloaded)
			}
		}
	}
	f.checkCut(t, &r)
	if r.Means == feedback.Exhausted && !t["reset"].Exists() && !t["lock"].Exists() && t["limit"].Exists() == (r.Limit != "") && !f.isCalendar(r.Limit) {
		node.Warn("refusal %s states no reset and names no limit with a calendar: it locks for %s at a time; write reset, limit or lock", r.Name, limit.SpanText(defaultLock))
	}
	return r
}

// checkCut refuses a lock that is longer than its rule may lock.
func (f *feedbackReader) checkCut(t map[string]Node, r *feedback.Refusal) {
	longest := r.Longest
	switch {
	case longest > 0:
	case t["longest"].Exists() || len(f.upstream.Limits) < len(f.names):
		return // it could not be read, or a limit could not
	default:
		longest = budget.LongestLock(f.upstream.Limits, r.Limit)
	}
	if r.Lock <= longest {
		return
	}
	t["lock"].Fail("refusal %s locks for at most %s, so lock = %q would be cut: write longest = %q", r.Name, limit.SpanText(longest), limit.SpanText(r.Lock), limit.SpanText(r.Lock))
}

// readReport reads one rule and adds its errors to the list.
func (f *feedbackReader) readReport(node Node) feedback.Report {
	r := feedback.Report{Name: node.Key()}
	checkName(node, "report")
	if !node.IsTable() {
		node.List() // adds the error
		return r
	}
	t := node.Table("limit", "status", "header", "json", "text", "operations", "remaining", "used", "reset")
	r.Condition = f.readCondition(t)
	r.Limit = f.readLimitName(t["limit"])
	switch l, known := f.limit(r.Limit); {
	case !t["limit"].Exists():
		node.Fail("report %s names no limit: write limit = \"…\"", r.Name)
	case known && l.Window.Kind == limit.Concurrent:
		t["limit"].Fail("limit %s counts open reservations, and no upstream reports how many are left: name another", l.Name)
	case known && l.Quota == 0:
		t["limit"].Fail("limit %s has no quota to compare the report with: write quota, with headroom, instead of limit", l.Name)
	}
	switch {
	case t["remaining"].Exists() && t["used"].Exists():
		t["used"].Fail("remaining and used are both given: keep one")
	case !t["remaining"].Exists() && !t["used"].Exists():
		node.Fail("report %s reads nothing: write remaining = { header = \"…\" }, or used", r.Name)
	}
	r.Remaining = readSource(t["remaining"], amounts)
	r.Used = readSource(t["used"], amounts)
	if r.Used != nil && r.Used.As == feedback.AsRateLimit {
		t["used"].Fail("as = %q says what remains: write remaining instead of used", feedback.AsRateLimit)
	}
	r.Reset = readSource(t["reset"], resets)
	return r
}

// readCondition reads which responses a rule matches.
func (f *feedbackReader) readCondition(t map[string]Node) feedback.Condition {
	c := feedback.Condition{Operations: readOperations(t["operations"], *f.upstream), Status: readStatuses(t["status"])}
	c.Header = readValues(t["header"], func(node Node) bool {
		if headerName().MatchString(node.Key()) {
			return true
		}
		node.Fail("header: %q is not a header name: write one such as \"x-ratelimit-remaining\"", node.Key())
		return false
	})
	c.JSON = readValues(t["json"], func(node Node) bool {
		err := jsonpath.Check(node.Key())
		if err != nil {
			node.Fail("json: %v", err)
		}
		return err == nil
	})
	c.Text, _ = t["text"].SomeTexts()
	return c
}

// readValues reads a table of strings. checkKey reports whether a key is valid, and adds
// an error if not.
func readValues(node Node, checkKey func(Node) bool) map[string][]string {
	if !node.Exists() {
		return nil
	}
	list := node.List()
	if node.IsTable() && len(list) == 0 {
		node.Fail("%s is empty: write { \"…\" = \"…\" }, or take it out", node.Key())
	}
	values := map[string][]string{}
	for _, child := range list {
		texts, ok := child.SomeTexts()
		if checkKey(child) && ok {
			values[child.Key()] = texts
		}
	}
	return values
}

// readStatuses reads one status or several.
func readStatuses(node Node) []int {
	numbers, _ := node.SomeNumbers(minStatus, maxStatus)
	var statuses []int
	for _, n := range numbers {
		statuses = append(statuses, int(n))
	}
	return statuses
}

// readLimitName reads the name of an existing limit.
func (f *feedbackReader) readLimitName(node Node) string {
	name, ok := node.Text()
	if ok && len(f.names) > 0 && !slices.Contains(f.names, name) {
		node.Fail("limit = %q: upstream %s has no such limit; use %s%s", name, f.upstream.Name, quoteList(f.names), suggest.DidYouMean(name, slices.Clone(f.names)))
		return ""
	}
	return name
}

// limit returns a limit by its name; false if it could not be read.
func (f *feedbackReader) limit(name string) (limit.Limit, bool) {
	i := slices.IndexFunc(f.upstream.Limits, func(l limit.Limit) bool { return l.Name == name })
	if i < 0 {
		return limit.Limit{}, false
	}
	return f.upstream.Limits[i], true
}

// isCalendar reports whether a limit has a calendar, so that its next reset can be
// computed. It also returns true for a limit that could not be read.
func (f *feedbackReader) isCalendar(name string) bool {
	l, known := f.limit(name)
	return name != "" && (!known || l.Window.Kind == limit.CalendarKind)
}
