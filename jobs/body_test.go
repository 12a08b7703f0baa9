package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/jsonpath"
	"github.com/quotactl/quotactl/internal/must"
)

// Whatever an upstream answers, a page adds the body's values, none lost and none
// made up, each whole on one line; the next token is the one that stands there;
// what is neither is an error; and an error's excerpt is one line of bounded
// length without the secret.
func FuzzBody(f *testing.F) {
	const secret = "hunter2-key-of-mine"
	for _, seed := range []string{
		`{"items":[{"id":1},"two",null],"nextPageToken":"abc"}`, `{"items":{}}`, `[1,2]`, `{"nextPageToken":12345678901234567890}`, `{"nextPageToken":[]}`,
		`{"error":{"message":"the key hunter2-key-of-mine is bad\nsecond line"}}`, "{\"items\":[\"\xff\"]}", ``, `{"items":[1`, strings.Repeat(`[`, 200),
		" {\"items\" : [ 1,\n\"a\\u000ab\", null ] ,\r\n\"nextPageToken\": false } ",
		`{"data":{"items":[[],{}],"next":{"token":"t"}},"data":{"items":null,"next":{"token":1e400}}}`,
		`{"message":"\ud800\u2028hunter2\u002dkey-of-min\u0065"}`, "<html>\nhunter2%2Dkey-of-mine \xff\x00</html>",
		"\xef\xbb\xbf{}", "{} {}", "null", `{"":{"":[1]}}`, `{"nextPageToken":true}`,
	} {
		f.Add([]byte(seed), "items", "nextPageToken")
		f.Add([]byte(seed), "data.items", "data.next.token")
		f.Add([]byte(seed), "", "")
	}
	f.Add([]byte(`{"a":{"b":[{"c":"\n"}]}}`), "a.b", "a.b.0.c")
	f.Fuzz(func(t *testing.T, body []byte, items, next string) {
		if strings.ContainsAny(items+next, "\\*?#|@!{}[]()") { // jsonpath's own tests take those
			return
		}
		fetch := &Fetch{Items: items, NextFrom: next}
		whole, err := decoded(body)
		checkLines(t, fetch, body, whole, err == nil)
		checkToken(t, fetch, body, err == nil)
		excerpt := (&secrets{}).excerpt(body, len(items)%2 == 0, secret)
		if strings.Contains(excerpt, secret) || strings.ContainsFunc(excerpt, unicode.IsControl) || !utf8.ValidString(excerpt) ||
			utf8.RuneCountInString(excerpt) > maxExcerpt+3 {
			t.Fatalf("%q has the excerpt %q", body, excerpt)
		}
	})
}

// decoded is a JSON text's value, its numbers as they are written.
func decoded(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err == nil {
		return nil, errors.New("more than one value")
	}
	if !json.Valid(text) { // what follows the value is none
		return nil, errors.New("not JSON")
	}
	return value, nil
}

// at is the value at a path; jsonpath's own tests hold it to a model.
func at(body []byte, path string, valid bool) (any, bool) {
	found, ok := jsonpath.Get(string(body), path)
	if !valid || !ok {
		return nil, false
	}
	value, err := decoded([]byte(found.Raw))
	return value, err == nil
}

// checkLines holds what a page adds to the body's value.
func checkLines(t *testing.T, fetch *Fetch, body []byte, whole any, valid bool) {
	want, right := []any{whole}, valid
	if fetch.Items != "" {
		found, there := at(body, fetch.Items, valid)
		list, isList := found.([]any)
		want, right = list, valid && there && (isList || found == nil)
	}
	text, err := fetch.lines(body)
	must.Equal(t, err == nil, right, "items", fetch.Items, "of", body, text, err)
	if err != nil {
		return
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	must.Equal(t, len(lines), len(want)+1, "items", fetch.Items, "of", body)
	must.Equal(t, len(lines[len(want)]), 0, "items", fetch.Items, "of", body)
	for i, value := range want {
		if got, err := decoded(lines[i]); err != nil || !reflect.DeepEqual(got, value) {
			t.Fatalf("items %q of %q: line %d is %q (%v), want %v", fetch.Items, body, i, lines[i], err, value)
		}
	}
}

// checkToken holds the next page's token to the body's value.
func checkToken(t *testing.T, fetch *Fetch, body []byte, valid bool) {
	want, right := "", true
	if fetch.NextFrom != "" {
		found, _ := at(body, fetch.NextFrom, valid)
		switch value := found.(type) {
		case nil:
		case string:
			want = value
		case json.Number:
			want = value.String()
		case bool:
			right = !value
		default:
			right = false
		}
		right = right && valid
	}
	got, _, err := fetch.nextToken(body)
	if (err == nil) != right || got != want && right {
		t.Fatalf("token %q of %q: %q, %v, want %q", fetch.NextFrom, body, got, err, want)
	}
}

// The report of an error body does not contain the secret, however JSON writes that.
func TestExcerptHidesTheSecret(t *testing.T) {
	const secret = "a/b\"é+long"
	for _, body := range []string{`{"error":{"message":"ZZa\/b\"\u00e9+longZZ"}}`, `{"error":{"message":"ZZa%2Fb%22%C3%A9%2BlongZZ"}}`} {
		check.Equal(t, (&secrets{}).excerpt([]byte(body), true, secret), ": ZZ[secret]ZZ", body)
	}
}
