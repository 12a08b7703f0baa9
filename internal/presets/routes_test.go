package presets_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/presets"
)

// No preset charges what it does not know: a name that is mistyped, and a request to another
// server, or one that no rule recognises.
func TestUnknownOperationsAreRefused(t *testing.T) {
	for _, preset := range presets.Names() {
		cfg := load(t, preset)
		u := cfg.Upstreams[0]
		name := u.Name + "/" + u.Credentials[0].Label
		if u.Credentials[0].Label == config.AnyCredential {
			name = u.Name + "/one"
		}
		client := newClient(t, preset, name, []byte("HTTP/1.1 204 No Content\r\n\r\n"))
		for operation := range u.Costs {
			mistyped := operation + "x"
			check.Is(t, check.Err(client.budget.Charge(t.Context(), budget.Call{Operation: mistyped})), budget.ErrUnknownOperation, preset, mistyped, "is charged")
		}
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.upstream.example/token-in-the-path", nil))(t)
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		var asked *url.Error
		if !errors.As(err, &asked) || !errors.Is(err, budget.ErrUnknownOperation) || !strings.Contains(asked.Err.Error(), "GET api.upstream.example") || strings.Contains(asked.Err.Error(), "token") {
			t.Errorf("%s: a request to another host: %v", preset, err)
		}
		if len(client.seen.charged) > 0 {
			t.Errorf("%s: charged %+v", preset, client.seen.charged)
		}
	}
}

// newRouter is a client that is never refused for want of units.
func newRouter(t *testing.T, preset, name string) *client {
	t.Helper()
	spec := must.Get(load(t, preset).Spec(name))(t)
	spec.Observe = true
	spec.Unknown = budget.Unknown{Allowed: true}
	return newClientFor(t, spec, []byte("HTTP/1.1 204 No Content\r\n\r\n"))
}

// operation is the one that a request is; empty where it is none.
func (c *client) operation(t *testing.T, method, url string) string {
	t.Helper()
	c.ask(t, method, url)
	must.Equal(t, len(c.seen.charged), 1, method, url, "is charged … times")
	if found := c.seen.charged[0].Operation; found != budgethttp.Unmatched {
		return found
	}
	return ""
}

func TestRoutes(t *testing.T) {
	routers := map[string]*client{}
	for _, c := range []struct{ preset, budget, method, url, want string }{
		{"github", "github/user1", "GET", "https://api.github.com/repos/octocat/Hello-World/issues?per_page=100", "rest.read"},
		{"github", "github/user1", "HEAD", "https://api.github.com/octocat", "rest.read"},
		{"github", "github/user1", "POST", "https://api.github.com/repos/octocat/Hello-World/issues", "rest.create"},
		{"github", "github/user1", "POST", "https://uploads.github.com/repos/octocat/Hello-World/releases/1/assets?name=a", "rest.create"},
		{"github", "github/user1", "PATCH", "https://api.github.com/repos/octocat/Hello-World/issues/1", "rest.write"},
		{"github", "github/user1", "DELETE", "https://api.github.com/repos/octocat/Hello-World", "rest.write"},
		{"github", "github/user1", "GET", "https://api.github.com/search/issues?q=x", "search"},
		{"github", "github/user1", "GET", "https://api.github.com/search/code?q=x", "search.code"},
		{"github", "github/user1", "GET", "https://api.github.com/rate_limit", "rate_limit"},
		{"github", "github/user1", "POST", "https://api.github.com/graphql", "graphql"},
		{"github", "github/user1", "GET", "https://codeload.github.com/octocat/Hello-World/legacy.tar.gz/refs/heads/main", "download"},
		{"github", "github/user1", "GET", "https://release-assets.githubusercontent.com/x", "download"},
		{"github", "github/user1", "GET", "https://productionresultssa0.blob.core.windows.net/x", "download"},
		{"github", "github/user1", "GET", "https://github.example.com/api/v3/octocat", ""},
		{"openai", "openai/team", "POST", "https://api.openai.com/v1/responses", "responses"},
		{"openai", "openai/team", "POST", "https://api.openai.com/v1/chat/completions", "chat.completions"},
		{"openai", "openai/team", "POST", "https://api.openai.com/v1/embeddings", "embeddings"},
		{"openai", "openai/team", "GET", "https://api.openai.com/v1/models", "other"},
		{"openai", "openai/team", "GET", "https://api.openai.com/v1/responses/resp_1", "other"},
		{"openai", "openai/team", "POST", "https://example.com/v1/responses", ""},
		{"shopify", "shopify/hats", "POST", "https://your-shop.myshopify.com/admin/api/2026-10/graphql.json", "graphql"},
		{"shopify", "shopify/hats", "GET", "https://your-shop.myshopify.com/admin/api/2026-10/products.json?limit=50", "rest"},
		{"shopify", "shopify/hats", "PUT", "https://your-shop.myshopify.com/admin/api/2026-10/products/1.json", "rest"},
		{"shopify", "shopify/hats", "GET", "https://your-shop.myshopify.com/products", ""},
		{"slack", "slack/T123", "POST", "https://slack.com/api/chat.postMessage", "chat.postMessage"},
		{"slack", "slack/T123", "GET", "https://slack.com/api/conversations.list?limit=100", "conversations.list"},
		{"slack", "slack/T123", "POST", "https://slack.com/api/admin.users.list", "unlisted"},
		{"slack", "slack/T123", "POST", "https://hooks.slack.com/services/T/B/x", "webhook"},
		{"slack", "slack/T123", "POST", "https://files.slack.com/upload/v1/abc", "file-transfer"},
		{"slack", "slack/T123", "POST", "https://hooks.slack.com/actions/T1/2/x", "elsewhere"},
		{"slack", "slack/T123", "GET", "https://avatars.slack-edge.com/1_72.png", "elsewhere"},
		{"slack", "slack/T123", "POST", "https://slack.example.com/api/chat.postMessage", ""},
		{"strava", "strava/app", "GET", "https://www.strava.com/api/v3/athlete/activities?page=1", "read"},
		{"strava", "strava/app", "PUT", "https://www.strava.com/api/v3/activities/1", "read"},
		{"strava", "strava/app", "POST", "https://www.strava.com/api/v3/activities", "activities.create"},
		{"strava", "strava/app", "POST", "https://www.strava.com/api/v3/uploads", "uploads.create"},
		{"strava", "strava/app", "GET", "https://www.strava.com/api/v3/uploads/1", "read"},
	} {
		if routers[c.preset] == nil {
			routers[c.preset] = newRouter(t, c.preset, c.budget)
		}
		check.Equal(t, routers[c.preset].operation(t, c.method, c.url), c.want, c.preset, c.method, c.url)
	}
}

