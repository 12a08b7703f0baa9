package browser

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// guarded starts a rich world whose daemon has a token, with which one may act on the page.
func guarded(t testing.TB) *world {
	t.Helper()
	w := rich(t)
	w.env = append(w.env, "TOKEN="+token, "READ_TOKEN="+readToken)
	w.start("--listen-token-env", "TOKEN", "--listen-read-token-env", "READ_TOKEN", "--allow-actions")
	return w
}

const readToken = "a-token-that-may-only-look"

// submit submits a form after its fields are filled in, waits for the next page, and returns
// its status.
func (b *tab) submit(form string, fields map[string]string) (status int64) {
	b.t.Helper()
	for name, value := range fields {
		eval[bool](b, `(() => {
			const field = document.querySelector(%q + " [name=" + %q + "]");
			field.value = %q;
			return true;
		})()`, form, name, value)
	}
	answer := must.Get(chromedp.RunResponse(b.ctx, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		return chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).requestSubmit()", form)))
	})))(b.t)
	return answer.Status
}

// acts submits a form, which must lead to a page.
func (b *tab) acts(form string, fields map[string]string) {
	b.t.Helper()
	must.Equal(b.t, b.submit(form, fields), http.StatusOK, "after", form)
}

const signInForm = `form[action="/login"]`

// asksToken ends the test unless the page asks for the token, and shows nothing else.
func (b *tab) asksToken(about ...any) {
	b.t.Helper()
	must.Equal(b.t, eval[int](b, "document.querySelectorAll(%q).length", signInForm), 1, append(about, "forms to sign in")...)
	check.Equal(b.t, strings.Contains(eval[string](b, "document.documentElement.outerHTML"), "youtube"), false, append(about, "budgets are shown")...)
}

// signIn opens a page that asks for the token, and gives it.
func (b *tab) signIn(w *world, path, with string) {
	b.t.Helper()
	b.open(w.url + path)
	b.asksToken(path)
	b.acts(signInForm, map[string]string{"token": with})
	check.Equal(b.t, eval[string](b, "location.pathname + location.search"), path, "the page after signing in")
}

// cookies are those that the browser has.
func (b *tab) cookies() []*network.Cookie {
	b.t.Helper()
	return call(b, network.GetCookies, network.GetCookiesParams{}).Cookies
}

// A visitor who signs in with the token may act, and sees what the action did; one who signs
// out sees nothing any more. No page, address or cookie has the token.
func TestActions(t *testing.T) {
	w := guarded(t)
	b := newTab(t, w.host())
	b.size(desk, false)

	b.open(w.url + "/jobs")
	b.asksToken("at first")
	for _, fault := range b.inspect(desk) {
		t.Error("the form to sign in:", fault)
	}
	must.Equal(t, b.submit(signInForm, map[string]string{"token": "not-the-token-at-all"}), http.StatusUnauthorized, "a wrong token")
	b.asksToken("after a wrong token")
	b.take() // the browser logs the status
	check.Equal(t, len(b.cookies()), 0, "cookies after a wrong token")

	b.signIn(w, "/job?name=charts.music", token)
	for _, c := range b.cookies() {
		check.Equal(t, c.HTTPOnly, true, c.Name, "HttpOnly")
		check.Equal(t, c.SameSite, network.CookieSameSiteStrict, c.Name, "SameSite")
		check.Equal(t, strings.Contains(c.Value, token), false, c.Name, "has the token")
	}
	check.Equal(t, len(b.cookies()), 1, "cookies")
	check.Equal(t, strings.Contains(eval[string](b, "document.documentElement.outerHTML"), token), false, "the page has the token")

	b.acts(`form[action="/do/pause"]`, map[string]string{"note": "paused in the browser"})
	check.Contains(t, b.text(), "Paused charts.music")
	check.Contains(t, w.run(0, "jobs", "charts.music"), "paused in the browser")
	for _, fault := range b.inspect(desk) {
		t.Error("after the pause:", fault)
	}
	b.acts(`form[action="/do/resume"]`, nil)
	check.Equal(t, strings.Contains(w.run(0, "jobs", "charts.music"), "paused in the browser"), false, "still paused")
	b.acts(`form[action="/do/trigger"]`, map[string]string{"note": "triggered in the browser"})
	w.run(0, "trigger", "charts.music", "--wait", "10m") // it waits behind the other pass
	check.Contains(t, w.run(0, "runs", "charts.music"), "triggered in the browser")

	b.visit(w.url+"/budget?name=shop/main", http.StatusOK)
	b.acts(`form[action="/do/unlock"]`, nil)
	check.Equal(t, strings.Contains(w.run(0, "status", "shop/main"), "quota increase pending"), false, "still locked")
	b.acts(`form[action="/do/lock"]`, map[string]string{"for": "2h", "why": "locked in the browser"})
	check.Contains(t, strings.Join(strings.Fields(w.run(0, "status", "shop/main")), " "), "locked in the browser")

	b.submit(`form[action="/logout"]`, nil)
	b.asksToken("after signing out")
	check.Equal(t, len(b.cookies()), 0, "cookies after signing out")
}

