package jobs

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// Whatever an upstream answers, a page adds whole lines of JSON or is an error,
// and an error's excerpt is one line of bounded length without the secret.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"items":[{"id":1},"two",null],"nextPageToken":"abc"}`, `{"items":{}}`, `[1,2]`, `{"nextPageToken":12345678901234567890}`, `{"nextPageToken":[]}`,
		`{"error":{"message":"the key hunter2-key-of-mine is bad\nsecond line"}}`, "{\"items\":[\"\xff\"]}", ``, `{"items":[1`, strings.Repeat(`[`, 200),
	} {
		f.Add([]byte(seed), "items", "nextPageToken")
	}
	f.Add([]byte(`{"a":{"b":[{"c":"\n"}]}}`), "a.b", "a.c")
	f.Fuzz(func(t *testing.T, body []byte, items, next string) {
		const secret = "hunter2-key-of-mine"
		fetch := &Fetch{Items: items, NextFrom: next}
		lines, err := fetch.lines(body)
		if err == nil {
			for line := range bytes.SplitSeq(bytes.TrimSuffix(lines, []byte("\n")), []byte("\n")) {
				if len(lines) > 0 && !json.Valid(line) {
					t.Fatalf("%q adds the line %q", body, line)
				}
			}
			if len(lines) > 0 && lines[len(lines)-1] != '\n' {
				t.Fatalf("%q adds a line without an end: %q", body, lines)
			}
		}
		if _, err := fetch.nextToken(body); err == nil && next != "" && !json.Valid(body) {
			t.Fatalf("a token was found in what is not JSON: %q", body)
		}
		excerpt := (&Runner{}).excerpt(body, secret)
		if strings.Contains(excerpt, secret) || strings.ContainsAny(excerpt, "\n\r") || len([]rune(excerpt)) > maxExcerpt+3 {
			t.Fatalf("%q is told as %q", body, excerpt)
		}
	})
}
