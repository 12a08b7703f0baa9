package budgethttp

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget/feedback"
)

// A response comes from a cache if any of the caches on the way says so.
func TestIsStored(t *testing.T) {
	for _, test := range []struct {
		name, value string
		want        bool
	}{
		{"Age", "1", true}, {"Age", "0", false}, {"Age", "0, 30", false}, {"Age", "30, 0", false}, {"Age", "30, 30", true}, {"Age", "0, 0", false}, {"Age", "0.5", true}, {"Age", "-1", false},
		{"Age", "", false}, {"Age", "old", false},
		{"X-From-Cache", "1", true},
		{"X-Cache", "HIT", true}, {"X-Cache", "MISS", false}, {"X-Cache", "hit from cloudfront", true}, {"X-Cache", "Miss from cloudfront", false},
		{"X-Cache", "MISS from hit", false}, {"X-Cache", "HIT, MISS", true}, {"X-Cache", "MISS, HIT", true}, {"X-Cache", "MISS, MISS", false},
		{"X-Cache", "TCP_HIT from a1 (AkamaiGHost/1) (-)", true}, {"X-Cache", "TCP_MEM_HIT/200", true}, {"X-Cache", "TCP_MISS", false},
		{"X-Cache", "RefreshHit from cloudfront", true}, {"X-Cache", "Error from cloudfront", false}, {"X-Cache", "", false}, {"X-Cache", " ; / ", false},
		{"CF-Cache-Status", "HIT", true}, {"Cf-Cache-Status", "DYNAMIC", false}, {"Cf-Cache-Status", "STALE", true}, {"Cf-Cache-Status", "EXPIRED", false},
		{"Cache-Status", `ExampleCache; hit; ttl=376`, true}, {"Cache-Status", `ExampleCache; fwd=uri-miss; stored`, false},
		{"Cache-Status", `Origin; fwd=miss, "CDN Company";hit`, true}, {"Cache-Status", `hit-cache; fwd=miss`, false},
		{"Cache-Status", `a; hit=?1`, true}, {"Cache-Status", `a; hit=?0; fwd=miss`, false}, {"X-LiteSpeed-Cache", "hit", true}, {"X-FastCGI-Cache", "BYPASS", false},
		{"X-Cache-Status", "HIT", true}, {"X-Vercel-Cache", "PRERENDER", true}, {"X-Other", "HIT", false},
	} {
		if got := isStored(makeHeader(test.name, test.value)); got != test.want {
			t.Errorf("%s: %s: from a cache %t, want %t", test.name, test.value, got, test.want)
		}
	}
	if isStored(makeHeader("Age", "0", "Age", "7")) || !isStored(makeHeader("Age", "7", "Age", "7.0")) || !isStored(makeHeader("X-Cache", "MISS", "X-Cache", "HIT")) {
		t.Error("the second line is not read")
	}
}

// A date has a comma of its own.
func TestRepeatedDates(t *testing.T) {
	const soon, later = "Fri, 20 Nov 2026 12:01:00 GMT", "Fri, 20 Nov 2026 12:02:00 GMT"
	for _, as := range []feedback.Encoding{feedback.AsHTTPDate, feedback.AsRetryAfter} {
		place := &feedback.Source{Header: "Retry-After", As: as}
		for _, test := range []struct {
			header http.Header
			want   time.Duration
		}{
			{makeHeader("Retry-After", soon), time.Minute},
			{makeHeader("Retry-After", soon, "Retry-After", soon), time.Minute},
			{makeHeader("Retry-After", soon+", "+soon), time.Minute},
			{makeHeader("Retry-After", "Friday, 20-Nov-26 12:01:00 GMT,Friday, 20-Nov-26 12:01:00 GMT"), time.Minute},
			{makeHeader("Retry-After", soon, "Retry-After", later), 0},
			{makeHeader("Retry-After", soon+","+later), 0},
			{makeHeader("Retry-After", "Fri"), 0},
		} {
			until, err := newContent(test.header, nil).until(place, noon)
			switch {
			case test.want == 0 && err == nil, test.want > 0 && (err != nil || !until.At.Equal(noon.Add(test.want))):
				t.Errorf("%v as %s: %+v, %v; want %s", test.header, as, until, err, test.want)
			}
		}
	}
}

// A comma in a timestamp separates its fraction.
func TestRepeatedTimestamps(t *testing.T) {
	place := &feedback.Source{Header: "X-Reset", As: feedback.AsRFC3339}
	const half = "2026-11-20T12:00:00,5Z"
	for _, header := range []http.Header{makeHeader("X-Reset", half), makeHeader("X-Reset", "2026-11-20T12:00:00.5Z,2026-11-20T12:00:00.5Z")} {
		until, err := newContent(header, nil).until(place, noon)
		if err != nil || !until.At.Equal(noon.Add(500*time.Millisecond)) {
			t.Errorf("%v: %+v, %v", header, until, err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat)
		for _, test := range []struct {
			header http.Header
			want   time.Duration
		}{
			{makeHeader(), 0},
			{makeHeader("Retry-After", "7"), 7 * time.Second},
			{makeHeader("Retry-After", "7, 7"), 7 * time.Second},
			{makeHeader("Retry-After", "7", "Retry-After", "8"), 0},
			{makeHeader("Retry-After", "0"), 0},
			{makeHeader("Retry-After", "-1"), 0},
			{makeHeader("Retry-After", "soon"), 0},
			{makeHeader("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"), 0},
			{makeHeader("Retry-After", "9999999999"), 2 * farthest}, // for ages
			{makeHeader("Retry-After", at), 90 * time.Second},
			{makeHeader("Retry-After", at+", "+at), 90 * time.Second},
			{makeHeader("Retry-After-Ms", "250"), 250 * time.Millisecond},
			{makeHeader("Retry-After", "1", "Retry-After-Ms", "250"), time.Second},
		} {
			if got := RetryAfter(test.header); got != test.want {
				t.Errorf("%v: %s, want %s", test.header, got, test.want)
			}
		}
	})
}
