package budgethttp_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// told is an upstream's answers, one after the other.
type said struct {
	status int
	header map[string]string
	body   string
}

// upstreamSays is a client of an upstream that answers so, and its budget.
func upstreamSays(t *testing.T, spec budget.Spec, o budgethttp.Options, answers ...said) (*budget.Budget, *http.Client) {
	t.Helper()
	next := 0
	o.Base = serve(t, func(w http.ResponseWriter, _ *http.Request) {
		a := answers[next]
		next++
		for name, value := range a.header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	})
	b := open(t, spec)
	if o.Operation == "" {
		o.Operation = "read"
	}
	return b, &http.Client{Transport: meter(t, b, o)}
}

func locks(t *testing.T, b *budget.Budget) []budget.Lock {
	t.Helper()
	s := must.Get(b.Status(t.Context()))(t)
	return s.Locks
}

func dayIn(t *testing.T, zone string) limit.Window {
	t.Helper()
	c := must.Get(limit.NewCalendar(limit.Day, zone, 0))(t)
	return limit.CalendarWindow(c)
}

// What is locked by a refusal, and until when.
func TestRefusalsLock(t *testing.T) {
	epoch := []feedback.Source{{Header: "Retry-After", As: feedback.AsRetryAfter}, {Header: "X-Reset", As: feedback.AsEpoch}}
	for name, c := range map[string]struct {
		rule  feedback.Refusal
		said  said
		limit string
		after time.Duration // of the lock; 0: none
		free  bool
	}{
		"stated reset":           {feedback.Refusal{Means: feedback.Exhausted, Reset: epoch}, said{status: 403, header: map[string]string{"X-Reset": "946688400"}}, "", time.Hour, false},
		"the first stated":       {feedback.Refusal{Means: feedback.Exhausted, Reset: epoch}, said{status: 403, header: map[string]string{"X-Reset": "946688400", "Retry-After": "30"}}, "", 30 * time.Second, false},
		"a limit's":              {feedback.Refusal{Means: feedback.Exhausted, Reset: epoch, Limit: "hourly"}, said{status: 403, header: map[string]string{"Retry-After": "30"}}, "hourly", 30 * time.Second, false},
		"computed":               {feedback.Refusal{Means: feedback.Exhausted, Limit: "day", Lock: time.Minute}, said{status: 403}, "day", 8 * time.Hour, false},
		"one for each operation": {feedback.Refusal{Means: feedback.Exhausted, Limit: "each", Lock: time.Minute}, said{status: 403}, "each:read", 8 * time.Hour, false},
		"throttled, stated":      {feedback.Refusal{Means: feedback.Throttled, Reset: epoch, Limit: "day"}, said{status: 429, header: map[string]string{"Retry-After": "7"}}, "day", 7 * time.Second, false},
		"throttled, not stated":  {feedback.Refusal{Means: feedback.Throttled, Limit: "day", Lock: 5 * time.Second}, said{status: 429}, "day", 5 * time.Second, false},
		"by hand, no span":       {feedback.Refusal{Means: feedback.Throttled}, said{status: 429}, "", time.Minute, false},
		"exhausted, no calendar": {feedback.Refusal{Means: feedback.Exhausted, Limit: "hourly", Lock: 2 * time.Minute}, said{status: 403}, "hourly", 2 * time.Minute, false},
		"overloaded":             {feedback.Refusal{Means: feedback.Overloaded, Reset: epoch}, said{status: 503, header: map[string]string{"Retry-After": "7"}}, "", 0, false},
		"a status above 599":     {feedback.Refusal{Means: feedback.Throttled, Lock: 5 * time.Second, Condition: feedback.Condition{Status: []int{999}}}, said{status: 999}, "", 5 * time.Second, false},
		"from a cache":           {feedback.Refusal{Means: feedback.Exhausted, Reset: epoch}, said{status: 403, header: map[string]string{"Retry-After": "30", "Age": "7"}}, "", 0, false},
		"free":                   {feedback.Refusal{Means: feedback.Overloaded, Free: true}, said{status: 503}, "", 0, true},
		"in the body": {feedback.Refusal{Means: feedback.Throttled, Lock: 5 * time.Second, Condition: feedback.Condition{JSON: map[string][]string{"errors.#.type": {"RATE_LIMITED"}}}},
			said{status: 400, body: `{"errors":[{"type":"RATE_LIMITED"}]}`}, "", 5 * time.Second, false},
		"in the body of a success": {feedback.Refusal{Means: feedback.Throttled, Free: true, Lock: 5 * time.Second, Condition: feedback.Condition{JSON: map[string][]string{"errors.#.type": {"RATE_LIMITED"}}}},
			said{status: 200, body: `{"errors":[{"type":"RATE_LIMITED"}]}`}, "", 5 * time.Second, true},
		"a text": {feedback.Refusal{Means: feedback.Throttled, Lock: 5 * time.Second, Condition: feedback.Condition{Text: []string{"too fast"}}},
			said{status: 400, body: "You are TOO FAST " + strings.Repeat(".", 100<<10)}, "", 5 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.rule.Name = "rule"
				o := &observer{}
				b, client := upstreamSays(t, budget.Spec{
					Limits: []limit.Limit{
						hourly(100),
						{Name: "day", Limit: 100, Counts: limit.CountUnits, Window: dayIn(t, "America/Los_Angeles")},
						{Name: "each", Limit: 100, Counts: limit.CountUnits, Window: dayIn(t, "America/Los_Angeles"), PerOperation: true},
					},
					Costs:    map[string]budget.Cost{"read": {Units: 5}},
					Feedback: feedback.Rules{Refusals: []feedback.Refusal{c.rule}},
				}, budgethttp.Options{Observer: o}, c.said)
				start := time.Now()
				resp := fetch(t, client, "http://upstream")
				if told, ok := budgethttp.VerdictOf(resp); ok != (c.said.status != 200) || ok && told.Rule != "rule" {
					t.Errorf("before the body: %+v, %v", told, ok)
				}
				readAll(t, resp, c.said.body)
				_ = resp.Body.Close()
				verdict := budgethttp.Verdict{Rule: "rule", Means: c.rule.Means, Operation: "read", Limit: c.limit, Cached: c.said.header["Age"] != ""}
				stand := locks(t, b)
				if c.after == 0 {
					check.Equal(t, len(stand), 0, "locked", stand)
				} else {
					verdict.Until = start.Add(c.after).UTC()
					if len(stand) != 1 || stand[0].Limit != c.limit || !stand[0].Until.Equal(verdict.Until) || stand[0].Why != fmt.Sprintf("rule: %d", c.said.status) {
						t.Errorf("locked: %+v, want %s until %s", stand, c.limit, verdict.Until)
					}
					_, err := client.Get("http://upstream") //nolint:bodyclose // there is none
					check.Is(t, err, budget.ErrLocked, "while it is locked")
				}
				if told, ok := budgethttp.VerdictOf(resp); !ok || told != verdict {
					t.Errorf("told %+v, want %+v", told, verdict)
				}
				if len(o.verdicts) != 1 || o.verdicts[0] != verdict {
					t.Errorf("the observer saw %+v, want %+v", o.verdicts, verdict)
				}
				if l := spent(t, b); (l.units == 0) != c.free || l.open != 0 {
					t.Errorf("the ledger holds %+v", l)
				}
				o.check(t)
			})
		})
	}
}

