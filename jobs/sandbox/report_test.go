package sandbox_test

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// reported is what an answer says of the day: what it grants, what is used and left, and its end.
func reported(w *httptest.ResponseRecorder) string {
	h := w.Header()
	return fmt.Sprintf("%s%s%s%s", h["X-Ratelimit-Limit"], h["X-Ratelimit-Used"], h["X-Ratelimit-Remaining"], h["X-Ratelimit-Reset"])
}

// Every answer to an API request says what its day has used, that request included; other
// answers, and a server that was not asked to, say nothing.
func TestReportsUsage(t *testing.T) {
	now := time.Date(2026, time.November, 1, 7, 0, 0, 0, time.UTC) // a midnight; the day has 25 hours
	s := open(t, sandbox.Config{Quota: 103, ReportUsage: true, Now: func() time.Time { return now }})
	ends := fmt.Sprintf("[%d]", time.Date(2026, time.November, 2, 8, 0, 0, 0, time.UTC).Unix())
	for _, c := range []struct {
		target, want string
	}{
		{videos, "[103][1][102]" + ends},
		{search, "[103][101][2]" + ends},
		{search, "[103][101][2]" + ends}, // is rejected
		{"/youtube/v3/nosuch?key=k", "[103][102][1]" + ends},
		{"/youtube/v3/videos", "[103][102][1]" + ends}, // has no key
		{"/_sandbox/usage", "[][][][]"},
	} {
		check.Equal(t, reported(get(s, c.target)), c.want, c.target)
	}
	now = time.Date(2026, time.November, 2, 8, 0, 0, 0, time.UTC)
	check.Equal(t, reported(get(s, videos)), fmt.Sprintf("[103][1][102][%d]", now.Add(24*time.Hour).Unix()), "the next day")
	failing := open(t, sandbox.Config{Quota: 103, ReportUsage: true, FailRate: 1, Now: func() time.Time { return now }})
	check.Equal(t, reported(get(failing, videos)), fmt.Sprintf("[103][1][102][%d]", now.Add(24*time.Hour).Unix()), "an answer that failed")
	check.Equal(t, reported(get(open(t, sandbox.Config{}), videos)), "[][][][]", "unasked")
}
