package budgethttp

import (
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// makeHeader makes a header of names and values in turn.
func makeHeader(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// readNumber is the whole number that stands at a place; false where none does.
func readNumber(s *feedback.Source, header http.Header, body []byte) (int64, bool) {
	n, err := newContent(header, body).number(s)
	if err != nil || n == nil {
		return 0, false
	}
	return roundDown(n), true
}

// newTestReader is a reader for limits with a quota of 5,000.
func newTestReader(t testing.TB, f feedback.Rules) *reader {
	t.Helper()
	return must.Get(newReader(f, []limit.Limit{{Name: "core", Quota: 5000}, {Name: "graphql", Quota: 5000}}))(t)
}

// Bodies in the shapes that the pages named document.
const (
	// developers.google.com/youtube/v3/docs/errors
	youtubeSpent = `{"error":{"code":403,"message":"The request cannot be completed because you have exceeded your <a href=\"/youtube/v3/getting-started#quota\">quota</a>.",` +
		`"errors":[{"message":"The request cannot be completed because you have exceeded your <a href=\"/youtube/v3/getting-started#quota\">quota</a>.","domain":"youtube.quota","reason":"quotaExceeded"}]}}`
	youtubeBucket = `{"error":{"code":429,"message":"Quota exceeded for quota metric 'Search Queries' and limit 'Search Queries per day' of service 'youtube.googleapis.com' for consumer 'project_number:123'.",` +
		`"errors":[{"message":"Quota exceeded for quota metric 'Search Queries' and limit 'Search Queries per day' of service 'youtube.googleapis.com' for consumer 'project_number:123'.","domain":"global","reason":"rateLimitExceeded"}],"status":"RESOURCE_EXHAUSTED"}}`
	// docs.github.com/en/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
	githubSpent = `{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded for user ID 1."}]}`
	// shopify.dev/docs/api/usage/rate-limits
	shopifyThrottled = `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":202,"actualQueryCost":null,` +
		`"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":118,"restoreRate":50.0}}}}`
	shopifyGood = `{"data":{},"extensions":{"cost":{"requestedQueryCost":101,"actualQueryCost":46,"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":954,"restoreRate":50.0}}}}`
)

func TestConditions(t *testing.T) {
	for _, test := range []struct {
		name      string
		condition feedback.Condition
		operation string
		status    int
		header    http.Header
		body      string
		want      bool
	}{
		{name: "nothing asked", want: true},
		{name: "status", condition: feedback.Condition{Status: []int{403, 429}}, status: 429, want: true},
		{name: "another status", condition: feedback.Condition{Status: []int{403, 429}}, status: 200},
		{name: "operation", condition: feedback.Condition{Operations: []string{"search.*", "!search.x"}}, operation: "search.list", want: true},
		{name: "another operation", condition: feedback.Condition{Operations: []string{"search.*", "!search.x"}}, operation: "search.x"},
		{name: "header", condition: feedback.Condition{Header: map[string][]string{"x-kind": {"day", "hour"}}}, header: makeHeader("X-Kind", " Hour\t"), want: true},
		{name: "second line", condition: feedback.Condition{Header: map[string][]string{"X-KIND": {"hour"}}}, header: makeHeader("X-Kind", "day", "X-Kind", "hour"), want: true},
		{name: "part of a line", condition: feedback.Condition{Header: map[string][]string{"x-kind": {"hour"}}}, header: makeHeader("X-Kind", "day, hour"), want: true},
		{name: "part of a word", condition: feedback.Condition{Header: map[string][]string{"x-kind": {"hour"}}}, header: makeHeader("X-Kind", "day hour")},
		{name: "a list", condition: feedback.Condition{Header: map[string][]string{"x-kind": {"day,hour"}}}, header: makeHeader("X-Kind", "month, day", "X-Kind", "Hour"), want: true},
		{name: "a list in another order", condition: feedback.Condition{Header: map[string][]string{"x-kind": {"day, hour"}}}, header: makeHeader("X-Kind", "hour,day")},
		{name: "an empty value", condition: feedback.Condition{Header: map[string][]string{"x-kind": {""}}}, header: makeHeader("X-Kind", ""), want: true},
		{name: "no empty value", condition: feedback.Condition{Header: map[string][]string{"x-kind": {""}}}, header: makeHeader("X-Kind", "day")},
		{name: "the same number twice", condition: feedback.Condition{Header: map[string][]string{"x-left": {"0"}}}, header: makeHeader("X-Left", "0,0"), want: true},
		{name: "different numbers", condition: feedback.Condition{Header: map[string][]string{"x-left": {"0"}}}, header: makeHeader("X-Left", "0", "X-Left", "5")},
		{name: "different numbers in a line", condition: feedback.Condition{Header: map[string][]string{"x-left": {"0"}}}, header: makeHeader("X-Left", "5, 0")},
		{name: "any numbers", condition: feedback.Condition{Header: map[string][]string{"x-left": {"*"}}}, header: makeHeader("X-Left", "5, 0"), want: true},
		{name: "any header", condition: feedback.Condition{Header: map[string][]string{"x-kind": {"*"}}}, header: makeHeader("X-Kind", ""), want: true},
		{name: "no header", condition: feedback.Condition{Header: map[string][]string{"x-kind": {"*"}}}},
		{
			name: "one header of two", condition: feedback.Condition{Header: map[string][]string{"x-kind": {"*"}, "x-left": {"0"}}},
			header: makeHeader("X-Kind", "day", "X-Left", "1"),
		},
		{name: "text", condition: feedback.Condition{Text: []string{"per minute", "Per DAY"}}, body: youtubeBucket, want: true},
		{name: "text in capitals", condition: feedback.Condition{Text: []string{"per day"}}, body: "<p>LIMIT PER DAY</p>", want: true},
		{name: "no text", condition: feedback.Condition{Text: []string{"per month"}}, body: youtubeBucket},
		{name: "text without body", condition: feedback.Condition{Text: []string{"per month"}}},
		{name: "json", condition: feedback.Condition{JSON: map[string][]string{"error.errors.#.reason": {"quotaExceeded"}}}, body: youtubeSpent, want: true},
		{name: "json letter case", condition: feedback.Condition{JSON: map[string][]string{"error.errors.#.reason": {"quotaexceeded"}}}, body: youtubeSpent},
		{name: "json by place", condition: feedback.Condition{JSON: map[string][]string{"error.errors.0.domain": {"youtube.quota"}}}, body: youtubeSpent, want: true},
		{name: "json number", condition: feedback.Condition{JSON: map[string][]string{"error.code": {"429"}}}, body: youtubeBucket, want: true},
		{name: "json on 200", condition: feedback.Condition{JSON: map[string][]string{"errors.#.type": {"RATE_LIMITED"}}}, status: 200, body: githubSpent, want: true},
		{name: "json of no error", condition: feedback.Condition{JSON: map[string][]string{"errors.#.type": {"RATE_LIMITED"}}}, status: 200, body: `{"data":{}}`},
		{name: "json deeper", condition: feedback.Condition{JSON: map[string][]string{"errors.#.extensions.code": {"THROTTLED"}}}, body: shopifyThrottled, want: true},
		{name: "arrays in arrays", condition: feedback.Condition{JSON: map[string][]string{"a.#.b.#.c": {"2"}}}, body: `{"a":[{"b":[{"c":1}]},{"b":[{"c":2}]}]}`, want: true},
		{name: "an array's element", condition: feedback.Condition{JSON: map[string][]string{"kinds": {"day"}}}, body: `{"kinds":["hour","day"]}`, want: true},
		{name: "true", condition: feedback.Condition{JSON: map[string][]string{"ok": {"false"}}}, body: `{"ok":false}`, want: true},
		{name: "any json", condition: feedback.Condition{JSON: map[string][]string{"error": {"*"}}}, body: `{"error":{}}`, want: true},
		{name: "any json but null", condition: feedback.Condition{JSON: map[string][]string{"error": {"*"}}}, body: `{"error":null}`},
		{name: "any json of an empty array", condition: feedback.Condition{JSON: map[string][]string{"errors": {"*"}}}, body: `{"errors":[]}`},
		{name: "no json", condition: feedback.Condition{JSON: map[string][]string{"error": {"*"}}}, body: `<html>{"error":1}</html>`},
		{name: "json in a text", condition: feedback.Condition{JSON: map[string][]string{"error": {"*"}}}, body: `"{\"error\":1}"`},
		{name: "an array in a text", condition: feedback.Condition{JSON: map[string][]string{"1": {"*"}}}, body: `"[1,2]"`},
		{name: "json cut short", condition: feedback.Condition{JSON: map[string][]string{"error": {"*"}}}, body: `{"error":1,`},
		{name: "json twice", condition: feedback.Condition{JSON: map[string][]string{"error": {"*"}}}, body: `{"error":1} {"error":1}`},
		{name: "json too deep", condition: feedback.Condition{JSON: map[string][]string{"#": {"*"}}}, body: strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000)},
		{
			name: "json of two", condition: feedback.Condition{JSON: map[string][]string{"errors.#.type": {"RATE_LIMITED"}, "data": {"*"}}}, body: githubSpent,
		},
	} {
		header := test.header
		if header == nil {
			header = http.Header{}
		}
		c := newCondition(test.condition)
		got := c.fitsHeader(test.operation, test.status, header) && c.fitsBody(newContent(header, []byte(test.body)))
		check.Equal(t, got, test.want, test.name, "fits")
	}
}

func TestReadNumber(t *testing.T) {
	number := func(header string) feedback.Source { return feedback.Source{Header: header, As: feedback.AsNumber} }
	inJSON := func(path string) feedback.Source { return feedback.Source{JSON: path, As: feedback.AsNumber} }
	item := func(header, item string) feedback.Source {
		return feedback.Source{Header: header, As: feedback.AsNumber, Item: item}
	}
	policy := func(item string) feedback.Source {
		return feedback.Source{Header: "ratelimit", As: feedback.AsRateLimit, Item: item}
	}
	const none = -99
	for _, test := range []struct {
		name   string
		source feedback.Source
		header http.Header
		body   string
		want   int64
	}{
		{"github", number("x-ratelimit-remaining"), makeHeader("X-RateLimit-Remaining", "4999"), "", 4999},
		{"blanks", number("x-ratelimit-remaining"), makeHeader("X-RateLimit-Remaining", " 4999 "), "", 4999},
		{"reddit", number("X-Ratelimit-Remaining"), makeHeader("X-Ratelimit-Remaining", "598.0"), "", 598},
		{"absent", number("x-ratelimit-remaining"), makeHeader(), "", none},
		{"malformed", number("x-ratelimit-remaining"), makeHeader("X-RateLimit-Remaining", "lots"), "", none},
		{"the same twice", number("x-left"), makeHeader("X-Left", "5", "X-Left", "5"), "", 5},
		{"the same joined", number("x-left"), makeHeader("X-Left", "5, 5"), "", 5},
		{"the same, joined and repeated", number("x-left"), makeHeader("X-Left", "5,5", "X-Left", " 5"), "", 5},
		{"the same in other words", number("x-left"), makeHeader("X-Left", "5", "X-Left", "5.0"), "", 5},
		{"thousands", number("x-left"), makeHeader("X-Left", "5,005"), "", none},
		{"a number and none", number("x-left"), makeHeader("X-Left", "5", "X-Left", "lots"), "", none},
		{"a number and nothing", number("x-left"), makeHeader("X-Left", "5", "X-Left", ""), "", 5},
		{"two that differ, joined", number("x-left"), makeHeader("X-Left", "5,6"), "", none},
		{"two that differ", number("x-left"), makeHeader("X-Left", "5", "X-Left", "6"), "", none},
		{"strava, quarter", item("X-RateLimit-Usage", "1"), makeHeader("X-RateLimit-Usage", "34,1023"), "", 34},
		{"strava, day", item("X-RateLimit-Usage", "2"), makeHeader("X-RateLimit-Usage", "34, 1023"), "", 1023},
		{"strava, beyond", item("X-RateLimit-Usage", "3"), makeHeader("X-RateLimit-Usage", "34,1023"), "", none},
		{"pair in two lines", item("X-RateLimit-Usage", "2"), makeHeader("X-RateLimit-Usage", "34", "X-RateLimit-Usage", "34"), "", 34},
		{"pair without its first", item("X-RateLimit-Usage", "2"), makeHeader("X-RateLimit-Usage", ",7"), "", 7},
		{"shopify, used", item("X-Shopify-Shop-Api-Call-Limit", "1"), makeHeader("X-Shopify-Shop-Api-Call-Limit", "32/40"), "", 32},
		{"draft", policy(""), makeHeader("RateLimit", `"day";r=100;t=36000`), "", 100},
		{"draft, by name", policy("day"), makeHeader("RateLimit", `"burst";r=1;t=1`, "RateLimit", `"day";r=100;t=36000`), "", 100},
		{"draft, no remainder", policy("day"), makeHeader("RateLimit", `"day";t=36000`), "", none},
		{"json", inJSON("extensions.cost.actualQueryCost"), makeHeader(), shopifyGood, 46},
		{"json null", inJSON("extensions.cost.actualQueryCost"), makeHeader(), shopifyThrottled, none},
		{"json with a fraction of zeroes", inJSON("extensions.cost.throttleStatus.maximumAvailable"), makeHeader(), shopifyGood, 1000},
		{"json text", inJSON("cost"), makeHeader(), `{"cost":" 7 "}`, 7},
		{"json fraction", inJSON("cost"), makeHeader(), `{"cost":7.5}`, 7}, // rounded down, as what remains is
		{"json exponent", inJSON("cost"), makeHeader(), `{"cost":1e9}`, 1_000_000_000},
		{"json truth", inJSON("cost"), makeHeader(), `{"cost":true}`, none},
		{"json table", inJSON("cost"), makeHeader(), `{"cost":{"a":1}}`, none},
		{"json, the first that is one", inJSON("costs.#.units"), makeHeader(), `{"costs":[{"units":null},{"units":"x"},{"units":3},{"units":4}]}`, 3},
		{"json, no body", inJSON("cost"), makeHeader(), "", none},
		{"json, escaped name", inJSON(`a\.b`), makeHeader(), `{"a":{"b":1},"a.b":2}`, 2},
	} {
		got, ok := readNumber(&test.source, test.header, []byte(test.body))
		if ok != (test.want != none) || ok && got != test.want {
			t.Errorf("%s: %d, %t; want %d", test.name, got, ok, test.want)
		}
	}
}

// What is beyond the first mebibyte of a body is not looked at.
func TestLongBodies(t *testing.T) {
	fill := func(n int) string { return strings.Repeat(" ", n) }
	fits := newCondition(feedback.Condition{Text: []string{"per day"}})
	if !fits.fitsBody(newContent(nil, []byte(fill(maxBody-7)+"per day"+fill(9)))) {
		t.Error("a text within the first mebibyte is not seen")
	}
	if fits.fitsBody(newContent(nil, []byte(fill(maxBody-6)+"per day"))) {
		t.Error("a text beyond the first mebibyte is seen")
	}
	source := &feedback.Source{JSON: "a", As: feedback.AsNumber}
	if n, ok := readNumber(source, nil, []byte(`{"a":1`+fill(maxBody-7)+"}")); !ok || n != 1 {
		t.Errorf("a document of a mebibyte: %d, %t; want 1", n, ok)
	}
	if n, ok := readNumber(source, nil, []byte(`{"a":1`+fill(maxBody-6)+"}")); ok {
		t.Errorf("a longer document: %d, want nothing", n)
	}
}

// github is an upstream with rules of each kind.
func github() feedback.Rules {
	return feedback.Rules{
		Free: []int{304},
		Refusals: []feedback.Refusal{
			{
				Name: "primary", Means: feedback.Exhausted, Limit: "core",
				Condition: feedback.Condition{Status: []int{403, 429}, Header: map[string][]string{"x-ratelimit-remaining": {"0"}}},
				Reset:     []feedback.Source{{Header: "retry-after", As: feedback.AsRetryAfter}, {Header: "x-ratelimit-reset", As: feedback.AsEpoch}},
			},
			{
				Name: "secondary", Means: feedback.Throttled,
				Condition: feedback.Condition{Status: []int{403, 429}, Text: []string{"secondary rate limit"}},
				Reset:     []feedback.Source{{Header: "retry-after", As: feedback.AsRetryAfter}},
			},
			{
				Name: "graphql", Means: feedback.Exhausted, Limit: "graphql", Free: true,
				Condition: feedback.Condition{JSON: map[string][]string{"errors.#.type": {"RATE_LIMITED"}}, Operations: []string{"graphql"}},
				Reset:     []feedback.Source{{JSON: "data.rateLimit.resetAt", As: feedback.AsRFC3339}, {Header: "x-ratelimit-reset", As: feedback.AsEpoch}},
			},
			{Name: "down", Means: feedback.Overloaded, Condition: feedback.Condition{Status: []int{502, 503}}},
			{
				Name: "told", Means: feedback.Throttled, Condition: feedback.Condition{Status: []int{420}},
				Reset: []feedback.Source{{JSON: "retry_after", As: feedback.AsSeconds}},
			},
		},
		Reports: []feedback.Report{
			{
				Name: "core", Limit: "core", Condition: feedback.Condition{Header: map[string][]string{"x-ratelimit-resource": {"core"}}},
				Remaining: &feedback.Source{Header: "x-ratelimit-remaining", As: feedback.AsNumber},
				Reset:     &feedback.Source{Header: "x-ratelimit-reset", As: feedback.AsEpoch},
			},
			{
				Name: "graphql", Limit: "graphql", Condition: feedback.Condition{Operations: []string{"graphql"}},
				Used: &feedback.Source{JSON: "data.rateLimit.used", As: feedback.AsNumber},
			},
		},
	}
}

func TestJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reset := time.Now().Add(10 * time.Minute).UTC()
		epoch := strconv.FormatInt(reset.Unix(), 10)
		f := github()
		rule := func(i int) *feedback.Refusal { return &f.Refusals[i] }
		number := func(n int64) *int64 { return &n }
		r := newTestReader(t, f)
		core := func(remaining int64, until budget.Until) []reported {
			return []reported{{rule: &f.Reports[0], remaining: number(remaining), reset: until}}
		}
		for _, test := range []struct {
			name      string
			operation string
			status    int
			header    http.Header
			body      string
			want      facts
		}{
			{
				"a good answer", "rest", 200,
				makeHeader("x-ratelimit-remaining", "4999", "x-ratelimit-reset", epoch, "x-ratelimit-resource", "core"), "[]",
				facts{reports: core(4999, budget.Until{At: reset})},
			},
			{"nothing told", "rest", 200, makeHeader(), "[]", facts{}},
			{"not modified", "rest", 304, makeHeader(), "", facts{free: true}},
			{
				"spent", "rest", 403,
				makeHeader("x-ratelimit-remaining", "0", "x-ratelimit-reset", epoch, "x-ratelimit-resource", "core"), "{}",
				facts{refusal: rule(0), reset: moment{Until: budget.Until{At: reset}}, reports: core(0, budget.Until{At: reset})},
			},
			{
				"spent, with Retry-After", "rest", 429, makeHeader("x-ratelimit-remaining", "0", "x-ratelimit-reset", epoch, "Retry-After", "30"), "{}",
				facts{refusal: rule(0), reset: moment{Until: budget.Until{After: 30 * time.Second}}},
			},
			{
				"spent, Retry-After malformed", "rest", 429, makeHeader("x-ratelimit-remaining", "0", "x-ratelimit-reset", epoch, "Retry-After", "soon"), "{}",
				facts{refusal: rule(0), reset: moment{Until: budget.Until{At: reset}}, unread: unreads{
					{What: UnreadRefusal, Rule: "primary", Place: "header retry-after", Why: errNoInstant.Error()},
				}},
			},
			{
				"spent, both malformed", "rest", 429, makeHeader("x-ratelimit-remaining", "0", "x-ratelimit-reset", "1e99", "Retry-After", "-1"), "{}",
				facts{refusal: rule(0), reset: moment{passed: true}, unread: unreads{ // a span that has passed is not unread
					{What: UnreadRefusal, Rule: "primary", Place: "header x-ratelimit-reset", Why: errFarAway.Error()},
				}},
			},
			{
				"remaining below 0", "rest", 200,
				makeHeader("x-ratelimit-remaining", "-1", "x-ratelimit-reset", epoch, "x-ratelimit-resource", "core"), "[]",
				facts{unread: unreads{{What: UnreadReport, Rule: "core", Place: "header x-ratelimit-remaining", Why: errNegative.Error()}}},
			},
			{
				"remaining above twice the quota", "rest", 200,
				makeHeader("x-ratelimit-remaining", "10000.5", "x-ratelimit-reset", epoch, "x-ratelimit-resource", "core"), "[]",
				facts{unread: unreads{{What: UnreadReport, Rule: "core", Place: "header x-ratelimit-remaining", Why: errTooMuch.Error()}}},
			},
			{
				"remaining twice the quota", "rest", 200,
				makeHeader("x-ratelimit-remaining", "10000", "x-ratelimit-reset", epoch, "x-ratelimit-resource", "core"), "[]",
				facts{reports: core(10000, budget.Until{At: reset})},
			},
			{
				"remaining in different numbers", "rest", 200,
				makeHeader("x-ratelimit-remaining", "5, 7", "x-ratelimit-reset", epoch, "x-ratelimit-resource", "core"), "[]",
				facts{unread: unreads{{What: UnreadReport, Rule: "core", Place: "header x-ratelimit-remaining", Why: errDiffer.Error()}}},
			},
			{
				"spent or not", "rest", 403,
				makeHeader("x-ratelimit-remaining", "0", "x-ratelimit-remaining", "5", "x-ratelimit-resource", "search"), "{}",
				facts{unread: unreads{{What: UnreadRefusal, Rule: "primary", Place: "header x-ratelimit-remaining", Why: errDiffer.Error()}}},
			},
			{
				"reset past", "rest", 200,
				makeHeader("x-ratelimit-remaining", "7", "x-ratelimit-reset", strconv.FormatInt(time.Now().Unix()-1, 10), "x-ratelimit-resource", "core"), "[]",
				facts{},
			},
			{
				"spent, Retry-After past", "rest", 429, makeHeader("x-ratelimit-remaining", "0", "x-ratelimit-reset", epoch, "Retry-After", "0"), "{}",
				facts{refusal: rule(0), reset: moment{Until: budget.Until{At: reset}}},
			},
			{
				"spent, reset past", "rest", 429, makeHeader("x-ratelimit-remaining", "0", "x-ratelimit-reset", strconv.FormatInt(time.Now().Unix(), 10)), "{}",
				facts{refusal: rule(0), reset: moment{passed: true}},
			},
			{
				"no reset, as some write it", "rest", 200,
				makeHeader("x-ratelimit-remaining", "7.9", "x-ratelimit-reset", "0", "x-ratelimit-resource", "core"), "[]",
				facts{reports: core(7, budget.Until{})},
			},
			{
				"a reset in another unit", "rest", 200,
				makeHeader("x-ratelimit-remaining", "7", "x-ratelimit-reset", "60", "x-ratelimit-resource", "core"), "[]",
				facts{reports: core(7, budget.Until{}), unread: unreads{
					{What: UnreadReport, Rule: "core", Place: "header x-ratelimit-reset", Why: errFarAway.Error()},
				}},
			},
			{
				"remaining malformed", "rest", 200,
				makeHeader("x-ratelimit-remaining", "NaN", "x-ratelimit-reset", epoch, "x-ratelimit-resource", "core"), "[]",
				facts{unread: unreads{{What: UnreadReport, Rule: "core", Place: "header x-ratelimit-remaining", Why: errNoNumber.Error()}}},
			},
			{"another resource", "rest", 200, makeHeader("x-ratelimit-remaining", "29", "x-ratelimit-resource", "search"), "[]", facts{}},
			{
				"too fast", "rest", 403, makeHeader("x-ratelimit-remaining", "4000", "Retry-After", "60"), `{"message":"You have exceeded a SECONDARY rate limit."}`,
				facts{refusal: rule(1), reset: moment{Until: budget.Until{After: time.Minute}}},
			},
			{"forbidden", "rest", 403, makeHeader("x-ratelimit-remaining", "4000"), `{"message":"Must have admin rights"}`, facts{}},
			{"forbidden, body unknown", "rest", 403, makeHeader("x-ratelimit-remaining", "4000"), "", facts{}},
			{
				"graphql spent, on 200", "graphql", 200, makeHeader("x-ratelimit-reset", epoch), githubSpent,
				facts{free: true, refusal: rule(2), reset: moment{Until: budget.Until{At: reset}}},
			},
			{"the same body of another operation", "rest", 200, makeHeader(), githubSpent, facts{}},
			{
				"graphql, used", "graphql", 200, makeHeader(), `{"data":{"rateLimit":{"used":17}}}`,
				facts{reports: []reported{{rule: &f.Reports[1], used: number(17)}}},
			},
			{
				"graphql, a part used", "graphql", 200, makeHeader(), `{"data":{"rateLimit":{"used":1.65e1}}}`,
				facts{reports: []reported{{rule: &f.Reports[1], used: number(17)}}},
			},
			{
				"graphql, used below 0", "graphql", 200, makeHeader(), `{"data":{"rateLimit":{"used":-17}}}`,
				facts{unread: unreads{{What: UnreadReport, Rule: "graphql", Place: "json data.rateLimit.used", Why: errNegative.Error()}}},
			},
			{
				"graphql, used an absurd amount", "graphql", 200, makeHeader(), `{"data":{"rateLimit":{"used":1795176000000}}}`,
				facts{unread: unreads{{What: UnreadReport, Rule: "graphql", Place: "json data.rateLimit.used", Why: errTooMuch.Error()}}},
			},
			{
				"graphql, used above the quota", "graphql", 200, makeHeader(), `{"data":{"rateLimit":{"used":5000000}}}`,
				facts{reports: []reported{{rule: &f.Reports[1], used: number(5_000_000)}}},
			},
			{"overloaded", "rest", 503, makeHeader("Retry-After", "5"), "", facts{refusal: rule(3)}},
			{"told in the body", "rest", 420, makeHeader(), `{"retry_after":0.35}`, facts{refusal: rule(4), reset: moment{Until: budget.Until{After: 350 * time.Millisecond}}}},
		} {
			if got := r.judge(test.operation, test.status, newContent(test.header, []byte(test.body))); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s:\n%s, want\n%s", test.name, showFacts(got), showFacts(test.want))
			}
		}
	})
}

