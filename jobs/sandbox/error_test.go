package sandbox_test

import (
	"encoding/json"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// wantError asks target of s and checks the shape of an error's body.
func wantError(t *testing.T, s *sandbox.Server, target string, status int, domain, reason string) {
	t.Helper()
	w := get(s, target)
	if w.Code != status {
		t.Errorf("GET %s: %d, want %d: %s", target, w.Code, status, w.Body)
		return
	}
	check.Equal(t, w.Header().Get("Content-Type"), "application/json; charset=UTF-8", "GET", target, "content type")
	var b struct {
		Error struct {
			Code    int
			Message string
			Errors  []struct{ Message, Domain, Reason string }
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil {
		t.Errorf("GET %s: %v: %s", target, err, w.Body)
		return
	}
	e := b.Error
	if e.Code != status || len(e.Errors) != 1 || e.Message == "" || e.Errors[0].Message != e.Message ||
		e.Errors[0].Domain != domain || e.Errors[0].Reason != reason {
		t.Errorf("GET %s: want %s %s: %s", target, domain, reason, w.Body)
	}
}

func TestErrorBodies(t *testing.T) {
	s := open(t, sandbox.Config{Quota: 3})
	wantError(t, s, "/youtube/v3/videos", 403, "global", "forbidden")
	wantError(t, s, "/youtube/v3/nosuch?key=k", 404, "global", "notFound")
	wantError(t, s, videos+"&pageToken=x", 400, "youtube.parameter", "invalidPageToken")
	wantError(t, s, videos+"&maxResults=0", 400, "youtube.parameter", "invalidParameter")
	wantError(t, s, videos, 403, "youtube.quota", "quotaExceeded")
	wantError(t, open(t, sandbox.Config{FailRate: 1}), videos, 503, "global", "backendError")
}

func TestQuotaExceededIsYouTubes(t *testing.T) {
	const want = `{
  "error": {
    "code": 403,
    "message": "The request cannot be completed because you have exceeded your <a href=\"/youtube/v3/getting-started#quota\">quota</a>.",
    "errors": [
      {
        "message": "The request cannot be completed because you have exceeded your <a href=\"/youtube/v3/getting-started#quota\">quota</a>.",
        "domain": "youtube.quota",
        "reason": "quotaExceeded"
      }
    ]
  }
}
`
	w := get(open(t, sandbox.Config{Quota: 1}), search)
	if got := w.Body.String(); w.Code != 403 || got != want {
		t.Errorf("%d %s\nwant 403 %s", w.Code, got, want)
	}
}

func TestMissingKeyIsYouTubes(t *testing.T) {
	const message = "Method doesn't allow unregistered callers (callers without established identity). " +
		"Please use API Key or other form of API consumer identity to call this API."
	var b struct {
		Error struct{ Message, Status string }
	}
	must.Do(t, json.Unmarshal(get(open(t, sandbox.Config{}), "/youtube/v3/videos").Body.Bytes(), &b))
	check.Equal(t, b.Error.Message, message)
	check.Equal(t, b.Error.Status, "PERMISSION_DENIED")
}