// What was asked before a reset and refused after it locks nothing for another day.
func TestARefusalAcrossAResetLocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24*time.Hour - time.Second) // to a second before midnight
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(2 * time.Second)
			w.WriteHeader(403)
		})
		b := open(t, budget.Spec{
			Limits:   []limit.Limit{{Name: "day", Limit: 100, Counts: limit.CountUnits, Window: dayIn(t, "UTC")}},
			Costs:    map[string]budget.Cost{"read": {Units: 5}},
			Feedback: feedback.Rules{Refusals: []feedback.Refusal{{Name: "rule", Means: feedback.Exhausted, Limit: "day"}}},
		})
		client := &http.Client{Transport: meter(t, b, budgethttp.Options{Base: base, Operation: "read"})}
		resp, _ := get(t, client, "http://upstream") //nolint:bodyclose // get closes it
		if told, ok := budgethttp.VerdictOf(resp); !ok || !told.Until.IsZero() || len(locks(t, b)) != 0 {
			t.Errorf("%+v, locked %+v", told, locks(t, b))
		}
	})
}

// What the upstream reports brings what remains down, unless the response comes from
// a cache.
func TestReports(t *testing.T) {
	remaining := func(more map[string]string) map[string]string {
		header := map[string]string{"X-Remaining": "60"}
		for name, value := range more {
			header[name] = value
		}
		return header
	}
	cost := map[string]budget.Cost{"read": {Units: 5}, "ask": {Units: 50, Actual: []feedback.Source{{JSON: "cost", As: feedback.AsNumber}, {Header: "X-Cost", As: feedback.AsNumber}}}}
	for name, c := range map[string]struct {
		operation string
		said      said
		left      int64 // of 100
	}{
		"header":            {"read", said{200, remaining(nil), "body"}, 60},
		"of a failure":      {"read", said{500, remaining(nil), "body"}, 60},
		"not below ours":    {"read", said{200, map[string]string{"X-Remaining": "95"}, ""}, 95},
		"never up":          {"read", said{200, map[string]string{"X-Remaining": "100"}, ""}, 95},
		"malformed":         {"read", said{200, map[string]string{"X-Remaining": "many"}, ""}, 95},
		"aged":              {"read", said{200, remaining(map[string]string{"Age": "1"}), ""}, 95},
		"just stored":       {"read", said{200, remaining(map[string]string{"Age": "0"}), ""}, 60},
		"of a client cache": {"read", said{200, remaining(map[string]string{"X-From-Cache": "1"}), ""}, 95},
		"not modified":      {"read", said{304, remaining(nil), ""}, 95},
		"body":              {"read", said{200, nil, `{"quota":{"remaining":55}}`}, 55},
		"body of a failure": {"read", said{400, nil, `{"quota":{"remaining":55}}`}, 55},
		// The upstream counted 50 when it reported; ours still did too.
		"before it is settled":           {"ask", said{200, map[string]string{"X-Remaining": "50"}, `{"cost":10}`}, 90},
		"before it is settled by header": {"ask", said{200, map[string]string{"X-Remaining": "50", "X-Cost": "10"}, ""}, 90},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &observer{}
				b, client := upstreamSays(t, budget.Spec{
					Limits: []limit.Limit{hourly(100)}, Costs: cost,
					Feedback: feedback.Rules{Reports: []feedback.Report{
						{Name: "header", Limit: "hourly", Remaining: &feedback.Source{Header: "X-Remaining", As: feedback.AsNumber}},
						{Name: "body", Limit: "hourly", Remaining: &feedback.Source{JSON: "quota.remaining", As: feedback.AsNumber}},
					}},
				}, budgethttp.Options{Observer: o, Operation: c.operation}, c.said)
				read(t, client, "http://upstream")
				s := must.Get(b.Status(t.Context()))(t)
				if left := s.Limits[0].Remaining; left != c.left {
					t.Errorf("%d left, want %d", left, c.left)
				}
				drift := int64(0)
				for _, d := range o.drifts {
					drift += d.Added
				}
				check.Equal(t, s.Limits[0].Drift, drift, "the observer saw", o.drifts, "and")
				check.Equal(t, len(o.verdicts), 0, "the observer saw", o.drifts, "and")
				o.check(t)
			})
		})
	}
}