// Each method of Slack counts in its tier for itself, and all of them in the limit
// that a refusal locks.
func TestSlackTiers(t *testing.T) {
	spec := must.Get(load(t, "slack").Spec("slack/T123"))(t)
	perMinute := map[int64]int{}
	for operation := range spec.Costs {
		least, tiers := int64(100), 0
		for _, l := range spec.Limits {
			if !l.Covers(operation) {
				continue
			}
			if !l.PerOperation {
				t.Errorf("limit %s is shared by all methods", l.Name)
			}
			least = min(least, max(l.Quota, l.Limit))
			tiers++
		}
		perMinute[least]++
		if tiers == 0 || tiers > 2 {
			t.Errorf("%s counts in %d limits, want its tier's and the common one", operation, tiers)
		}
	}
	// Tier 1, 2 with what is not listed, 3, posting with webhooks, 4 with files and what has no limit.
	want := map[int64]int{1: 13, 20: 80, 50: 48, 60: 3, 100: 23}
	for quota, n := range want {
		check.Equal(t, perMinute[quota], n, "operations have", quota, "a minute")
	}
}

// Each operation of GitHub counts in the limits that are documented for it: calls,
// but points where the documentation counts points.
func TestGitHubLimits(t *testing.T) {
	spec := must.Get(load(t, "github").Spec("github/user1"))(t)
	want := map[string][]string{
		"rest.read":   {"core", "points", "at-once"},
		"rest.write":  {"core", "points", "at-once"},
		"rest.create": {"core", "points", "content-minute", "content-hour", "at-once"},
		"search":      {"search", "points", "at-once"},
		"search.code": {"search-code", "points", "at-once"},
		"rate_limit":  {"points", "at-once"},
		"download":    {"points", "at-once"}, // of 0 units
		"graphql":     {"graphql", "graphql-minute", "at-once"},
	}
	for operation := range spec.Costs {
		var got []string
		for _, l := range spec.Limits {
			if l.Covers(operation) {
				got = append(got, l.Name)
			}
		}
		check.EqualSlices(t, got, want[operation], operation, "counts in")
	}
	for _, l := range spec.Limits {
		check.Equal(t, l.Name == "points" || l.Name == "graphql", l.Counts == limit.CountUnits, "limit", l.Name, "counts", l.Counts)
	}
}
