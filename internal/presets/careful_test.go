package presets_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/feedback"
)

// A day locked by mistake could not be had back: what the text calls a burst is one,
// whatever the reason beside it. The bodies have the form of the documented ones; what
// is looked at here are the rules.
func TestBurstsAreNoSpentDays(t *testing.T) {
	for _, preset := range []string{"youtube", "youtube-2025"} {
		for _, path := range []string{"videos", "search"} {
			for _, reason := range []string{"quotaExceeded", "dailyLimitExceeded", "rateLimitExceeded", "userRateLimitExceeded"} {
				for _, status := range []string{"403 Forbidden", "429 Too Many Requests"} {
					synctest.Test(t, func(t *testing.T) {
						reach(t, "2026-06-08T19:00:00Z")
						client := newClient(t, preset, "youtube/key1", []byte("HTTP/1.1 "+status+"\r\n\r\n"+
							`{"error":{"message":"Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'","errors":[{"reason":"`+reason+`"}]}}`))
						v, refused := client.ask(t, "GET", "https://www.googleapis.com/youtube/v3/"+path)
						if !refused || v.Means != feedback.Throttled || !v.Until.Equal(time.Now().Add(time.Minute)) {
							t.Errorf("%s %s %s %s: %+v", preset, path, status, reason, v)
						}
					})
				}
			}
		}
	}
}
