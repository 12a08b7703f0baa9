package budgethttp

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget/feedback"
)

// Verdict is what an upstream meant by refusing a request.
type Verdict struct {
	// Rule is the name of the refusal rule in costs.toml.
	Rule      string
	Means     feedback.Meaning
	Operation string
	// Limit is what was locked, as in Status; empty: the whole budget, or nothing.
	Limit string
	// Until is the end of the lock; zero: nothing was locked.
	Until time.Time
}

// VerdictOf returns what an upstream meant by a response that came through a Transport;
// false if no refusal rule fits. For a response below 400, the body decides only once
// it has been read to its end or closed; after Close this waits until the store has the
// lock, or for the store's timeout. It is false for the responses that the Transport
// makes itself; see [RefusedHeader].
func VerdictOf(resp *http.Response) (Verdict, bool) {
	if resp == nil || resp.Request == nil {
		return Verdict{}, false
	}
	v, _ := resp.Request.Context().Value(verdictKey{}).(*verdict)
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

// verdict is the place of a response's Verdict. It travels in the context of the
// response's request, since clients wrap the body.
type verdict struct {
	told  atomic.Pointer[Verdict]
	await atomic.Pointer[func()] // waits until it is told, for the store's timeout at most; nil: it is
}

type verdictKey struct{}

// attach makes the request that a response is told to be for: the caller's own, or
// another that the base names, with the verdict. The context that was sent ends with
// the body, and is kept from callers who go on with it.
func (v *verdict) attach(named, sent, own *http.Request) *http.Request {
	if named == nil || named == sent {
		named = own
	}
	return named.WithContext(context.WithValue(named.Context(), verdictKey{}, v))
}
