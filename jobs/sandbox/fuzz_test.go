package sandbox

import (
	"bytes"
	"net/url"
	"testing"
)

// FuzzPage: whatever is asked for, the answer is a page or an error, and a page stays within its listing.
func FuzzPage(f *testing.F) {
	f.Add("pageToken=CAUQAA&maxResults=50")
	f.Add("pageToken=CP___________wEQAA") // offset -1, if it were a signed 64-bit number
	f.Add("id=a,b&pageToken=CAEQAA")
	f.Fuzz(func(t *testing.T, raw string) {
		query, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		p, refusal := parsePage("videos", query, 7)
		if refusal != nil {
			return
		}
		if p.offset < 0 || p.offset > p.listing.total || p.size < 1 || p.size > maxPageSize {
			t.Fatalf("%q: page %+v", raw, p)
		}
		p.response(resources["videos"])
	})
}

// FuzzLogLine: a line that is taken is written back as it was understood.
func FuzzLogLine(f *testing.F) {
	f.Add([]byte(`{"at":"2026-06-01T12:00:00.000001Z","method":"GET","path":"/youtube/v3/videos","query":"a=b&c=d","units":1,"status":200}`))
	f.Add([]byte(`{"at":"0000-01-01T00:00:00.000000Z","units":0,"status":403,"reason":"quotaExceeded"}`))
	f.Add([]byte(`{"at":"0000-01-01T00:00:00.000000+23:59"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEntry(b)
		if err != nil {
			return
		}
		first := e.encode()
		again, err := decodeEntry(first)
		if err != nil {
			t.Fatalf("%q was taken, its copy %q was not: %v", b, first, err)
		}
		if second := again.encode(); !bytes.Equal(first, second) {
			t.Fatalf("%q became %q, then %q", b, first, second)
		}
	})
}