// A visitor who signs in with the read token sees each page and may not act.
func TestReadToken(t *testing.T) {
	w := guarded(t)
	b := newTab(t, w.host())
	b.size(phone, true)
	b.signIn(w, "/", readToken)
	for _, one := range pages {
		b.visit(w.url+one.path, http.StatusOK)
		check.Equal(t, eval[int](b, `document.querySelectorAll('form[action^="/do/"]').length`), 0, one.path, "forms for actions")
	}
}

// Each page is sound for somebody who may act, too: it has forms then.
func TestPagesWithActions(t *testing.T) {
	w := guarded(t)
	b := newTab(t, w.host())
	b.signIn(w, "/", token)
	for _, one := range pages {
		found := faults{}
		for _, v := range effort.Of([]view{{phone, true}}, []view{{desk, false}}, []view{{phone, true}, {desk, false}}) {
			b.size(v.width, v.dark)
			b.visit(w.url+one.path, http.StatusOK)
			found.add(v.String(), b.inspect(v.width))
		}
		found.report(t, one.path)
	}
}

// A link of another site leads who is signed in to the page itself: the browser leaves the
// cookie out at first.
func TestArrival(t *testing.T) {
	w := guarded(t)
	e := newElsewhere(t)
	for _, name := range names(t, e.URL) {
		t.Run(strings.Split(name, ":")[1][2:], func(t *testing.T) {
			b := newTab(t, "")
			b.signIn(w, "/", token)
			e.shows(`<a href="%s/job?name=trending">the job</a>`, w.url)
			b.visit(name, http.StatusOK)
			// The page that the browser gets first has the same address, and no form.
			b.do(chromedp.Click(chromedp.CSS("a")))
			b.do(chromedp.WaitReady(chromedp.CSS(`form[action="/do/pause"]`)))
			check.Equal(t, eval[string](b, "location.href"), w.url+"/job?name=trending", "the address")
		})
	}
}

// A page of another origin cannot act, though the browser sends it the cookie of who is signed
// in where both are of one host: cookies ignore ports.
func TestForeignForms(t *testing.T) {
	w := guarded(t)
	e := newElsewhere(t)
	for _, name := range names(t, e.URL) {
		t.Run(strings.Split(name, ":")[1][2:], func(t *testing.T) {
			b := newTab(t, "")
			b.signIn(w, "/job?name=trending", token)
			csrf := eval[string](b, `document.querySelector('form[action="/do/pause"] [name=csrf]').value`)
			for _, csrf := range []string{"", csrf} { // even if it were known
				e.shows(`<form method="post" action="%s/do/pause"><input name="job" value="trending"><input name="note" value="from elsewhere"><input name="csrf" value="%s"></form>`, w.url, csrf)
				b.visit(name, http.StatusOK)
				check.Equal(t, b.submit("form", nil), http.StatusForbidden, "a form of another origin")
				e.shows("")
				b.visit(name, http.StatusOK)
				got := eval[string](b, `fetch("%s/do/pause", {method: "POST", mode: "no-cors", credentials: "include",
					headers: {"Content-Type": "application/x-www-form-urlencoded"}, body: "job=trending&note=from+elsewhere&csrf=%s"}).then(() => "sent", () => "refused")`, w.url, csrf)
				check.Equal(t, got, "refused", "the answer to a POST by fetch")
			}
			check.Equal(t, strings.Contains(w.run(0, "jobs", "trending"), "from elsewhere"), false, "the job was paused by another origin")
		})
	}
}
