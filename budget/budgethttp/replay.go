package budgethttp

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/quotactl/quotactl/budget"
)

// beginsAgain reports whether a failed request waits for its units and is sent anew: the
// base was about to resend it, the units did not fit, and the caller asked to wait. It is
// true only for requests that are safe to send any number of times, because the first one
// may still arrive.
func (a *attempt) beginsAgain(waited time.Duration) bool {
	if a.options.Refused != Wait || !errors.Is(a.wasRefused(), budget.ErrExhausted) {
		return false
	}
	if a.options.MaxWait > 0 && waited >= a.options.MaxWait {
		return false
	}
	switch a.request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return a.request.Body == nil || a.request.Body == http.NoBody || a.request.GetBody != nil
	}
	return false
}

// replay is the request with its body rewound.
func replay(req *http.Request) (*http.Request, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("send %s %s again: its body: %w", req.Method, req.URL.Redacted(), err)
	}
	again := req.WithContext(req.Context())
	again.Body = body
	return again, nil
}