func showFacts(t facts) string {
	s := fmt.Sprintf("free %t, reset %v", t.free, t.reset)
	if t.refusal != nil {
		s += ", refusal " + t.refusal.Name
	}
	for _, one := range t.reports {
		s += fmt.Sprintf(", report %s", one.rule.Name)
		for what, n := range map[string]*int64{"remaining": one.remaining, "used": one.used} {
			if n != nil {
				s += fmt.Sprintf(" %s %d", what, *n)
			}
		}
		s += fmt.Sprint(" reset ", one.reset)
	}
	if len(t.unread) > 0 {
		s += fmt.Sprintf(", unread %+v", t.unread)
	}
	return s
}

func TestLooksAtBody(t *testing.T) {
	r := newTestReader(t, github())
	spent := makeHeader("x-ratelimit-remaining", "0")
	for _, test := range []struct {
		operation    string
		status       int
		header       http.Header
		ahead, later bool
	}{
		{"rest", 200, makeHeader(), false, false},
		{"rest", 403, makeHeader(), true, false}, // the text tells the secondary limit
		{"rest", 403, spent, false, false},       // the header tells it already
		{"rest", 404, makeHeader(), false, false},
		{"rest", 503, makeHeader(), false, false},
		{"rest", 420, makeHeader(), true, false}, // its reset stands in the body
		{"graphql", 200, makeHeader(), false, true},
		{"graphql", 304, makeHeader(), false, true},
		{"graphql", 403, makeHeader(), true, true}, // the report
		{"graphql", 403, spent, false, true},
		{"graphql", 500, makeHeader(), true, true},
	} {
		if ahead, later := r.looksAtBody(test.operation, test.status, test.header); ahead != test.ahead || later != test.later {
			t.Errorf("%s %d %v: ahead %t, later %t; want %t, %t", test.operation, test.status, test.header, ahead, later, test.ahead, test.later)
		}
	}
	// A report that looks at the body for what tells it, or for its reset.
	number, reset := &feedback.Source{Header: "x-left", As: feedback.AsNumber}, &feedback.Source{JSON: "reset", As: feedback.AsEpoch}
	for _, rule := range []feedback.Report{
		{Remaining: number, Condition: feedback.Condition{Status: []int{200}, JSON: map[string][]string{"kind": {"day"}}}},
		{Remaining: number, Condition: feedback.Condition{Status: []int{200}, Text: []string{"day"}}},
		{Remaining: number, Condition: feedback.Condition{Status: []int{200}}, Reset: reset},
	} {
		r := newTestReader(t, feedback.Rules{Reports: []feedback.Report{rule}})
		if ahead, later := r.looksAtBody("rest", 200, makeHeader()); ahead || !later {
			t.Errorf("%+v: ahead %t, later %t; want later", rule, ahead, later)
		}
		if ahead, later := r.looksAtBody("rest", 500, makeHeader()); ahead || later {
			t.Errorf("%+v: of another status ahead %t, later %t; want neither", rule, ahead, later)
		}
	}
}