// A base that answers without a connection, once it has reported some, answers from
// a cache.
func TestResponsesWithoutAConnectionAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := serve(t, func(http.ResponseWriter, *http.Request) {})
		cached := func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 403, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		}
		spec := budget.Spec{
			Costs:    map[string]budget.Cost{"read": {Units: 5}},
			Feedback: feedback.Rules{Refusals: []feedback.Refusal{{Name: "rule", Means: feedback.Throttled, Condition: feedback.Condition{Status: []int{403}}}}},
		}
		for _, traced := range []bool{true, false} {
			b := open(t, spec)
			client := &http.Client{Transport: meter(t, b, budgethttp.Options{Operation: "read", Base: roundTrip(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/cached" {
					return cached(req)
				}
				return plain.RoundTrip(req)
			})})}
			if traced {
				read(t, client, "http://upstream/")
			}
			read(t, client, "http://upstream/cached")
			if locked := len(locks(t, b)) > 0; locked == traced {
				t.Errorf("a base that has reported connections: %v; locked: %v", traced, locked)
			}
		}
	})
}

// A report about a limit that does not count the operation is left out, and the one after
// it is compared. The observer sees only what a report adds.
func TestReportsBesideOneOfAnotherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		number := func(header string) *feedback.Source { return &feedback.Source{Header: header, As: feedback.AsNumber} }
		other := hourly(100)
		other.Name, other.Operations = "other", []string{"put"}
		o := &observer{}
		header := map[string]string{"X-Other": "10", "X-Remaining": "60"}
		b, client := upstreamSays(t, budget.Spec{
			Limits: []limit.Limit{hourly(100), other}, Costs: map[string]budget.Cost{"read": {Units: 5}},
			Feedback: feedback.Rules{Reports: []feedback.Report{
				{Name: "other", Limit: "other", Remaining: number("X-Other")},
				{Name: "hourly", Limit: "hourly", Remaining: number("X-Remaining")},
			}},
		}, budgethttp.Options{Observer: o}, said{200, header, ""}, said{200, map[string]string{"X-Remaining": "99"}, ""})
		read(t, client, "http://upstream")
		check.Equal(t, must.Get(b.Status(t.Context()))(t).Limits[0].Remaining, 60, "left of the hour")
		read(t, client, "http://upstream")
		check.Equal(t, len(o.drifts), 1, "reports that the observer saw", o.drifts)
	})
}

