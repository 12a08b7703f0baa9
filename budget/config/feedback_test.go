package config

import (
	"maps"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/internal/must"
)

// The file has every key of what responses say, in every form.
func TestParseConfigReadsFeedback(t *testing.T) {
	c := must.Get(Load(filepath.Join("..", "..", "testdata", "config", "good", "feedback.toml")))(t)
	spec := must.Get(c.Spec("github/bot"))(t)
	retryAfter := feedback.Source{Header: "retry-after", As: feedback.AsRetryAfter}
	reset := feedback.Source{Header: "x-ratelimit-reset", As: feedback.AsEpoch}
	draft := feedback.Source{Header: "ratelimit", As: feedback.AsRateLimit}
	want := feedback.Rules{
		Free: []int{304, 412},
		Refusals: []feedback.Refusal{
			{
				Name: "primary", Means: feedback.Exhausted, Limit: "core", Lock: time.Minute,
				Condition: feedback.Condition{
					Status: []int{403, 429},
					Header: map[string][]string{"x-ratelimit-remaining": {"0"}, "x-ratelimit-resource": {"core", "graphql"}},
				},
				Reset: []feedback.Source{retryAfter, reset},
			},
			{
				Name: "search", Means: feedback.Throttled, Limit: "search", Lock: 90 * time.Second,
				Condition: feedback.Condition{Status: []int{403}, Text: []string{"secondary rate limit"}, Operations: []string{"search"}},
				Reset:     []feedback.Source{{Header: "Retry-After", As: feedback.AsSeconds}},
			},
			{
				Name: "graphql", Means: feedback.Exhausted, Limit: "core", Lock: time.Minute, Free: true,
				Condition: feedback.Condition{JSON: map[string][]string{"errors.#.type": {"RATE_LIMITED", "MAX_NODE_LIMIT_EXCEEDED"}}},
			},
			{
				Name: "draft", Means: feedback.Throttled, Lock: time.Minute,
				Condition: feedback.Condition{Status: []int{429}, Header: map[string][]string{"ratelimit": {"*"}}},
				Reset:     []feedback.Source{{Header: "RateLimit", As: feedback.AsRateLimit, Item: "burst"}},
			},
			{Name: "long", Means: feedback.Exhausted, Condition: feedback.Condition{Status: []int{402}}, Lock: 744 * time.Hour, Longest: 744 * time.Hour},
			{Name: "down", Means: feedback.Overloaded, Condition: feedback.Condition{Status: []int{502, 503, 504}, Text: []string{"unicorn", "timeout"}}},
		},
		Reports: []feedback.Report{
			{
				Name: "core", Limit: "core", Remaining: &feedback.Source{Header: "x-ratelimit-remaining", As: feedback.AsNumber}, Reset: &reset,
				Condition: feedback.Condition{Header: map[string][]string{"x-ratelimit-resource": {"core"}}},
			},
			{
				Name: "search", Limit: "search", Condition: feedback.Condition{Status: []int{200}, Operations: []string{"search"}},
				Used:  &feedback.Source{Header: "x-usage", As: feedback.AsNumber, Item: "2"},
				Reset: &feedback.Source{Header: "x-reset", As: feedback.AsEpoch, Item: "2"},
			},
			{Name: "draft", Limit: "core", Remaining: &draft, Reset: &draft},
		},
	}
	if !reflect.DeepEqual(spec.Feedback, want) {
		t.Errorf("feedback\n%+v, want\n%+v", spec.Feedback, want)
	}
	wantCosts := map[string]budget.Cost{
		"rest":    {Units: 1, Match: []string{"api.github.com/"}},
		"search":  {Units: 1, Match: []string{"GET api.github.com/search/", "GET api.github.com/search/code"}},
		"graphql": {Units: 1, Match: []string{"POST api.github.com/graphql"}, Actual: []feedback.Source{{JSON: "data.rateLimit.cost", As: feedback.AsNumber}, {JSON: "extensions.cost", As: feedback.AsNumber}}},
		"upload": {
			Units: 5, Match: []string{"POST uploads.github.com/repos/{owner}/{repo}/releases/{id}/assets"},
			Once: &feedback.Key{Query: "name"}, Actual: []feedback.Source{{Header: "x-cost", As: feedback.AsNumber}},
		},
		"session": {Units: 5, Once: &feedback.Key{Header: "X-Session"}},
		"local":   {Units: 0, Match: []string{"127.0.0.1/{path...}", "[::1]/", "*.github.test/"}},
	}
	if !maps.EqualFunc(spec.Costs, wantCosts, func(a, b budget.Cost) bool { return reflect.DeepEqual(a, b) }) {
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
	must.Do(t, c.Err())
	spec := must.Get(c.Spec("ads/eu"))(t)
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
