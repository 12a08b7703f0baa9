package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
)

// Each fault that the tests of the pages look for is found in a page that has it, and none in a
// page that is right: else those tests could not fail.
func TestFaultsAreFound(t *testing.T) {
	effort.Processes(t)
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	for _, c := range []struct{ name, policy, body, fault string }{
		{"nothing", "default-src 'self'", `<p>A <a href="/b">link</a>, <button>a button</button>.</p>`, ""},
		{"script that throws", "", `<script>throw new Error("broken")</script>`, "exception: Uncaught Error: broken"},
		{"promise that is rejected", "", `<script>Promise.reject(new Error("broken"))</script>`, "exception: Uncaught (in promise) Error: broken"},
		{"error in the console", "", `<script>console.error("broken")</script>`, "console: error: broken"},
		{"missing image", "", `<img alt="" src="/missing.png">`, "log: error of network: Failed to load resource"},
		{"image of another host", "", `<img alt="" src="` + other.URL + `/a.png">`, "request to another host: " + other.URL},
		{"inline script", "default-src 'self'", `<script>1</script>`, "content security policy: script-src"},
		{"inline style", "default-src 'self'", `<p style="color: red">a</p>`, "content security policy: style-src"},
		{"dialog", "", `<script>alert("boo")</script>`, "dialog: alert: boo"},
		{"wide picture", "", `<div style="width: 500px">a</div>`, "the page is 5"},
		{"image without words", "", `<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">`, "axe: image-alt"},
		{"pale text", "", `<p style="color: #aaa; background: #fff">pale</p>`, "axe: color-contrast"},
		{"pale text that is folded", "", `<details><summary>more</summary><p style="color: #aaa; background: #fff">pale</p></details>`, "with all opened: axe: color-contrast"},
		{"focus that is not shown", "", `<style>:focus { outline: none }</style><p><a href="/b">bare</a></p>`, `a "bare" looks the same with the focus`},
		{"order of its own", "", `<button>one</button> <button tabindex="1">two</button>`, `Tab leaves the page before button "two"`},
		{"control that Tab leads past", "", `<button>one</button> <button onfocus="this.nextElementSibling.focus()">two</button> <button>three</button>`, `not to button "two"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := stub(t, c.policy, c.body)
			b := newTab(t, strings.TrimPrefix(server.URL, "http://"))
			b.size(phone, false)
			b.visit(server.URL, http.StatusOK)
			faults := strings.Join(b.inspect(phone), "\n")
			if check.Contains(t, faults, c.fault); c.fault == "" {
				check.Equal(t, faults, "")
			}
		})
	}
}

// phone and desk are the widths at which pages are looked at; narrow is a desk's at 400 percent.
const phone, desk, narrow = 390, 1280, 320

// inspect says all that is wrong with the page as loaded, and then with all that can be
// opened in it.
func (b *tab) inspect(width int64) []string {
	b.t.Helper()
	wrong, _ := b.stops()
	faults := append(b.regard(width), wrong...)
	if eval[int](b, `[...document.querySelectorAll("details:not([open])")].filter(d => d.open = true).length`) > 0 {
		for _, fault := range b.regard(width) {
			if !slices.Contains(faults, fault) {
				faults = append(faults, "with all opened: "+fault)
			}
		}
	}
	return append(faults, b.take()...)
}

// regard says what is wrong with what the page shows.
func (b *tab) regard(width int64) []string {
	b.t.Helper()
	faults := b.take()
	if wide := b.wide(width); wide != "" {
		faults = append(faults, wide)
	}
	for _, v := range b.violations() {
		faults = append(faults, fmt.Sprint(v))
	}
	return faults
}

// stub serves a page.
func stub(t testing.TB, policy, body string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
		case "/favicon.ico": // the browser asks for it by itself
			w.WriteHeader(http.StatusNoContent)
			return
		default:
			http.NotFound(w, r)
			return
		}
		if policy != "" {
			w.Header().Set("Content-Security-Policy", policy)
		}
		_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>Stub</title><main><h1>Stub</h1>%s</main></html>`, body)
	}))
	t.Cleanup(server.Close)
	return server
}
