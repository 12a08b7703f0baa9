package budgethttp

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
)

// reader reads what responses say about the quota, by the rules of costs.toml. It does
// not use the store, and is safe for concurrent use.
type reader struct {
	free     []int
	refusals []refusal
	reports  []report
}

type refusal struct {
	rule *feedback.Refusal
	condition
}

type report struct {
	rule *feedback.Report
	condition
	quota int64 // of the limit; 0: unknown
}

// facts is what a response says.
type facts struct {
	free    bool              // it is documented as not counted
	refusal *feedback.Refusal // the first that fits; nil: none
	reset   moment            // when to retry, by that rule
	reports []reported
	unread  unreads // values that cannot be read
}

// reported is what a response says of a limit. It has remaining or used, 0 or more.
type reported struct {
	rule      *feedback.Report
	remaining *int64
	used      *int64
	reset     budget.Until // zero: it is not stated
}

// newReader prepares the rules for a budget with the limits. The error is about an invalid
// rule; rules from a configuration are always valid.
func newReader(f feedback.Rules, limits []limit.Limit) (*reader, error) {
	r := &reader{free: f.Free}
	for i := range f.Refusals {
		rule := &f.Refusals[i]
		if err := checkRefusal(rule); err != nil {
			return nil, fmt.Errorf("refusal %s: %w", rule.Name, err)
		}
		r.refusals = append(r.refusals, refusal{rule, newCondition(rule.Condition)})
	}
	for i := range f.Reports {
		rule := &f.Reports[i]
		if err := checkReport(rule); err != nil {
			return nil, fmt.Errorf("report %s: %w", rule.Name, err)
		}
		one := report{rule: rule, condition: newCondition(rule.Condition)}
		if at := slices.IndexFunc(limits, func(l limit.Limit) bool { return l.Name == rule.Limit }); at >= 0 {
			one.quota = limits[at].Quota
		}
		r.reports = append(r.reports, one)
	}
	return r, nil
}

// looksAtBody reports what needs a response's body. ahead: the response, with a status of
// 400 or more, may be a refusal, which must be known before the caller gets it. later: it
// may be a refusal with another status, or have a report; that is known once the caller
// has read the body.
func (r *reader) looksAtBody(operation string, status int, header http.Header) (ahead, later bool) {
	needed := false
	for i := range r.refusals {
		one := &r.refusals[i]
		if !one.fitsHeader(operation, status, header) {
			continue
		}
		needed = needed || one.looksAtBody() || slices.ContainsFunc(one.rule.Reset, inBody)
		if !one.looksAtBody() { // it fits, and those after it do not matter
			break
		}
	}
	ahead, later = needed && status >= http.StatusBadRequest, needed && status < http.StatusBadRequest
	for i := range r.reports {
		one := &r.reports[i]
		later = later || one.needsBody() && one.fitsHeader(operation, status, header)
	}
	return ahead, later
}

// needsBody reports whether a report needs the body, for a value or for its condition.
func (r *report) needsBody() bool {
	needs := r.looksAtBody()
	for _, source := range []*feedback.Source{r.rule.Remaining, r.rule.Used, r.rule.Reset} {
		needs = needs || source != nil && inBody(*source)
	}
	return needs
}

func inBody(s feedback.Source) bool { return s.JSON != "" }

// judge reads everything that a response says. It reads at most maxBody of the body; a
// nil body is unknown. It uses the wall clock only to recognise resets that are past or
// absurd.
func (r *reader) judge(operation string, status int, seen *content) facts {
	now := time.Now()
	t := facts{free: slices.Contains(r.free, status)}
	age := "" // its name, if what follows depends on it and it says different numbers
	if sayDifferent(elements(seen.header.Values("Age"))) {
		age = "Age"
	}
	for i := range r.refusals {
		one := &r.refusals[i]
		if fits, unclear := one.matchHeader(operation, status, seen.header); !fits {
			t.unread.unclear(UnreadRefusal, one.rule.Name, unclear)
			continue
		}
		if !one.fitsBody(seen) {
			if why := one.misfit(status, seen); why != "" {
				t.unread.add(Unread{What: UnreadRefusal, Rule: one.rule.Name, Why: why})
			}
			continue
		}
		t.refusal, t.free = one.rule, t.free || one.rule.Free
		t.unread.unclear(UnreadRefusal, one.rule.Name, age)
		for j := range one.rule.Reset {
			place := &one.rule.Reset[j]
			reset, err := seen.until(place, now)
			if err != nil {
				t.unread.add(Unread{What: UnreadRefusal, Rule: one.rule.Name, Place: placeOf(place), Why: err.Error()})
			}
			if !reset.IsZero() {
				t.reset = reset
				break
			}
			t.reset.passed = t.reset.passed || reset.passed
		}
		break
	}
	for i := range r.reports {
		one := &r.reports[i]
		fits, unclear := one.matchHeader(operation, status, seen.header)
		t.unread.unclear(UnreadReport, one.rule.Name, unclear)
		if !fits || !one.fitsBody(seen) {
			continue
		}
		if read, ok := one.read(seen, now, &t.unread); ok {
			t.reports = append(t.reports, read)
			t.unread.unclear(UnreadReport, one.rule.Name, age)
		}
	}
	return t
}

