package budget

import (
	"maps"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The file has every key of what responses say, in every form.
func TestParseConfigReadsFeedback(t *testing.T) {
	c, err := LoadConfig(filepath.Join("..", "testdata", "config", "good", "feedback.toml"))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := c.Spec("github/bot")
	if err != nil {
		t.Fatal(err)
	}
	retryAfter := Source{Header: "retry-after", As: AsRetryAfter}
	reset := Source{Header: "x-ratelimit-reset", As: AsEpoch}
	draft := Source{Header: "ratelimit", As: AsRateLimit}
	want := Feedback{
		Free: []int{304, 412},
		Refusals: []RefusalRule{
			{
				Name: "primary", Means: Exhausted, Limit: "core", Lock: time.Minute,
				Condition: Condition{
					Status: []int{403, 429},
					Header: map[string][]string{"x-ratelimit-remaining": {"0"}, "x-ratelimit-resource": {"core", "graphql"}},
				},
				Reset: []Source{retryAfter, reset},
			},
			{
				Name: "search", Means: Throttled, Limit: "search", Lock: 90 * time.Second,
				Condition: Condition{Status: []int{403}, Text: []string{"secondary rate limit"}, Operations: []string{"search"}},
				Reset:     []Source{{Header: "Retry-After", As: AsSeconds}},
			},
			{
				Name: "graphql", Means: Exhausted, Limit: "core", Lock: time.Minute, Free: true,
				Condition: Condition{JSON: map[string][]string{"errors.#.type": {"RATE_LIMITED", "MAX_NODE_LIMIT_EXCEEDED"}}},
			},
			{
				Name: "draft", Means: Throttled, Lock: time.Minute,
				Condition: Condition{Status: []int{429}, Header: map[string][]string{"ratelimit": {"*"}}},
				Reset:     []Source{{Header: "RateLimit", As: AsRateLimit, Item: "burst"}},
			},
			{Name: "long", Means: Exhausted, Condition: Condition{Status: []int{402}}, Lock: 744 * time.Hour},
			{Name: "down", Means: Overloaded, Condition: Condition{Status: []int{502, 503, 504}, Text: []string{"unicorn", "timeout"}}},
		},
		Reports: []ReportRule{
			{
				Name: "core", Limit: "core", Remaining: &Source{Header: "x-ratelimit-remaining", As: AsNumber}, Reset: &reset,
				Condition: Condition{Header: map[string][]string{"x-ratelimit-resource": {"core"}}},
			},
			{
				Name: "search", Limit: "search", Condition: Condition{Status: []int{200}, Operations: []string{"search"}},
				Used:  &Source{Header: "x-usage", As: AsNumber, Item: "2"},
				Reset: &Source{Header: "x-reset", As: AsEpoch, Item: "2"},
			},
			{Name: "draft", Limit: "core", Remaining: &draft, Reset: &draft},
		},
	}
	if !reflect.DeepEqual(spec.Feedback, want) {
		t.Errorf("feedback\n%+v, want\n%+v", spec.Feedback, want)
	}
	wantCosts := map[string]Cost{
		"rest":    {Units: 1, Match: []string{"api.github.com/"}},
		"search":  {Units: 1, Match: []string{"GET api.github.com/search/", "GET api.github.com/search/code"}},
		"graphql": {Units: 1, Match: []string{"POST api.github.com/graphql"}, Actual: []Source{{JSON: "data.rateLimit.cost", As: AsNumber}, {JSON: "extensions.cost", As: AsNumber}}},
		"upload": {
			Units: 5, Match: []string{"POST uploads.github.com/repos/{owner}/{repo}/releases/{id}/assets"},
			Once: &Key{Query: "name"}, Actual: []Source{{Header: "x-cost", As: AsNumber}},
		},
		"session": {Units: 5, Once: &Key{Header: "X-Session"}},
		"local":   {Units: 0, Match: []string{"127.0.0.1/{path...}", "[::1]/", "*.github.test/"}},
	}
	if !maps.EqualFunc(spec.Costs, wantCosts, func(a, b Cost) bool { return reflect.DeepEqual(a, b) }) {
		t.Errorf("costs\n%+v, want\n%+v", spec.Costs, wantCosts)
	}
	if spec.Observe || spec.Limits[0].Observe || !spec.Limits[1].Observe {
		t.Errorf("upstream, core and search observe: %t, %t, %t; want search alone", spec.Observe, spec.Limits[0].Observe, spec.Limits[1].Observe)
	}
}

// An upstream that observes has all its limits do so, and prices above a limit
// are no fault there.
func TestParseConfigObserve(t *testing.T) {
	const text = `[upstream.ads]
mode = "observe"
unknown_operation = 70
[upstream.ads.costs]
get = 70
[upstream.ads.limit.hour]
limit = 60
window = "1h"
[upstream.ads.limit.day]
mode = "enforce"
limit = 600
window = "24h"
[upstream.ads.credential.eu]
`
	c := parse(t, text)
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	spec, err := c.Spec("ads/eu")
	if err != nil {
		t.Fatal(err)
	}
	if !spec.Observe || !spec.Limits[0].Observe || !spec.Limits[1].Observe {
		t.Errorf("upstream and limits observe: %t, %t, %t; want all", spec.Observe, spec.Limits[0].Observe, spec.Limits[1].Observe)
	}
	if u := c.Upstreams[0]; u.Limits[0].Observe || u.Limits[1].Observe {
		t.Error("the configuration's own limits were changed")
	}
	c = parse(t, strings.Replace(text, `mode = "observe"`, "", 1))
	if err := c.Err(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("enforced: error %v, want one for each price above the limit", err)
	}
}

// Limits that observe leave others something to refuse.
func TestObservingLimitLeavesOthersToBind(t *testing.T) {
	text := `[upstream.ads.costs]
get = 1
[upstream.ads.limit.tight]
mode = "observe"
limit = 50
window = "1h"
[upstream.ads.limit.wide]
limit = 60
window = "1h"
[upstream.ads.credential.eu]
`
	if w := parse(t, text).Warnings(); len(w) != 0 {
		t.Errorf("warnings %v, want none: limit wide is what refuses", w)
	}
	text = strings.Replace(text, `mode = "observe"`, "", 1)
	if w := parse(t, text).Warnings(); len(w) != 1 || !strings.Contains(w[0].Message, "limit wide never binds") {
		t.Errorf("warnings %v, want that limit wide never binds", w)
	}
}
