package presets_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
)

// What the documentation tells in words, without a response to copy: statuses,
// header names, codes and messages are its own, the values are this test's.
func TestResponsesToldInWords(t *testing.T) {
	const (
		now     = "2026-06-08T19:00:00Z"
		reset   = "\nx-ratelimit-reset: 1780947000\n" // 19:30
		resetAt = "2026-06-08T19:30:00Z"
		github  = "github/user1"
		soon    = "\nx-ratelimit-reset: 1780945245\n"
		soonAt  = "2026-06-08T19:00:45Z"
		shop    = "https://your-shop.myshopify.com/admin/api/2026-10/"
		graphql = "https://api.github.com/graphql"
		rest    = "https://api.github.com/repos/octocat/Hello-World"
		openai  = "https://api.openai.com/v1/responses"
	)
	for name, c := range map[string]struct {
		answered
		response string // lines of the header, then the body
	}{
		"github core": {
			answered{preset: "github", budget: github, method: "GET", url: rest, want: budgethttp.Verdict{Rule: "core", Means: feedback.Exhausted, Limit: "core"}, until: resetAt, settled: 1, drift: map[string]int64{"core": 4999}, passes: "search"},
			"429 Too Many Requests\nx-ratelimit-remaining: 0\nx-ratelimit-resource: core" + reset,
		},
		"github search": {
			answered{preset: "github", budget: github, method: "GET", url: "https://api.github.com/search/issues?q=a", want: budgethttp.Verdict{Rule: "search", Means: feedback.Exhausted, Limit: "search"}, until: resetAt, settled: 1, drift: map[string]int64{"search": 29}, passes: "rest.read"},
			"403 Forbidden\nx-ratelimit-remaining: 0\nx-ratelimit-resource: search" + reset,
		},
		"github search for code": {
			answered{preset: "github", budget: github, method: "GET", url: "https://api.github.com/search/code?q=a", want: budgethttp.Verdict{Rule: "search-code", Means: feedback.Exhausted, Limit: "search-code"}, until: resetAt, settled: 1, drift: map[string]int64{"search-code": 8}, passes: "search"},
			"403 Forbidden\nx-ratelimit-remaining: 0\nx-ratelimit-resource: code_search" + reset,
		},
		"github, a resource without a limit": {
			answered{preset: "github", budget: github, method: "POST", url: rest + "/dependency-graph/snapshots", want: budgethttp.Verdict{Rule: "other-resource", Means: feedback.Overloaded}, settled: 5},
			"403 Forbidden\nx-ratelimit-remaining: 0\nx-ratelimit-resource: dependency_snapshots" + reset,
		},
		"github graphql": {
			answered{preset: "github", budget: github, method: "POST", url: graphql, want: budgethttp.Verdict{Rule: "graphql", Means: feedback.Exhausted, Limit: "graphql"}, until: resetAt, settled: 1, drift: map[string]int64{"graphql": 4999}, passes: "rest.read"},
			"200 OK\nx-ratelimit-remaining: 0\nx-ratelimit-resource: graphql" + reset + "\n" + `{"errors": [{"message": "API rate limit exceeded"}]}`,
		},
		"github graphql, the last that goes through": { // its own 51 are of the 5000
			answered{preset: "github", budget: github, method: "POST", url: graphql, settled: 51, drift: map[string]int64{"graphql": 4949}, returns: resetAt},
			"200 OK\nx-ratelimit-remaining: 0\nx-ratelimit-resource: graphql" + reset + "\n" + `{"data": {"rateLimit": {"cost": 51}}}`,
		},
		"github graphql, secondary": {
			answered{preset: "github", budget: github, method: "POST", url: graphql, want: budgethttp.Verdict{Rule: "graphql-secondary", Means: feedback.Throttled}, until: "2026-06-08T19:00:45Z", settled: 1},
			"200 OK\nretry-after: 45\nx-ratelimit-remaining: 4999\nx-ratelimit-resource: graphql" + reset + "\n" + `{"errors": [{"message": "You have exceeded a secondary rate limit."}]}`,
		},
		"github, secondary with retry-after": {
			answered{preset: "github", budget: github, method: "PUT", url: rest, want: budgethttp.Verdict{Rule: "secondary", Means: feedback.Throttled}, until: "2026-06-08T19:00:45Z", settled: 5},
			"429 Too Many Requests\nretry-after: 45\n\n" + `{"message": "You have exceeded a secondary rate limit."}`,
		},
		"github, secondary until the reset": {
			answered{preset: "github", budget: github, method: "PUT", url: rest, want: budgethttp.Verdict{Rule: "secondary-until-reset", Means: feedback.Throttled}, until: resetAt, settled: 5},
			"429 Too Many Requests\nx-ratelimit-remaining: 0" + reset + "\n" + `{"message": "You have exceeded a secondary rate limit."}`,
		},
		"github, retry-after alone": {
			answered{preset: "github", budget: github, method: "GET", url: rest, want: budgethttp.Verdict{Rule: "retry-after", Means: feedback.Throttled}, until: "2026-06-08T19:00:45Z", settled: 1},
			"403 Forbidden\nretry-after: 45\n\n{}",
		},
		"github, forbidden": {
			answered{preset: "github", budget: github, method: "GET", url: rest, settled: 1},
			"403 Forbidden\nx-ratelimit-remaining: 4999\nx-ratelimit-resource: core" + reset + "\n" + `{"message": "Resource not accessible by integration"}`,
		},
		"github, the last that goes through": {
			answered{preset: "github", budget: github, method: "GET", url: rest, settled: 1, drift: map[string]int64{"core": 4999}, returns: resetAt},
			"200 OK\nx-ratelimit-remaining: 0\nx-ratelimit-resource: core" + reset + "\n" + `{"errors": [{"message": "of a document"}]}`,
		},
		"github, the last search that goes through": {
			answered{preset: "github", budget: github, method: "GET", url: "https://api.github.com/search/issues?q=a", settled: 1, drift: map[string]int64{"search": 29}, returns: soonAt},
			"200 OK\nx-ratelimit-remaining: 0\nx-ratelimit-resource: search" + soon,
		},
		"github, the last search for code that goes through": {
			answered{preset: "github", budget: github, method: "GET", url: "https://api.github.com/search/code?q=a", settled: 1, drift: map[string]int64{"search-code": 8}, returns: soonAt},
			"200 OK\nx-ratelimit-remaining: 0\nx-ratelimit-resource: code_search" + soon,
		},
		"github, the last of an older server": {
			answered{preset: "github", budget: github, method: "GET", url: rest, settled: 1},
			"200 OK\nx-ratelimit-remaining: 0" + reset,
		},
		"github, a search of an older server": {
			answered{preset: "github", budget: github, method: "GET", url: "https://api.github.com/search/issues?q=a", settled: 1},
			"403 Forbidden\nx-ratelimit-remaining: 0" + reset,
		},
		"github graphql, an error": {
			answered{preset: "github", budget: github, method: "POST", url: graphql, settled: 1},
			"200 OK\n\n" + `{"errors": [{"message": "Could not resolve to a User"}]}`,
		},
		"github graphql, an issue about limits beside an error": {
			answered{preset: "github", budget: github, method: "POST", url: graphql, settled: 1},
			"200 OK\n\n" + `{"data": {"issue": {"title": "secondary rate limit"}, "user": null}, "errors": [{"type": "NOT_FOUND", "message": "Could not resolve to a User"}]}`,
		},
		"github graphql, secondary among other errors": {
			answered{preset: "github", budget: github, method: "POST", url: graphql, want: budgethttp.Verdict{Rule: "graphql-secondary", Means: feedback.Throttled}, until: "2026-06-08T19:01:00Z", settled: 1},
			"200 OK\n\n" + `{"errors": [{"message": "Could not resolve to a User"}, {"message": "You have exceeded a secondary rate limit. Please wait."}]}`,
		},
		"github graphql, an issue about limits": {
			answered{preset: "github", budget: github, method: "POST", url: graphql, settled: 1},
			"200 OK\n\n" + `{"data": {"issue": {"title": "secondary rate limit"}}}`,
		},
		"github, a document of errors": {
			answered{preset: "github", budget: github, method: "GET", url: rest, settled: 1},
			"200 OK\n\n" + `{"errors": [{"message": "secondary rate limit"}]}`,
		},
		"github, a file about limits": {
			answered{preset: "github", budget: github, method: "GET", url: rest, settled: 1},
			"200 OK\n\nYou have exceeded a secondary rate limit.",
		},
		"openai credit": {
			answered{preset: "openai", budget: "openai/team", method: "POST", url: openai, want: budgethttp.Verdict{Rule: "credit", Means: feedback.Exhausted}, until: "2026-06-08T19:15:00Z", settled: 4000},
			"429 Too Many Requests\n\n" + `{"error": {"code": "credit_balance_exhausted", "type": "insufficient_quota"}}`,
		},
		"openai requests": {
			answered{preset: "openai", budget: "openai/team", method: "POST", url: openai, want: budgethttp.Verdict{Rule: "requests", Means: feedback.Throttled, Limit: "requests"}, until: "2026-06-08T19:00:01Z", settled: 4000},
			"429 Too Many Requests\nx-ratelimit-reset-requests: 1s\n\n" + `{"error": {"message": "Rate limit reached for default-codex in organization org-{id} on requests per min. Limit: 20.000000 / min. Current: 24.000000 / min."}}`,
		},
		"openai requests of a day": {
			answered{preset: "openai", budget: "openai/team", method: "POST", url: openai, want: budgethttp.Verdict{Rule: "requests", Means: feedback.Throttled, Limit: "requests"}, until: "2026-06-08T19:07:12Z", settled: 4000},
			"429 Too Many Requests\nx-ratelimit-reset-requests: 7m12s\n\n" + `{"error": {"message": "Rate limit reached on requests per day (RPD): Limit 200, Used 200, Requested 1."}}`,
		},
		"openai tokens": {
			answered{preset: "openai", budget: "openai/team", method: "POST", url: openai, want: budgethttp.Verdict{Rule: "tokens", Means: feedback.Throttled, Limit: "tokens"}, until: "2026-06-08T19:06:00Z", settled: 4000},
			"429 Too Many Requests\nx-ratelimit-reset-tokens: 6m0s\n\n" + `{"error": {"message": "Rate limit reached on tokens per min."}}`,
		},
		"openai, another rate": {
			answered{preset: "openai", budget: "openai/team", method: "POST", url: openai, want: budgethttp.Verdict{Rule: "rate", Means: feedback.Throttled}, until: "2026-06-08T19:00:10Z", settled: 4000},
			"429 Too Many Requests\n\n{}",
		},
		"openai, busy": {
			answered{preset: "openai", budget: "openai/team", method: "POST", url: openai, want: budgethttp.Verdict{Rule: "busy", Means: feedback.Overloaded}, settled: 4000},
			"503 Service Unavailable\n\n{}",
		},
		"openai, a stream of chat.completions": {
			answered{preset: "openai", budget: "openai/team", method: "POST", url: "https://api.openai.com/v1/chat/completions", settled: 18},
			"200 OK\ncontent-type: text/event-stream; charset=utf-8\n\n" +
				`data: {"choices": [{"delta": {"content": "Hi"}}], "usage": null}` + "\n\n" + `data: {"choices": [], "usage": {"total_tokens": 18}}` + "\n\ndata: [DONE]\n\n",
		},
		"openai, a stream of responses": {
			answered{preset: "openai", budget: "openai/team", method: "POST", url: openai, settled: 29},
			"200 OK\ncontent-type: text/event-stream\n\n" + "event: response.created\n" + `data: {"type": "response.created", "response": {"usage": null}}` + "\n\n" +
				"event: response.completed\n" + `data: {"type": "response.completed", "response": {"usage": {"total_tokens": 29}}}` + "\n\n",
		},
		"openai, requests without a reset": {
			answered{preset: "openai", budget: "openai/team", method: "POST", url: openai, want: budgethttp.Verdict{Rule: "requests", Means: feedback.Throttled, Limit: "requests"}, until: "2026-06-08T19:00:10Z", settled: 4000},
			"429 Too Many Requests\n\n" + `{"error": {"message": "on requests per min"}}`,
		},
		"openai, tokens without a reset": {
			answered{preset: "openai", budget: "openai/team", method: "POST", url: openai, want: budgethttp.Verdict{Rule: "tokens", Means: feedback.Throttled, Limit: "tokens"}, until: "2026-06-08T19:00:10Z", settled: 4000},
			"429 Too Many Requests\n\n" + `{"error": {"message": "on tokens per min"}}`,
		},
		"openai, another rate with retry-after": {
			answered{preset: "openai", budget: "openai/team", method: "POST", url: openai, want: budgethttp.Verdict{Rule: "rate", Means: feedback.Throttled}, until: "2026-06-08T19:00:20Z", settled: 4000},
			"429 Too Many Requests\nretry-after: 20\n\n{}",
		},
		"openai, an answer about limits": {
			answered{preset: "openai", budget: "openai/team", method: "POST", url: openai, settled: 29},
			"200 OK\n\n" + `{"usage": {"total_tokens": 29}, "error": {"code": "credit_balance_exhausted", "type": "insufficient_quota"}, "output": "requests per min, tokens per min"}`,
		},
		"shopify, too many variants, with retry-after": {
			answered{preset: "shopify", budget: "shopify/hats", method: "POST", url: shop + "graphql.json", want: budgethttp.Verdict{Rule: "resource", Means: feedback.Throttled, Limit: "points"}, until: "2026-06-08T19:00:04Z", settled: 100, passes: "rest"},
			"429 Too Many Requests\nRetry-After: 4.0\n\n{}",
		},
		"shopify, rest without retry-after": {
			answered{preset: "shopify", budget: "shopify/hats", method: "GET", url: shop + "products.json", want: budgethttp.Verdict{Rule: "rest", Means: feedback.Throttled, Limit: "rest"}, until: "2026-06-08T19:00:01Z", settled: 1, passes: "graphql"},
			"429 Too Many Requests\n\n{}",
		},
		"shopify, a product": {
			answered{preset: "shopify", budget: "shopify/hats", method: "GET", url: shop + "products.json", settled: 1},
			"200 OK\n\n" + `{"errors": [{"extensions": {"code": "THROTTLED"}}], "extensions": {"cost": {"throttleStatus": {"currentlyAvailable": 0}}}}`,
		},
		"shopify, too many variants": {
			answered{preset: "shopify", budget: "shopify/hats", method: "POST", url: shop + "graphql.json", want: budgethttp.Verdict{Rule: "resource", Means: feedback.Throttled, Limit: "points"}, until: "2026-06-08T19:00:01Z", settled: 100, passes: "rest"},
			"429 Too Many Requests\n\n{}",
		},
		"strava, reads": {
			answered{preset: "strava", budget: "strava/app", method: "GET", url: "https://www.strava.com/api/v3/athlete", settled: 1, drift: map[string]int64{"read-quarter": 46, "read-day": 511}},
			"200 OK\nX-ReadRateLimit-Limit: 100,1000\nX-ReadRateLimit-Usage: 47,512\n",
		},
		"youtube stats": {
			answered{preset: "youtube", budget: "youtube/key1", method: "GET", url: "https://youtube.googleapis.com/youtube/v3/videos:batchGetStats", want: budgethttp.Verdict{Rule: "stats-per-day", Means: feedback.Exhausted, Limit: "stats"}, until: "2026-06-09T07:00:00Z", settled: 1, passes: "videos.list"},
			"429 Too Many Requests\n\n" + `{"error": {"message": "1 per day", "errors": [{"reason": "rateLimitExceeded"}]}}`,
		},
		"youtube, a burst": {
			answered{preset: "youtube", budget: "youtube/key1", method: "GET", url: "https://youtube.googleapis.com/youtube/v3/search", want: budgethttp.Verdict{Rule: "burst", Means: feedback.Throttled}, until: "2026-06-08T19:01:00Z", settled: 1},
			"429 Too Many Requests\n\n" + `{"error": {"message": "1 per minute", "errors": [{"reason": "rateLimitExceeded"}]}}`,
		},
		"youtube, a channel's uploads": {
			answered{preset: "youtube", budget: "youtube/key1", method: "POST", url: "https://youtube.googleapis.com/upload/youtube/v3/videos", settled: 1},
			"400 Bad Request\n\n" + `{"error": {"errors": [{"reason": "uploadLimitExceeded"}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.at = now
				response := "HTTP/1.1 " + c.response
				if !strings.Contains(response, "\n\n") {
					response += "\n"
				}
				c.check(t, []byte(response))
			})
		})
	}
}
