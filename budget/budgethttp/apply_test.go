package budgethttp_test

import (
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// upstream is one whose responses say much.
func upstream(t *testing.T) budget.Spec {
	t.Helper()
	day := must.Get(limit.NewCalendar(limit.Day, "UTC", 0))(t)
	retryAfter := []feedback.Source{{Header: "retry-after", As: feedback.AsRetryAfter}}
	return budget.Spec{
		Limits: []limit.Limit{
			{Name: "day", Quota: 1000, Limit: 900, Headroom: 100, Counts: limit.CountUnits, Window: limit.CalendarWindow(day)},
			{Name: "method", Quota: 100, Limit: 100, Counts: limit.CountCalls, Window: limit.RollingWindow(time.Hour), PerOperation: true, Operations: []string{"get"}},
		},
		Costs: map[string]budget.Cost{
			"get": {Units: 10, Actual: []feedback.Source{{Header: "x-cost", As: feedback.AsNumber}, {JSON: "usage", As: feedback.AsNumber}, {JSON: "total", As: feedback.AsNumber}}},
			"put": {Units: 10},
		},
		Feedback: feedback.Rules{
			Free: []int{304},
			Refusals: []feedback.Refusal{
				{Name: "words", Means: feedback.Exhausted, Limit: "day", Condition: feedback.Condition{Text: []string{"per day"}}, Reset: retryAfter},
				{Name: "spent", Means: feedback.Exhausted, Condition: feedback.Condition{Status: []int{403}}, Reset: retryAfter, Lock: 2 * time.Minute},
				{Name: "fast", Means: feedback.Throttled, Limit: "method", Condition: feedback.Condition{Status: []int{429}}, Reset: retryAfter},
				{Name: "down", Means: feedback.Overloaded, Free: true, Condition: feedback.Condition{Status: []int{503}}, Reset: retryAfter},
			},
			Reports: []feedback.Report{
				{Name: "day", Limit: "day", Remaining: &feedback.Source{Header: "x-left", As: feedback.AsNumber}},
				{Name: "method", Limit: "method", Used: &feedback.Source{JSON: "calls", As: feedback.AsNumber}},
			},
		},
	}
}

// given is a response; its header is names and values in turn.
type given struct {
	status int
	body   string
	header []string
}

// apply takes in a response to the receipt's call.
func (s given) apply(t *testing.T, b *budget.Budget, charged budget.Receipt) (budgethttp.Outcome, error) {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(s.header); i += 2 {
		h.Add(s.header[i], s.header[i+1])
	}
	resp := &http.Response{StatusCode: s.status, Header: h}
	if s.body != "" {
		resp.Body = io.NopCloser(strings.NewReader(s.body))
	}
	return budgethttp.Apply(t.Context(), b, charged, resp)
}

// reserve takes the units of a call that is about to be made.
func reserve(t *testing.T, b *budget.Budget, operation string) budget.Receipt {
	t.Helper()
	r := must.Get(b.Reserve(t.Context(), budget.Call{Operation: operation}, time.Hour))(t)
	return r.Receipt
}

func TestApply(t *testing.T) {
	locked := func(rule string, means feedback.Meaning, operation, limit string, until time.Time) *budgethttp.Verdict {
		return &budgethttp.Verdict{Rule: rule, Means: means, Operation: operation, Limit: limit, Until: until}
	}
	unread := func(operation string, what budgethttp.UnreadWhat, rule, place, why string) []budgethttp.Unread {
		return []budgethttp.Unread{{Operation: operation, What: what, Rule: rule, Place: place, Why: why}}
	}
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC() // midnight
		tomorrow := now.Add(24 * time.Hour)
		const damaged = "the body is damaged, or not in the encoding that its header names"
		stream := "data: {\"usage\":1}\n\ndata: {\"usage\":2,\"total\":9}\n\ndata: {\"choices\":[]}\n\n"
		for _, test := range []struct {
			name, operation string
			resp            given
			want            budgethttp.Outcome
		}{
			{"nothing said", "put", given{200, "done", nil}, budgethttp.Outcome{Units: 10}},
			{"no body", "put", given{200, "", nil}, budgethttp.Outcome{Units: 10}},
			{"cost in the header", "get", given{200, `{"usage":7}`, []string{"X-Cost", "3"}}, budgethttp.Outcome{Units: 3}},
			{"cost in the body", "get", given{200, `{"total":8,"usage":7}`, nil}, budgethttp.Outcome{Units: 7}},
			{"cost in the second place", "get", given{200, `{"usage":"?","total":8}`, []string{"X-Cost", "-1"}}, budgethttp.Outcome{Units: 8, Unread: slices.Concat(
				unread("get", budgethttp.UnreadActual, "", "header x-cost", "it is negative"), unread("get", budgethttp.UnreadActual, "", "json usage", "it is not a number"),
			)}},
			{"the largest of several costs", "get", given{200, `{"usage":[5,60,"7"]}`, nil}, budgethttp.Outcome{Units: 60}},
			{
				"cost above what there is", "get", given{200, `{"usage":1000000000000001}`, nil},
				budgethttp.Outcome{Units: 10, Unread: unread("get", budgethttp.UnreadActual, "", "json usage", "it is more than 10^15")},
			},
			{"a part of a unit", "get", given{200, `{"usage":2.5}`, nil}, budgethttp.Outcome{Units: 3}},
			{
				"no cost anywhere", "get", given{200, `{"usage":"many","calls":1}`, nil},
				budgethttp.Outcome{Units: 10, Unread: unread("get", budgethttp.UnreadActual, "", "json usage", "it is not a number")},
			},
			{
				"a damaged body", "get", given{200, `{"usage":2.5}`, []string{"Content-Encoding", "zstd", "X-Left", "?"}},
				budgethttp.Outcome{Units: 10, Unread: append(
					append(unread("get", budgethttp.UnreadActual, "", "", damaged), unread("get", budgethttp.UnreadReport, "method", "", damaged)...),
					unread("get", budgethttp.UnreadReport, "day", "header x-left", "it is not a number")...,
				)},
			},
			{
				"an encoding that is not known", "get", given{200, `{"usage":2.5}`, []string{"Content-Encoding", "compress"}},
				budgethttp.Outcome{Units: 10, Unread: unread("get", budgethttp.UnreadEncoding, "", "", `the encoding "compress" is not gzip, deflate, br or zstd`)},
			},
			{"the last of a stream", "get", given{200, stream, []string{"Content-Type", "text/event-stream"}}, budgethttp.Outcome{Units: 2}},
			{"a body that is encoded", "get", given{200, packed(t, "br", `{"usage":7}`), []string{"Content-Encoding", "br"}}, budgethttp.Outcome{Units: 7}},
			{"not counted", "get", given{304, "", []string{"X-Left", "0"}}, budgethttp.Outcome{Released: true}},
			{
				"refused and not counted", "get", given{503, "", []string{"Retry-After", "5"}},
				budgethttp.Outcome{Released: true, Refused: locked("down", feedback.Overloaded, "get", "", time.Time{})},
			},
			{
				"spent, until the stated reset", "get", given{403, "", []string{"Retry-After", "300"}},
				budgethttp.Outcome{Units: 10, Refused: locked("spent", feedback.Exhausted, "get", "", now.Add(5*time.Minute))},
			},
			{
				"spent, for what the rule says", "get", given{403, "", []string{"Retry-After", "soon"}},
				budgethttp.Outcome{
					Units: 10, Refused: locked("spent", feedback.Exhausted, "get", "", now.Add(2*time.Minute)),
					Unread: unread("get", budgethttp.UnreadRefusal, "spent", "header retry-after", "it is not in the expected form"),
				},
			},
			{
				"spent, until the computed reset", "get", given{403, "limit PER DAY", nil},
				budgethttp.Outcome{Units: 10, Refused: locked("words", feedback.Exhausted, "get", "day", tomorrow)},
			},
			{
				"throttled, of the operation", "get", given{429, "", nil},
				budgethttp.Outcome{Units: 10, Refused: locked("fast", feedback.Throttled, "get", "method:get", now.Add(time.Minute))},
			},
			{
				"the first rule of several documents", "get", given{403, "{}\n{\"why\":\"per day\"}\n", []string{"Content-Type", "application/x-ndjson"}},
				budgethttp.Outcome{Units: 10, Refused: locked("words", feedback.Exhausted, "get", "day", tomorrow)},
			},
			{
				"drift", "get", given{200, `{"calls":5}`, []string{"X-Left", "700"}},
				budgethttp.Outcome{Units: 10, Drifts: []budget.Drift{
					{Limit: "day", Added: 290, Total: 290, Until: tomorrow}, {Limit: "method:get", Added: 4, Total: 4, Until: now.Add(time.Hour)},
				}},
			},
			{
				"spent, with a reset that has passed", "get", given{403, "limit PER DAY", []string{"Retry-After", "0"}},
				budgethttp.Outcome{Units: 10, Refused: locked("words", feedback.Exhausted, "get", "day", now.Add(time.Minute))},
			},
			{
				"spent, with a reset and a rule's lock that have passed", "get", given{403, "", []string{"Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"}},
				budgethttp.Outcome{Units: 10, Refused: locked("spent", feedback.Exhausted, "get", "", now.Add(time.Minute))},
			},
			{
				"spent, for less than a microsecond", "get", given{403, "", []string{"Retry-After", "0.000000001"}},
				budgethttp.Outcome{Units: 10, Refused: locked("spent", feedback.Exhausted, "get", "", now.Add(time.Microsecond))},
			},
			{
				"spent, for two different spans", "get", given{403, "", []string{"Retry-After", "300", "Retry-After", "5"}},
				budgethttp.Outcome{
					Units: 10, Refused: locked("spent", feedback.Exhausted, "get", "", now.Add(2*time.Minute)),
					Unread: unread("get", budgethttp.UnreadRefusal, "spent", "header retry-after", "it is there several times, with different values"),
				},
			},
			{
				"throttled, in a limit that does not count the operation", "put", given{429, "", nil},
				budgethttp.Outcome{Units: 10, Refused: locked("fast", feedback.Throttled, "put", "", time.Time{})},
			},
			{
				"no count", "get", given{200, `{"calls":-1}`, []string{"X-Left", "-1"}},
				budgethttp.Outcome{Units: 10, Unread: append(
					unread("get", budgethttp.UnreadReport, "day", "header x-left", "it is negative"), unread("get", budgethttp.UnreadReport, "method", "json calls", "it is negative")...)},
			},
			{"from a cache, by its mark", "get", given{403, "", []string{"X-Cache", "HIT", "X-Left", "700"}}, budgethttp.Outcome{Units: 10}},
			{"drift of another operation", "put", given{200, `{"calls":5}`, nil}, budgethttp.Outcome{Units: 10}},
			{"from a cache", "get", given{403, "", []string{"Age", "7", "X-Left", "700"}}, budgethttp.Outcome{Units: 10}},
			{
				"of two ages", "get", given{403, "", []string{"Age", "0", "Age", "5", "X-Left", "700", "Retry-After", "300"}},
				budgethttp.Outcome{
					Units: 10, Refused: locked("spent", feedback.Exhausted, "get", "", now.Add(5*time.Minute)), Drifts: []budget.Drift{{Limit: "day", Added: 290, Total: 290, Until: tomorrow}},
					Unread: append(unread("get", budgethttp.UnreadRefusal, "spent", "header Age", "it is there several times, with different values"),
						unread("get", budgethttp.UnreadReport, "day", "header Age", "it is there several times, with different values")...),
				},
			},
			{"of two ages, which do not matter", "get", given{200, "", []string{"Age", "0, 5"}}, budgethttp.Outcome{Units: 10}},
			{"of two ages, from a cache by its mark", "get", given{403, "", []string{"Age", "0, 5", "X-Cache", "HIT"}}, budgethttp.Outcome{Units: 10}},
		} {
			b := open(t, upstream(t))
			got, err := test.resp.apply(t, b, reserve(t, b, test.operation))
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s: %+v (%+v), error %v; want %+v (%+v)", test.name, got, got.Refused, err, test.want, test.want.Refused)
			}
			check.Equal(t, spent(t, b).open, 0, test.name, "… reservations are open")
		}
	})
}

