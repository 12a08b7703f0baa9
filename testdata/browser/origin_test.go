package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// elsewhere serves pages that the daemon's user may come by. It has three names: the daemon's
// own, on another port, which browsers send the same cookies; another of this machine; and a
// foreign one.
type elsewhere struct {
	*httptest.Server
	body atomic.Value // of each page, a string
}

// shows has the pages show something.
func (e *elsewhere) shows(format string, args ...any) { e.body.Store(fmt.Sprintf(format, args...)) }

func newElsewhere(t testing.TB) *elsewhere {
	t.Helper()
	e := &elsewhere{}
	e.shows("")
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/favicon.ico" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Elsewhere</title><p>elsewhere at %s</p>%s</html>`, r.Host, e.body.Load())
	}))
	t.Cleanup(e.Close)
	return e
}

// names are the addresses at which a server of 127.0.0.1 is reached.
func names(t testing.TB, address string) []string {
	t.Helper()
	at := must.Get(url.Parse(address))(t)
	return []string{"http://127.0.0.1:" + at.Port(), "http://localhost:" + at.Port(), "http://" + foreign + ":" + at.Port()}
}

// frames are the texts of all frames in a page, also of those in processes of their own.
func (b *tab) frames() (texts []string) {
	b.t.Helper()
	tree := call(b, page.GetFrameTree, cdp.Empty{})
	for _, child := range tree.FrameTree.ChildFrames {
		world := call(b, page.CreateIsolatedWorld, page.CreateIsolatedWorldParams{FrameID: child.Frame.ID})
		found := call(b, runtime.Evaluate, runtime.EvaluateParams{Expression: "document.documentElement.innerText", ContextID: world.ExecutionContextID})
		texts = append(texts, string(found.Result.Value))
	}
	own := chromedp.FromContext(b.ctx).BrowserContextID
	for _, target := range must.Get(chromedp.Targets(b.ctx))(b.t) {
		if target.Type != "iframe" || target.BrowserContextID != own {
			continue
		}
		ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithTargetID(target.TargetID), chromedp.WithDetachOnCancel())
		texts = append(texts, must.Get(chromedp.Run(ctx, chromedp.Evaluate[string]("document.documentElement.innerText")))(b.t))
		cancel()
	}
	return texts
}

// What the daemon shows stays with its own pages: no page of another origin frames it, reads it,
// or loads it as an image or a script. The same page gets all that from a server that does not
// defend itself: else the test would show nothing.
func TestOtherOrigins(t *testing.T) {
	w := rich(t)
	w.start()
	open := openServer(t)
	for _, of := range []struct {
		name, address string
		open          bool
	}{{"the daemon", w.url, false}, {"a server without defence", open.URL, true}} {
		e := newElsewhere(t)
		for _, name := range names(t, e.URL) {
			t.Run(of.name+" from "+strings.Split(name, ":")[1][2:], func(t *testing.T) {
				b := newTab(t, "")
				for _, path := range []string{"/", "/budget?name=youtube/key1", "/jobs", "/v1/status", "/events"} {
					if path != "/events" { // it never ends
						e.shows(`<iframe title="framed" src="%s%s"></iframe>`, of.address, path)
						b.visit(name, http.StatusOK)
						framed := strings.Join(b.frames(), "\n")
						check.Equal(t, strings.Contains(framed, "youtube/key1"), of.open, path, "in a frame shows", framed)
						e.shows("")
					}
					b.visit(name, http.StatusOK)
					for _, mode := range []string{`mode: "cors"`, `mode: "cors", credentials: "include"`} {
						got := eval[string](b, `fetch(%q, {%s}).then(r => r.status + "", e => "refused")`, of.address+path, mode)
						check.Equal(t, got != "refused", of.open, path, "by fetch with", mode, "is", got)
					}
				}
				b.visit(name, http.StatusOK)
				for _, path := range assets(of.open) {
					for _, tag := range []string{"img", "script"} {
						if of.open && strings.HasSuffix(path, ".js") != (tag == "script") {
							continue
						}
						got := eval[string](b, `new Promise(resolve => {
							const el = document.createElement(%q);
							el.onload = () => resolve("loaded");
							el.onerror = () => resolve("refused");
							el.src = %q;
							document.body.append(el);
						})`, tag, of.address+path)
						check.Equal(t, got == "loaded", of.open, path, "as", tag, "is", got)
					}
				}
			})
		}
	}
}

// assets are paths that another page could load as an image or a script.
func assets(open bool) []string {
	if open {
		return []string{"/a.js", "/a.svg"}
	}
	return []string{"/", "/v1/status", "/events", "/assets/page.js", "/favicon.ico"}
}

// openServer serves what the daemon does to any page.
func openServer(t testing.TB) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		switch r.URL.Path {
		case "/a.js":
			w.Header().Set("Content-Type", "text/javascript")
		case "/a.svg":
			w.Header().Set("Content-Type", "image/svg+xml")
			_, _ = fmt.Fprint(w, `<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>`)
		default:
			_, _ = fmt.Fprint(w, `<p>youtube/key1</p>`)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// Under a foreign name, which may resolve to this machine, the daemon answers nothing.
func TestForeignHost(t *testing.T) {
	effort.Processes(t)
	w := rich(t)
	w.start()
	b := newTab(t, "")
	for _, page := range pages {
		at := strings.Replace(w.url, "127.0.0.1", foreign, 1)
		b.visit(at+page.path, http.StatusForbidden)
		check.Equal(t, strings.Contains(b.text(), "youtube"), false, page.path, "under a foreign name shows", b.text())
		b.visit(strings.Replace(w.url, "127.0.0.1", "localhost", 1)+page.path, http.StatusOK)
	}
}
