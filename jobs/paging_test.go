package jobs

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A first page without the field of next_page may be the only one, or the field may be
// wrong: the run says so, unless another run of the pass shows that the field is right.
func TestAFirstPageThatNamesNoNext(t *testing.T) {
	for name, c := range map[string]struct {
		body, fetch, of, job string // of the regions other than US
		warns                bool
	}{
		"another field":        {`{"next":"2"}`, "", `{}`, "", true},
		"a single page":        {`{}`, "", `{}`, "", true},
		"null":                 {`{"nextPageToken":null}`, "", `{"nextPageToken":null}`, "", false},
		"empty":                {`{"nextPageToken":""}`, "", `{"nextPageToken":""}`, "", false},
		"one page is wanted":   {`{"next":"2"}`, "max_pages = 1", `{}`, "", false},
		"another region has 2": {`{}`, "", `{"nextPageToken":"2"}`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, setup{job: "regions = [\"US\", \"GB\"]", fetch: c.fetch, upstream: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
					switch q := r.URL.Query(); {
					case q.Get("pageToken") != "":
						_, _ = fmt.Fprint(out, `{}`)
					case q.Get("regionCode") == "US":
						_, _ = fmt.Fprint(out, c.body)
					default:
						_, _ = fmt.Fprint(out, c.of)
					}
				})})
				p := w.once()
				check.Equal(t, p.Outcome, Succeeded)
				if warns := strings.Contains(p.Runs[0].Warning, `page 1 has no "nextPageToken"`); warns != c.warns || p.Runs[0].Warning != "" && !warns {
					t.Errorf("warning %q, want one: %t", p.Runs[0].Warning, c.warns)
				}
			})
		})
	}
}

// The modifiers of paths that docs/configuration/values.md shows.
func TestModifiersOfPaths(t *testing.T) {
	f := &Fetch{Items: "groups.#.entries|@flatten", NextFrom: "cursors|@reverse|0"}
	got := must.Get(f.read([]byte(`{"groups":[{"entries":[1,2]},{"entries":[3]}],"cursors":["a","b"]}`)))(t)
	check.Equal(t, string(got.lines), "1\n2\n3\n")
	check.Equal(t, got.next, "b")
	f = &Fetch{Items: "byID|@values"}
	got = must.Get(f.read([]byte(`{"byID":{"7":{"n":1},"8":{"n":2}}}`)))(t)
	check.Equal(t, string(got.lines), "{\"n\":1}\n{\"n\":2}\n")
}
