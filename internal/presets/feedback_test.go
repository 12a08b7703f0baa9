package presets_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// answered is what comes of a response, copied from an upstream's documentation.
type answered struct {
	file        string
	preset      string
	budget      string
	method, url string
	at          string // when it comes, RFC 3339

	want  budgethttp.Verdict // without Operation; the zero value: it refuses nothing
	until string             // its Until, RFC 3339; empty: nothing is locked

	settled int64            // final units of the request
	drift   map[string]int64 // what was added, by limit
	returns string           // when all of that comes back, RFC 3339; empty: not looked at
	passes  string           // an operation that the lock leaves alone
	unread  string           // why something of it could not be read; empty: all could
}

func TestDocumentedResponses(t *testing.T) {
	const (
		youtube = "https://youtube.googleapis.com"
		june    = "2026-06-08T19:00:00Z" // noon in Los Angeles
	)
	midnight := "2026-06-09T07:00:00Z"
	for _, c := range []answered{
		{
			file: "youtube-pool.http", preset: "youtube", budget: "youtube/key1", method: "GET", url: youtube + "/youtube/v3/videos?part=id", at: june,
			want: budgethttp.Verdict{Rule: "pool-quota", Means: feedback.Exhausted, Limit: "pool"}, until: midnight, settled: 1, passes: "search.list",
		},
		{
			file: "youtube-daily.http", preset: "youtube", budget: "youtube/key1", method: "GET", url: youtube + "/youtube/v3/channels?part=id", at: june,
			want: budgethttp.Verdict{Rule: "pool-quota", Means: feedback.Exhausted, Limit: "pool"}, until: midnight, settled: 1, passes: "videos.insert",
		},
		{
			file: "youtube-search.http", preset: "youtube", budget: "youtube/key1", method: "GET", url: youtube + "/youtube/v3/search?part=id", at: june,
			want: budgethttp.Verdict{Rule: "search-per-day", Means: feedback.Exhausted, Limit: "search"}, until: midnight, settled: 1, passes: "videos.list",
		},
		{ // before the bucket said so itself
			file: "youtube-pool.http", preset: "youtube", budget: "youtube/key1", method: "GET", url: youtube + "/youtube/v3/search?part=id", at: june,
			want: budgethttp.Verdict{Rule: "search-quota", Means: feedback.Exhausted, Limit: "search"}, until: midnight, settled: 1, passes: "videos.list",
		},
		{
			file: "youtube-uploads.http", preset: "youtube", budget: "youtube/key1", method: "POST", url: youtube + "/upload/youtube/v3/videos?part=id&uploadType=resumable", at: june,
			want: budgethttp.Verdict{Rule: "uploads-per-day", Means: feedback.Exhausted, Limit: "uploads"}, until: midnight, settled: 1, passes: "search.list",
		},
		{ // a day of 25 hours
			file: "youtube-pool.http", preset: "youtube-2025", budget: "youtube/key1", method: "GET", url: youtube + "/youtube/v3/search?part=id", at: "2025-11-02T07:30:00Z",
			want: budgethttp.Verdict{Rule: "pool-quota", Means: feedback.Exhausted, Limit: "pool"}, until: "2025-11-03T08:00:00Z", settled: 100,
		},
		{
			file: "youtube-daily.http", preset: "youtube-2025", budget: "youtube/key1", method: "GET", url: youtube + "/youtube/v3/videos?part=id", at: "2025-03-08T12:00:00Z",
			want: budgethttp.Verdict{Rule: "pool-quota", Means: feedback.Exhausted, Limit: "pool"}, until: "2025-03-09T08:00:00Z", settled: 1,
		},
		{
			file: "youtube-uploads.http", preset: "youtube-2025", budget: "youtube/key1", method: "POST", url: youtube + "/upload/youtube/v3/videos?part=id", at: "2026-05-27T12:00:00Z",
			want: budgethttp.Verdict{Rule: "pool-per-day", Means: feedback.Exhausted, Limit: "pool"}, until: "2026-05-28T07:00:00Z", settled: 1600,
		},
		{
			file: "github-primary.http", preset: "github", budget: "github/user1", method: "GET", url: "https://api.github.com/users/octocat", at: "2013-08-20T14:50:41Z",
			want: budgethttp.Verdict{Rule: "unnamed-resource", Means: feedback.Exhausted, Limit: "core"}, until: "2013-08-20T15:41:06Z", settled: 1, passes: "search",
		},
		{
			file: "github-secondary.http", preset: "github", budget: "github/user1", method: "POST", url: "https://api.github.com/repos/octocat/Hello-World/issues", at: "2022-10-18T21:42:55Z",
			want: budgethttp.Verdict{Rule: "secondary", Means: feedback.Throttled}, until: "2022-10-18T21:43:55Z", settled: 5,
		},
		{ // GraphQL
			file: "github-secondary.http", preset: "github", budget: "github/user1", method: "POST", url: "https://api.github.com/graphql", at: "2022-10-18T21:42:55Z",
			want: budgethttp.Verdict{Rule: "secondary", Means: feedback.Throttled}, until: "2022-10-18T21:43:55Z", settled: 1,
		},
		{
			file: "github-not-modified.http", preset: "github", budget: "github/user1", method: "GET", url: "https://api.github.com/user", at: "2013-07-01T17:27:06Z",
			settled: 0,
		},
		{
			file: "github-core.http", preset: "github", budget: "github/user1", method: "HEAD", url: "https://api.github.com/repositories/1/pulls", at: "2022-10-18T21:42:55Z",
			settled: 1, drift: map[string]int64{"core": 2}, returns: "2022-10-18T22:33:01Z",
		},
		{ // its own estimate explains the 16 tokens
			file: "openai-headers.http", preset: "openai", budget: "openai/team", method: "POST", url: "https://api.openai.com/v1/chat/completions", at: "2026-06-26T17:57:00Z",
			settled: 4000,
		},
		{
			file: "openai-headers.http", preset: "openai", budget: "openai/team", method: "GET", url: "https://api.openai.com/v1/models", at: "2026-06-26T17:57:00Z",
			settled: 0, drift: map[string]int64{"tokens": 16},
		},
		{
			file: "openai-usage.http", preset: "openai", budget: "openai/team", method: "POST", url: "https://api.openai.com/v1/chat/completions", at: "2024-09-10T23:58:08Z",
			settled: 18,
		},
		{
			file: "openai-quota.http", preset: "openai", budget: "openai/team", method: "POST", url: "https://api.openai.com/v1/responses", at: "2026-06-26T17:57:00Z",
			want: budgethttp.Verdict{Rule: "quota", Means: feedback.Exhausted}, until: "2026-06-26T18:12:00Z", settled: 4000,
		},
		{
			file: "slack-method.http", preset: "slack", budget: "slack/T123", method: "GET", url: "https://slack.com/api/conversations.list", at: "2026-06-26T17:57:00Z",
			want: budgethttp.Verdict{Rule: "method", Means: feedback.Throttled, Limit: "tier4:conversations.list"}, until: "2026-06-26T17:57:30Z", settled: 1, passes: "conversations.history",
		},
		{
			file: "slack-method.http", preset: "slack", budget: "slack/T123", method: "POST", url: "https://hooks.slack.com/services/T/B/x", at: "2026-06-26T17:57:00Z",
			want: budgethttp.Verdict{Rule: "method", Means: feedback.Throttled, Limit: "tier4:webhook"}, until: "2026-06-26T17:57:30Z", settled: 1, passes: "chat.postMessage",
		},
		{
			file: "shopify-cost.http", preset: "shopify", budget: "shopify/hats", method: "POST", url: "https://your-shop.myshopify.com/admin/api/2026-10/graphql.json", at: june,
			settled: 3,
		},
		{ // it is not counted there, so that its own 100 are not of the 334 that are
			file: "shopify-throttled.http", preset: "shopify", budget: "shopify/hats", method: "POST", url: "https://your-shop.myshopify.com/admin/api/2026-10/graphql.json", at: june,
			want: budgethttp.Verdict{Rule: "throttled", Means: feedback.Throttled, Limit: "points"}, until: "2026-06-08T19:00:01Z", settled: 0, drift: map[string]int64{"points": 334}, passes: "rest",
		},
		{
			file: "shopify-too-costly.http", preset: "shopify", budget: "shopify/hats", method: "POST", url: "https://your-shop.myshopify.com/admin/api/2026-10/graphql.json", at: june,
			settled: 100, unread: "the body is not a JSON object or array", // as it is documented, with line breaks in a text
		},
		{
			file: "shopify-rest.http", preset: "shopify", budget: "shopify/hats", method: "GET", url: "https://your-shop.myshopify.com/admin/api/2026-10/products.json", at: june,
			want: budgethttp.Verdict{Rule: "rest", Means: feedback.Throttled, Limit: "rest"}, until: "2026-06-08T19:00:02Z", settled: 1, drift: map[string]int64{"rest": 39}, passes: "graphql",
		},
		{
			file: "strava-usage.http", preset: "strava", budget: "strava/app", method: "GET", url: "https://www.strava.com/api/v3/athlete", at: "2020-10-10T20:11:01Z",
			settled: 1, drift: map[string]int64{"quarter": 313, "day": 27535},
		},
		{
			file: "strava-refused.http", preset: "strava", budget: "strava/app", method: "GET", url: "https://www.strava.com/api/v3/athlete", at: "2020-10-10T20:11:05Z",
			want: budgethttp.Verdict{Rule: "read", Means: feedback.Exhausted, Limit: "read-quarter"}, until: "2020-10-10T20:15:00Z", settled: 1, drift: map[string]int64{"quarter": 691, "day": 29299},
		},
		{
			file: "strava-refused.http", preset: "strava", budget: "strava/app", method: "POST", url: "https://www.strava.com/api/v3/uploads", at: "2020-10-10T20:11:05Z",
			want: budgethttp.Verdict{Rule: "upload", Means: feedback.Exhausted, Limit: "quarter"}, until: "2020-10-10T20:15:00Z", settled: 1, drift: map[string]int64{"quarter": 691, "day": 29299},
		},
	} {
		t.Run(c.preset+"/"+c.file, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.check(t, fixture(t, c.file)) })
		})
	}
}