// misfit is why it is unknown whether a rule matches that needs JSON in the body: the
// body should be JSON and is not. Otherwise it is empty. A successful answer need not be
// JSON, and for a rule of any status, neither need a server's own error page.
func (r *refusal) misfit(status int, seen *content) string {
	text := bytes.TrimSpace(bytes.TrimPrefix(seen.body, byteOrderMark))
	if len(r.json) == 0 || len(text) == 0 || seen.partial || seen.isJSON() ||
		len(r.text) > 0 && !slices.ContainsFunc(r.text, seen.hasText) {
		return ""
	}
	switch begins := (text[0] == '{' || text[0] == '[') && !isSentinel(text); {
	case len(seen.body) == maxBody:
		return whyTooLong
	case begins,
		status >= http.StatusBadRequest && (len(r.status) > 0 || status < http.StatusInternalServerError):
		return whyNoJSON
	}
	return ""
}

// unjudged are the refusals that may match a body that could not be read, for the reason
// why.
func (r *reader) unjudged(operation string, status int, header http.Header, why string) unreads {
	var found unreads
	for i := range r.refusals {
		one := &r.refusals[i]
		switch {
		case !one.fitsHeader(operation, status, header):
		case !one.looksAtBody(): // it fits, and those after it do not matter
			return found
		default:
			found.add(Unread{What: UnreadRefusal, Rule: one.rule.Name, Why: why})
		}
	}
	return found
}

// mostUsed is how often a limit's quota may be used by what a response reports.
const mostUsed = 1000

// read reads a report that matches; false if it has no amount that can be a count, or its
// reset has passed: the units are back. It rounds what remains down, and what is used up.
func (r *report) read(seen *content, now time.Time, unread *unreads) (reported, bool) {
	said := reported{rule: r.rule}
	source, amount, round := r.rule.Remaining, &said.remaining, roundDown
	if source == nil {
		source, amount, round = r.rule.Used, &said.used, roundUp
	}
	misread := func(place *feedback.Source, err error) {
		unread.add(Unread{What: UnreadReport, Rule: r.rule.Name, Place: placeOf(place), Why: err.Error()})
	}
	n, err := seen.number(source)
	if err == nil && n != nil {
		err = r.check(n, source == r.rule.Used)
	}
	switch {
	case err != nil:
		misread(source, err)
		return reported{}, false
	case n == nil:
		return reported{}, false
	}
	whole := round(n)
	*amount = &whole
	if r.rule.Reset == nil {
		return said, true
	}
	reset, err := seen.until(r.rule.Reset, now)
	if err != nil {
		misread(r.rule.Reset, err)
	}
	said.reset = reset.Until
	return said, !reset.passed
}

// check returns why a number cannot be a count: some upstreams send -1, or a huge number,
// to mean that there is no limit.
func (r *report) check(n *big.Rat, used bool) error {
	most := big.NewRat(2, 1)
	if used {
		most.SetInt64(mostUsed)
	}
	switch {
	case n.Sign() < 0:
		return errNegative
	case r.quota > 0 && n.Cmp(most.Mul(most, new(big.Rat).SetInt64(r.quota))) > 0:
		return errTooMuch
	}
	return nil
}

// place is the index of a refusal's rule among all.
func (r *reader) place(rule *feedback.Refusal) int {
	return slices.IndexFunc(r.refusals, func(one refusal) bool { return one.rule == rule })
}

// limitOf is the limit that a report is about.
func (r *reader) limitOf(name string) string {
	i := slices.IndexFunc(r.reports, func(one report) bool { return one.rule.Name == name })
	return r.reports[i].rule.Limit
}

// checkRefusal finds errors in a rule that was not read from a configuration.
func checkRefusal(rule *feedback.Refusal) error {
	switch rule.Means {
	case feedback.Exhausted, feedback.Throttled, feedback.Overloaded:
	default:
		return fmt.Errorf("it means %q: use Exhausted, Throttled or Overloaded", rule.Means)
	}
	for _, source := range rule.Reset {
		if err := checkReset(source); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	return nil
}

// checkReport finds errors in a rule that was not read from a configuration.
func checkReport(rule *feedback.Report) error {
	if (rule.Remaining == nil) == (rule.Used == nil) {
		return errors.New("it needs one of Remaining and Used")
	}
	for _, source := range []*feedback.Source{rule.Remaining, rule.Used} {
		if source == nil {
			continue
		}
		if source.As != feedback.AsNumber && source.As != feedback.AsRateLimit {
			return fmt.Errorf("an amount as %q: use AsNumber or AsRateLimit", source.As)
		}
		if err := checkSource(*source); err != nil {
			return err
		}
	}
	if rule.Reset != nil {
		if err := checkReset(*rule.Reset); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	return nil
}

func checkReset(s feedback.Source) error {
	switch s.As {
	case feedback.AsEpoch, feedback.AsEpochMilli, feedback.AsMilliseconds, feedback.AsSeconds, feedback.AsMinutes, feedback.AsDuration,
		feedback.AsRFC3339, feedback.AsHTTPDate, feedback.AsRetryAfter, feedback.AsRateLimit:
		return checkSource(s)
	}
	return fmt.Errorf("%q is not an encoding of an instant or a span, and encodings are not guessed", s.As)
}

func checkSource(s feedback.Source) error {
	switch item, err := strconv.Atoi(s.Item); {
	case (s.Header == "") == (s.JSON == ""):
		return errors.New("a value is in a Header or in the body's JSON: give one of them")
	case s.As == feedback.AsRateLimit && s.Header == "":
		return errors.New("AsRateLimit is a header's encoding")
	case s.As != feedback.AsRateLimit && s.Item != "" && (err != nil || item < 1):
		return fmt.Errorf("item %q: use a number from 1", s.Item)
	}
	return nil
}