// The report in the header was acted on before the body comes; a report in the body is
// compared nevertheless.
func TestReportsOfHeaderAndBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := limit.Limit{Name: "calls", Quota: 100, Limit: 100, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Hour)}
		b, client := upstreamSays(t, budget.Spec{
			Limits: []limit.Limit{hourly(100), calls}, Costs: map[string]budget.Cost{"read": {Units: 5}},
			Feedback: feedback.Rules{Reports: []feedback.Report{
				{Name: "header", Limit: "hourly", Remaining: &feedback.Source{Header: "X-Remaining", As: feedback.AsNumber}},
				{Name: "body", Limit: "calls", Remaining: &feedback.Source{JSON: "remaining", As: feedback.AsNumber}},
			}},
		}, budgethttp.Options{}, said{200, map[string]string{"X-Remaining": "60"}, `{"remaining":70}`})
		read(t, client, "http://upstream")
		s := must.Get(b.Status(t.Context()))(t)
		check.Equal(t, s.Limits[0].Remaining, 60, "units left")
		check.Equal(t, s.Limits[1].Remaining, 70, "calls left")
	})
}

// If two documents of a body are refusals by the same rule, the first one's reset counts.
func TestRefusalsByOneRuleInSeveralDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := upstreamSays(t, budget.Spec{
			Costs: map[string]budget.Cost{"read": {Units: 5}},
			Feedback: feedback.Rules{Refusals: []feedback.Refusal{{
				Name: "rule", Means: feedback.Throttled, Condition: feedback.Condition{JSON: map[string][]string{"error": {"slow"}}},
				Reset: []feedback.Source{{JSON: "after", As: feedback.AsSeconds}},
			}}},
		}, budgethttp.Options{}, said{200, map[string]string{"Content-Type": "application/x-ndjson"}, "{\"error\":\"slow\",\"after\":60}\n{\"error\":\"slow\",\"after\":90}\n"})
		read(t, client, "http://upstream")
		list := locks(t, b)
		must.Equal(t, len(list), 1, "locks")
		check.Equal(t, time.Until(list[0].Until), time.Minute, "locked for")
	})
}
