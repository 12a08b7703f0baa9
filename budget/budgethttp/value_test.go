package budgethttp

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
)

// pathsRead are paths as costs.toml may have them.
var pathsRead = []string{
	"error.errors.#.reason", "error.code", "errors.#.type", "errors.#.extensions.code", "extensions.cost.actualQueryCost",
	"usage.total_tokens", "data.rateLimit.cost", "a.#.b.#.c", "a.0.b", "#.a", "#", "a", "a.#", "1",
}

// member is one of an object's, in the order of the document.
type member struct {
	key   string
	value any
}

// decode reads the next value: objects as []member, arrays as []any, numbers as
// they are written.
func decode(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		object := []member{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := decode(d)
			if err != nil {
				return nil, err
			}
			object = append(object, member{key.(string), value})
		}
		_, err = d.Token()
		return object, err
	case json.Delim('['):
		array := []any{}
		for d.More() {
			value, err := decode(d)
			if err != nil {
				return nil, err
			}
			array = append(array, value)
		}
		_, err = d.Token()
		return array, err
	}
	return token, nil
}

// lookUp is what stands at a path, by definition: of members with one name the
// first, of "#" every element, and what is there of each.
func lookUp(value any, path []string) []any {
	if len(path) == 0 {
		return []any{value}
	}
	switch value := value.(type) {
	case []member:
		i := slices.IndexFunc(value, func(m member) bool { return m.key == path[0] })
		if i < 0 {
			return nil
		}
		return lookUp(value[i].value, path[1:])
	case []any:
		if path[0] == "#" && len(path) == 1 {
			return []any{json.Number(strconv.Itoa(len(value)))}
		}
		if path[0] == "#" {
			var found []any
			for _, element := range value {
				found = append(found, lookUp(element, path[1:])...)
			}
			return found
		}
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(value) {
			return lookUp(value[i], path[1:])
		}
	}
	return nil
}

// flat is a list without arrays, as deep as depth.
func flat(list []any, depth int) []any {
	var all []any
	for _, value := range list {
		if array, isArray := value.([]any); isArray && depth > 0 {
			all = append(all, flat(array, depth-1)...)
			continue
		}
		all = append(all, value)
	}
	return all
}

// textsByDefinition are the texts and numbers at a path of a body.
func textsByDefinition(body []byte, path string) []string {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	value, err := decode(d)
	if err != nil {
		return nil
	}
	if _, err := d.Token(); err != io.EOF {
		return nil
	}
	var texts []string
	// A "#" of its own makes one array of what it finds, beside those that stand there.
	for _, one := range flat(lookUp(value, strings.Split(path, ".")), 1) {
		switch one := one.(type) {
		case string:
			texts = append(texts, one)
		case json.Number:
			texts = append(texts, one.String())
		}
	}
	return texts
}

// Whatever a body holds, what is read of it is what stands there: by the path in a
// document that is JSON, and nothing in one that is not; texts wherever they stand.
func FuzzResponseBody(f *testing.F) {
	for _, seed := range []string{
		youtubeSpent, youtubeBucket, githubSpent, shopifyThrottled, shopifyGood,
		`{"error":{"errors":[{"domain":"usageLimits","reason":"dailyLimitExceeded","extendedHelp":"https://code.google.com/apis/console"}],"code":403}}`,
		`{"id":"chatcmpl-1","usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`,
		`{"data":{"viewer":{"login":"octocat"},"rateLimit":{"limit":5000,"cost":1,"remaining":4999,"resetAt":"2026-11-20T12:00:00Z"}}}`,
		`{"a":[{"b":[{"c":1},{"c":[2,[3]]}]},{"b":{"c":4}},null,"x"]}`, `[{"a":1},{"a":"2"}]`, `{"a":1,"a":2}`, `{"\u0061":"\u0062\n"}`,
		`{"a":1e400}`, `{"a":-0.0}`, `{"a":{"0":{"b":1}}}`, `"{\"a\":1}"`, `"[1,2]"`, `{"a":1}{"a":2}`, `{"a":1`, "\xef\xbb\xbf{}", ``, `null`, `<html>per day</html>`,
		strings.Repeat(`[`, 300) + strings.Repeat(`]`, 300), strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200),
	} {
		for i := range pathsRead {
			f.Add([]byte(seed), uint8(i), "per day")
			f.Add([]byte(seed), uint8(i), `errors.#(type=="RATE_LIMITED")#|0.@this`)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, which uint8, text string) {
		path := pathsRead[int(which)%len(pathsRead)]
		seen := newContent(http.Header{}, body)
		texts, _ := seen.jsonTexts(path)
		want := textsByDefinition(body, path)
		if utf8.Valid(body) && !slices.Equal(texts, want) {
			t.Fatalf("%q at %s holds %q, want %q", body, path, texts, want)
		}
		for _, value := range texts {
			if !seen.hasJSON(path, []string{"another", value}) || !seen.hasJSON(path, []string{anyValue}) {
				t.Fatalf("%q at %s holds %q, and does not", body, path, value)
			}
		}
		n, _ := seen.number(&feedback.Source{JSON: path, As: feedback.AsNumber})
		if isOne := slices.ContainsFunc(texts, func(s string) bool { m, ok := limit.ParseDecimal(s); return ok && n != nil && m.Cmp(n) == 0 }); isOne != (n != nil) {
			t.Fatalf("%q at %s is %v, of %q", body, path, n, texts)
		}
		_, _ = seen.jsonTexts(text) // a path of any kind; it does no harm
		text = strings.ToLower(text)
		if has := bytes.Contains(bytes.ToLower(body), []byte(text)); seen.hasText(text) != has {
			t.Fatalf("%q holds %q: %t, want %t", body, text, !has, has)
		}
	})
}
