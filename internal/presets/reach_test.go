package presets_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/presets"
)

// owns reports whether an address is below a base_url of the upstream, or at one of its hosts.
func owns(u config.Upstream, address *url.URL) bool {
	for _, base := range u.BaseURLs {
		if base.Scheme == address.Scheme && base.Host == address.Host && strings.HasPrefix(address.Path+"/", base.Path+"/") {
			return true
		}
	}
	for _, host := range u.Hosts {
		below, any := strings.CutPrefix(host.Name, "*")
		if address.Host == host.Name || any && strings.HasSuffix(address.Host, below) {
			return true
		}
	}
	return false
}

// Each preset says where its API is and how a request carries the secret.
func TestReach(t *testing.T) {
	bearer := config.Secret{Header: "Authorization", Prefix: "Bearer "}
	for name, want := range map[string]struct {
		secret  config.Secret
		address string
		other   string
	}{
		"github":       {bearer, "https://api.github.com/repos/a/b", "https://github.com/a/b"},
		"openai":       {bearer, "https://api.openai.com/v1/models", "https://auth.openai.com/oauth/token"},
		"shopify":      {config.Secret{Header: "X-Shopify-Access-Token"}, "https://hats.myshopify.com/admin/api/2026-10/shop.json", "https://myshopify.com/"},
		"slack":        {bearer, "https://slack.com/api/chat.postMessage", "https://slack.com/help"},
		"strava":       {bearer, "https://www.strava.com/api/v3/athlete", "https://www.strava.com/oauth/token"},
		"youtube":      {config.Secret{Query: "key"}, "https://youtube.googleapis.com/batch", "https://www.googleapis.com/drive/v3/files"},
		"youtube-2025": {config.Secret{Query: "key"}, "https://www.googleapis.com/batch/youtube/v3", "https://oauth2.googleapis.com/token"},
	} {
		u := load(t, name).Upstreams[0]
		check.Equal(t, u.Secret, want.secret, name, "secret")
		check.Equal(t, owns(u, must.Get(url.Parse(want.address))(t)), true, name, want.address)
		check.Equal(t, owns(u, must.Get(url.Parse(want.other))(t)), false, name, want.other)
		check.Equal(t, u.MethodOverride, strings.HasPrefix(name, "youtube"), name, "method_override")
	}
	check.Equal(t, len(presets.Names()), 7, "presets, with a line above for each")
}

func TestYouTubeReachesEveryMethod(t *testing.T) {
	for _, name := range []string{"youtube", "youtube-2025"} {
		u := load(t, name).Upstreams[0]
		for _, m := range youtubeMethods(t) {
			for _, path := range m.paths() {
				for _, host := range []string{"www.googleapis.com", "youtube.googleapis.com"} {
					check.Equal(t, owns(u, &url.URL{Scheme: "https", Host: host, Path: path}), true, name, host, path)
				}
			}
		}
	}
}

// The answer to a refused call has the form of the upstream's own refusals.
func TestFinalBodies(t *testing.T) {
	final := func(preset string, into any) int {
		f := load(t, preset).Upstreams[0].Final
		must.Do(t, json.Unmarshal(f.Fill("spent", f.Status), into))
		return f.Status
	}
	for _, preset := range []string{"youtube", "youtube-2025"} {
		var google struct {
			Error struct {
				Code    int
				Message string
				Errors  []struct{ Message, Domain, Reason string }
			}
		}
		check.Equal(t, final(preset, &google), 403, preset)
		check.Equal(t, google.Error.Code, 403, preset)
		check.Equal(t, google.Error.Message, "spent", preset)
		must.Equal(t, len(google.Error.Errors), 1, preset)
		check.Equal(t, google.Error.Errors[0], struct{ Message, Domain, Reason string }{"spent", "youtube.quota", "quotaExceeded"}, preset)
	}
	github := map[string]string{}
	check.Equal(t, final("github", &github), 403, "github")
	check.Equal(t, github["message"], "spent", "github")
	check.Equal(t, len(github), 2, "fields: some clients fail if there is an error", github)
	var slack struct {
		OK    *bool
		Error string
	}
	check.Equal(t, final("slack", &slack), 200, "slack")
	check.Equal(t, slack.OK != nil && !*slack.OK && slack.Error == "ratelimited", true, "slack")
	for _, preset := range []string{"openai", "shopify", "strava"} {
		check.Equal(t, load(t, preset).Upstreams[0].Final, config.Final{}, preset)
	}
}