// Rules written by hand may be wrong; those of a configuration are not.
func TestNewReaderFindsFaults(t *testing.T) {
	epoch := feedback.Source{Header: "x-reset", As: feedback.AsEpoch}
	left := &feedback.Source{Header: "x-left", As: feedback.AsNumber}
	refusal := func(means feedback.Meaning, reset ...feedback.Source) feedback.Rules {
		return feedback.Rules{Refusals: []feedback.Refusal{{Name: "r", Means: means, Reset: reset}}}
	}
	report := func(remaining, used, reset *feedback.Source) feedback.Rules {
		return feedback.Rules{Reports: []feedback.Report{{Name: "r", Remaining: remaining, Used: used, Reset: reset}}}
	}
	for name, f := range map[string]feedback.Rules{
		"no meaning":           refusal(""),
		"a reset as a number":  refusal(feedback.Throttled, feedback.Source{Header: "x-reset", As: feedback.AsNumber}),
		"a reset as nothing":   refusal(feedback.Throttled, epoch, feedback.Source{Header: "retry-after"}),
		"a reset nowhere":      refusal(feedback.Throttled, feedback.Source{As: feedback.AsEpoch}),
		"a reset twice":        refusal(feedback.Throttled, feedback.Source{Header: "a", JSON: "b", As: feedback.AsEpoch}),
		"a body's RateLimit":   refusal(feedback.Throttled, feedback.Source{JSON: "b", As: feedback.AsRateLimit}),
		"an item by name":      refusal(feedback.Throttled, feedback.Source{Header: "a", As: feedback.AsEpoch, Item: "day"}),
		"item 0":               refusal(feedback.Throttled, feedback.Source{Header: "a", As: feedback.AsEpoch, Item: "0"}),
		"a report of nothing":  report(nil, nil, &epoch),
		"a report of both":     report(left, left, nil),
		"an amount as seconds": report(&feedback.Source{Header: "a", As: feedback.AsSeconds}, nil, nil),
		"an amount nowhere":    report(nil, &feedback.Source{As: feedback.AsNumber}, nil),
		"a report's reset":     report(left, nil, left),
	} {
		if _, err := newReader(f, nil); err == nil || !strings.Contains(err.Error(), " r: ") {
			t.Errorf("%s: error %v, want one of rule r", name, err)
		}
	}
}

// A list's first item is item 1.
func TestNewReaderTakesItems(t *testing.T) {
	for _, item := range []string{"", "1", "12"} {
		reset := feedback.Source{Header: "a", As: feedback.AsEpoch, Item: item}
		newTestReader(t, feedback.Rules{Refusals: []feedback.Refusal{{Name: "r", Means: feedback.Throttled, Reset: []feedback.Source{reset}}}})
	}
}