// Taken in again, a response settles and compares nothing more. A lock for a span counts from
// when it is taken in.
func TestApplyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, upstream(t))
		first, second := reserve(t, b, "get"), reserve(t, b, "get")
		for i, receipt := range []budget.Receipt{first, first, second} {
			until := time.Now().Add(5 * time.Minute).UTC()
			got, err := given{403, "", []string{"Retry-After", "300", "X-Left", "700"}}.apply(t, b, receipt)
			if err != nil || got.Refused == nil || !got.Refused.Until.Equal(until) || len(got.Drifts) > 0 != (i == 0) {
				t.Errorf("time %d: %+v, error %v; want a lock until %s, and drift once", i, got, err, until)
			}
			time.Sleep(time.Minute)
		}
		want(t, b, 20+280, 3, 0)
		if _, err := (given{200, "", []string{"X-Cost", "9"}}).apply(t, b, first); !errors.Is(err, budget.ErrConflict) {
			t.Errorf("another response of the same call: error %v, want ErrConflict", err)
		}
	})
}

// A response that comes after the reset is of the day in which it was asked for.
func TestApplyAfterTheReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, upstream(t))
		time.Sleep(24*time.Hour - time.Minute)
		receipt := reserve(t, b, "get")
		time.Sleep(2 * time.Minute)
		got, err := given{403, "per day", []string{"X-Left", "0"}}.apply(t, b, receipt)
		want := budgethttp.Outcome{Units: 10, Refused: &budgethttp.Verdict{Rule: "words", Means: feedback.Exhausted, Operation: "get"}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v (%+v), error %v; want nothing locked, and no drift", got, got.Refused, err)
		}
		check.NoError(t, check.Err(b.Charge(t.Context(), budget.Call{Operation: "get"})), "the new day's first call")
	})
}

// Past its lease a call counts as sent, whatever the response says.
func TestApplyPastTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, upstream(t))
		receipt := reserve(t, b, "get")
		time.Sleep(time.Hour + time.Microsecond)
		if got, err := (given{304, "", nil}).apply(t, b, receipt); err != nil || !reflect.DeepEqual(got, budgethttp.Outcome{Units: 10}) {
			t.Errorf("%+v, error %v; want that it cost 10 units", got, err)
		}
		want(t, b, 10, 1, 0)
	})
}

// A body that breaks off tells nothing: the reservation stays open.
func TestApplyBrokenBody(t *testing.T) {
	b := open(t, upstream(t))
	resp := &http.Response{StatusCode: 403, Header: http.Header{}}
	broken := errors.New("broken pipe")
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"usage":`), iotest.ErrReader(broken)))
	if got, err := budgethttp.Apply(t.Context(), b, reserve(t, b, "get"), resp); !errors.Is(err, broken) {
		t.Errorf("%+v, error %v; want the body's error", got, err)
	}
	want(t, b, 10, 1, 1)
}