// check has a server answer a request with the response, and looks at what comes
// of it.
func (c answered) check(t *testing.T, response []byte) {
	reach(t, c.at)
	client := newClient(t, c.preset, c.budget, response)
	got, refused := client.ask(t, c.method, c.url)

	why := ""
	for _, u := range client.seen.unread {
		if why = u.Why; why != c.unread {
			break
		}
	}
	check.Equal(t, why, c.unread, "unread", client.seen.unread)
	want := c.want
	if c.until != "" {
		want.Until = instant(t, c.until)
	}
	must.Equal(t, len(client.seen.charged), 1, "charged", client.seen.charged, "want one charge")
	asked := client.seen.charged[0].Operation
	if want.Rule != "" {
		want.Operation = asked
	}
	if got.Until.Equal(want.Until) {
		got.Until = want.Until
	}
	check.Equal(t, refused, want.Rule != "", "it tells")
	check.Equal(t, got, want, "it tells")
	if final, ok := client.seen.settled[asked]; !ok || final != c.settled {
		t.Errorf("%s is settled with %d (%v), want %d", asked, final, ok, c.settled)
	}
	drift := map[string]int64{}
	for _, d := range client.seen.drifts {
		drift[d.Limit] += d.Added
		if c.returns != "" && !d.Until.Equal(instant(t, c.returns)) {
			t.Errorf("drift of %s comes back at %s, want %s", d.Limit, d.Until, c.returns)
		}
	}
	if !maps.Equal(drift, c.drift) {
		t.Errorf("drift %v, want %v", drift, c.drift)
	}
	if c.until == "" {
		if locks := client.locks(t); len(locks) > 0 {
			t.Errorf("locked %+v, want nothing", locks)
		}
		return
	}
	if locks := client.locks(t); len(locks) != 1 || locks[0].Limit != want.Limit || !locks[0].Until.Equal(want.Until) {
		t.Errorf("locked %+v, want %q until %s", locks, want.Limit, want.Until)
	}
	check.Is(t, check.Err(client.budget.Charge(t.Context(), budget.Call{Operation: asked})), budget.ErrExhausted, asked, "again")
	if c.passes != "" {
		check.NoError(t, check.Err(client.budget.Charge(t.Context(), budget.Call{Operation: c.passes})), c.passes, "which islocked")
	}
	reach(t, c.until)
	if locks := client.locks(t); len(locks) > 0 {
		t.Errorf("at its end there is locked %+v", locks)
	}
}

// reach has fake time come to an instant.
func reach(t *testing.T, at string) {
	t.Helper()
	<-time.After(time.Until(instant(t, at)))
}

func instant(t *testing.T, at string) time.Time {
	t.Helper()
	return must.Get(time.Parse(time.RFC3339, at))(t)
}
