package budgethttp

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
)

// Verdict says why an upstream refused a request.
type Verdict struct {
	// Rule is the name of the refusal rule in costs.toml.
	Rule      string
	Means     feedback.Meaning
	Operation string
	// Limit is the locked limit, named as in Status. Empty means the whole budget, or that
	// nothing was locked.
	Limit string
	// Until is the end of the lock; zero means that nothing was locked.
	Until time.Time
	// Asked is the end that the response or the rule asks for, if the lock was cut to what
	// the rule's Longest allows; else zero.
	Asked time.Time
	// Cached: the response comes from a cache, so nothing was locked, whatever it means.
	Cached bool
}

// VerdictOf returns the Verdict on a response that came through a Transport, and false if
// no refusal rule matches. Below status 400, a rule that needs the body decides only once
// the body has been read to its end or closed; after Close, VerdictOf waits until the
// store has the lock, at most the store's timeout. It returns false for responses that
// the Transport makes itself; see [RefusedHeader].
func VerdictOf(resp *http.Response) (Verdict, bool) {
	v := verdictOf(resp)
	if v == nil {
		return Verdict{}, false
	}
	if await := v.await.Load(); await != nil {
		(*await)()
	}
	told := v.told.Load()
	if told == nil {
		return Verdict{}, false
	}
	return *told, true
}

// ReceiptOf returns the receipt of the charge for a response that came through a Transport: of the
// last one, if the request was sent again. It is false if there was no charge, because the response
// is the Transport's own, or because the request belongs to an upload or session that had been
// charged before.
func ReceiptOf(resp *http.Response) (budget.Receipt, bool) {
	v := verdictOf(resp)
	if v == nil || v.receipt.ID == "" {
		return budget.Receipt{}, false
	}
	return v.receipt, true
}

// verdictOf returns what travels with a response; nil: nothing does.
func verdictOf(resp *http.Response) *verdict {
	if resp == nil || resp.Request == nil {
		return nil
	}
	v, _ := resp.Request.Context().Value(verdictKey{}).(*verdict)
	return v
}

// verdict holds a response's Verdict and receipt. It travels in the context of the response's
// request, because clients wrap the body.
type verdict struct {
	receipt budget.Receipt
	told    atomic.Pointer[Verdict]
	await   atomic.Pointer[func()] // waits until told is set, at most the store's timeout; nil: no wait needed
}

type verdictKey struct{}

// attach returns the request to put into resp.Request, with the verdict in its context:
// the caller's own request, or another one that the base names. The context that was sent
// ends with the body, so callers that reuse the request must not get it.
func (v *verdict) attach(named, sent, own *http.Request) *http.Request {
	if named == nil || named == sent {
		named = own
	}
	return named.WithContext(context.WithValue(named.Context(), verdictKey{}, v))
}
