package presets_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// method is a method of YouTube's discovery document.
type method struct {
	ID          string
	HTTPMethod  string
	Path        string
	MediaUpload []string
}

// youtubeMethods are all of them.
func youtubeMethods(t *testing.T) []method {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("testdata", "youtube-methods.json")))(t)
	var document struct{ Methods []method }
	must.Do(t, json.Unmarshal(text, &document))
	must.Equal(t, len(document.Methods), 83, "methods")
	return document.Methods
}

// operation is the id as the presets write it.
func (m method) operation() string { return strings.TrimPrefix(m.ID, "youtube.") }

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// paths are those at which the method may be called.
func (m method) paths() []string {
	paths := []string{"/" + m.Path}
	paths = append(paths, m.MediaUpload...)
	for i, path := range paths {
		paths[i] = parameter.ReplaceAllString(path, "AUieDaZ-x.1_")
	}
	return paths
}

// Every method of the discovery document is the operation of its own name, at both
// hosts and at the paths of uploads; and there is no operation beside these.
func TestYouTubeKnowsEveryMethod(t *testing.T) {
	for _, name := range []string{"youtube", "youtube-2025"} {
		router := newRouter(t, name, "youtube/key1")
		own := map[string]bool{}
		for _, m := range youtubeMethods(t) {
			own[m.operation()] = true
			for _, host := range []string{"www.googleapis.com", "youtube.googleapis.com"} {
				for _, path := range m.paths() {
					check.Equal(t, router.operation(t, m.HTTPMethod, "https://"+host+path+"?part=snippet&key=k"), m.operation(), name, m.HTTPMethod, host, path)
				}
			}
		}
		for operation := range router.budget.Spec().Costs {
			if !own[operation] {
				t.Errorf("%s: %s is no method", name, operation)
			}
		}
		for _, url := range []string{"https://oauth2.googleapis.com/token", "https://www.googleapis.com/drive/v3/files", "https://youtube.googleapis.com/youtube/v3/guideCategories"} {
			check.Equal(t, router.operation(t, http.MethodGet, url), "", name, url)
		}
	}
}

// What costs.toml of this repository says of YouTube's older quota is what the
// preset says.
func TestYouTubePrices(t *testing.T) {
	now, old := load(t, "youtube").Upstreams[0], load(t, "youtube-2025").Upstreams[0]
	for _, c := range []struct {
		operation string
		now, old  int64
	}{
		{"search.list", 1, 100},
		{"videos.insert", 1, 1600},
		{"videos.list", 1, 1},
		{"videos.batchGetStats", 1, 1},
		{"channels.list", 1, 1},
		{"captions.update", 450, 450},
		{"playlistItems.insert", 50, 50},
		{"liveBroadcasts.list", 5, 5},
		{"liveBroadcasts.insert", 50, 50},
	} {
		check.Equal(t, now.Costs[c.operation].Units, c.now, c.operation, "costs")
		check.Equal(t, old.Costs[c.operation].Units, c.old, c.operation, "cost")
	}
	root := must.Get(config.Load(filepath.Join("..", "..", "costs.toml")))(t)
	for operation, cost := range root.Upstreams[0].Costs {
		if got := old.Costs[operation].Units; got != cost.Units {
			t.Errorf("%s cost %d, and costs.toml says %d", operation, got, cost.Units)
		}
	}
}

// Each method counts in the bucket that it belongs to, and in no other.
func TestYouTubeBuckets(t *testing.T) {
	u := load(t, "youtube").Upstreams[0]
	own := map[string]string{"search.list": "search", "videos.insert": "uploads", "videos.batchGetStats": "stats"}
	for operation := range u.Costs {
		want := own[operation]
		if want == "" {
			want = "pool"
		}
		for _, l := range u.Limits {
			check.Equal(t, l.Covers(operation), l.Name == want, operation, "counts in", l.Name)
		}
	}
}

// No other response with the same statuses locks a day: a burst locks
// everything for a minute, and what is no quota's locks nothing.
func TestYouTubeLocksNoDayByMistake(t *testing.T) {
	const api = "https://www.googleapis.com"
	requests := map[string][2]string{
		"videos.list":          {"GET", api + "/youtube/v3/videos"},
		"search.list":          {"GET", api + "/youtube/v3/search"},
		"videos.insert":        {"POST", api + "/upload/youtube/v3/videos"},
		"videos.batchGetStats": {"GET", api + "/youtube/v3/videos:batchGetStats"},
	}
	responses := map[string]string{ // the rule that matches
		"HTTP/1.1 403 Forbidden\n\n" + `{"error": {"message": "not more than once per day", "errors": [{"reason": "forbidden"}]}}`:            "",
		"HTTP/1.1 429 Too Many Requests\n\n" + `{"error": {"message": "not more than once per day", "errors": [{"reason": "processing"}]}}`:   "",
		"HTTP/1.1 429 Too Many Requests\n\n" + `{"error": {"message": "Queries per minute", "errors": [{"reason": "rateLimitExceeded"}]}}`:    "burst",
		"HTTP/1.1 403 Forbidden\n\n" + `{"error": {"message": "Queries per minute", "errors": [{"reason": "rateLimitExceeded"}]}}`:            "burst",
		"HTTP/1.1 200 OK\n\n" + `{"error": {"message": "per day", "errors": [{"reason": "rateLimitExceeded"}, {"reason": "quotaExceeded"}]}}`: "",
	}
	synctest.Test(t, func(t *testing.T) {
		for _, preset := range []string{"youtube", "youtube-2025"} {
			for operation, request := range requests {
				for response, rule := range responses {
					client := newClient(t, preset, "youtube/key1", []byte(response))
					got, _ := client.ask(t, request[0], request[1])
					check.Equal(t, got.Rule, rule, preset, operation, response, "is taken for")
					check.Equal(t, got.Limit, "", preset, operation, response, "is taken for")
					if locks := client.locks(t); rule == "" && len(locks) > 0 || rule != "" && (len(locks) != 1 || !locks[0].Until.Equal(time.Now().Add(time.Minute))) {
						t.Errorf("%s, %s: %s locks %+v", preset, operation, response, locks)
					}
				}
			}
		}
	})
}
