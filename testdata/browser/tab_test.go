package browser

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/quotactl/quotactl/internal/must"
)

// tab is a tab with a profile of its own. It collects what is wrong with the pages in it.
type tab struct {
	t   testing.TB
	ctx context.Context
	own string // the only host that its pages may ask, as 127.0.0.1:8080; empty: any

	mu     sync.Mutex // guards all below
	faults []string
}

// newTab opens a tab whose pages may ask only one host.
func newTab(t testing.TB, own string) *tab {
	t.Helper()
	b := &tab{t: t, own: own}
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	t.Cleanup(cancel)
	b.ctx = ctx
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, audits.Enable, cdp.Empty{})
	// A tab in the background has no focus, and closes what it has open for live updates.
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return b
}

// call sends a command of the DevTools protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	return must.Get(chromedp.Call(b.ctx, command, params))(b.t)
}

// size sets the width of the page in pixels, and whether the user prefers dark colours. Up to
// 480 pixels it is a phone.
func (b *tab) size(width int64, dark bool) {
	b.t.Helper()
	phone := width <= 480
	height := int64(900)
	if phone {
		height = 844
	}
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: phone})
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// scripts allows the pages' scripts, or not. What the test evaluates runs all the same.
func (b *tab) scripts(on bool) {
	b.t.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// visit loads an address, and ends the test if the answer has another status.
func (b *tab) visit(address string, status int64) {
	b.t.Helper()
	must.Equal(b.t, b.open(address), status, "GET", address)
}

// open loads an address, and returns the status of the answer.
func (b *tab) open(address string) int64 {
	b.t.Helper()
	answer := must.Get(chromedp.Run(b.ctx, chromedp.NavigateResponse(address)))(b.t)
	if answer == nil {
		b.t.Fatal(address, "was not answered")
	}
	return answer.Status
}

// do runs actions.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	must.Do(b.t, chromedp.Do(b.ctx, steps...))
}

// eval evaluates an expression in the page; it waits for a promise.
func eval[V any](b *tab, expression string, args ...any) V {
	b.t.Helper()
	return must.Get(chromedp.Run(b.ctx, chromedp.Evaluate[V](fmt.Sprintf(expression, args...), chromedp.EvalAwaitPromise)))(b.t)
}

// text is what a reader sees.
func (b *tab) text() string {
	b.t.Helper()
	return eval[string](b, "document.body.innerText")
}

// hear records events that must not be.
func (b *tab) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		what := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			what += " " + e.ExceptionDetails.Exception.Description
		}
		b.fault("exception: %s (%s:%d)", what, e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber+1)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			var words []string
			for _, arg := range e.Args {
				words = append(words, strings.Trim(string(arg.Value), `"`)+arg.Description)
			}
			b.fault("console: %s: %s", e.Type, strings.Join(words, " "))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.fault("log: %s of %s: %s %s", e.Entry.Level, e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *audits.EventIssueAdded:
		if csp := e.Issue.Details.ContentSecurityPolicyIssueDetails; csp != nil {
			b.fault("content security policy: %s blocked %s", csp.ViolatedDirective, csp.BlockedURL)
		}
	case *network.EventRequestWillBeSent:
		b.asked(e.Request.URL)
	case *network.EventWebSocketCreated:
		b.asked(e.URL)
	case *page.EventJavascriptDialogOpening:
		b.fault("dialog: %s: %s", e.Type, e.Message)
		go func() { // the page waits; a listener may not call
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	case *inspector.EventTargetCrashed:
		b.fault("the tab crashed")
	}
}

// asked records a request to another host.
func (b *tab) asked(address string) {
	if b.own == "" {
		return
	}
	to, err := url.Parse(address)
	if err != nil || to.Host != b.own && !slices.Contains([]string{"data", "blob", "about"}, to.Scheme) {
		b.fault("request to another host: %s", address)
	}
}

func (b *tab) fault(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// take returns the faults so far, and forgets them. The browser sends them before the answer
// to a later command, so none is on the way.
func (b *tab) take() []string {
	b.t.Helper()
	eval[int](b, "0")
	b.mu.Lock()
	defer b.mu.Unlock()
	faults := b.faults
	b.faults = nil
	return faults
}

// clean fails the test with each fault so far.
func (b *tab) clean(about ...any) {
	b.t.Helper()
	for _, fault := range b.take() {
		b.t.Error(fmt.Sprint(about...)+":", fault)
	}
}
