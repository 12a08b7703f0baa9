package budgethttp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
)

// The reader finds the values at a path of a JSON document, finds none in a body of another
// kind, and finds texts anywhere in a body.
func FuzzResponseBody(f *testing.F) {
	for _, seed := range []string{
		youtubeSpent, githubSpent, shopifyThrottled, shopifyGood, `{"a":[{"b":1},{"b":[2,"x",[3]]},null]}`, `[{"a":1},{"a":"2"}]`, `{"a":1e400}`, `{"a":-0.0}`,
		`"{\"a\":1}"`, `{"a":1}{"a":2}`, `{"a":1`, "\xef\xbb\xbf{\"a\":1}", ``, `null`, `<html>per day</html>`,
	} {
		for _, path := range []string{"a", "a.#.b", "error.errors.#.reason", "extensions.cost.actualQueryCost", `errors.#(type=="RATE_LIMITED")#|0.@this`} {
			f.Add([]byte(seed), path, "per day")
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, path, text string) {
		seen := newContent(http.Header{}, body)
		texts, _ := seen.jsonTexts(path)
		if len(texts) > 0 && !json.Valid(bytes.TrimPrefix(body, byteOrderMark)) {
			t.Fatalf("%q is no JSON, and holds %q", body, texts)
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
		text = strings.ToLower(text)
		if has := bytes.Contains(bytes.ToLower(body), []byte(text)); seen.hasText(text) != has {
			t.Fatalf("%q holds %q: %t, want %t", body, text, !has, has)
		}
	})
}
