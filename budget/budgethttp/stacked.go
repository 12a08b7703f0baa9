package budgethttp

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/quotactl/quotactl/budget"
)

// made is the body of a response that a Transport made itself. By this type another
// Transport above it recognises that no upstream has answered; a header could come from
// an upstream.
type made struct{ *bytes.Reader }

// Close implements io.Closer.
func (made) Close() error { return nil }

// isMade reports whether a response was made by a Transport below this one.
func isMade(resp *http.Response) bool {
	_, ok := resp.Body.(made)
	return ok
}

// refusedBelow finishes a request that a Transport below has answered itself. A
// round-tripper between the two may have sent it before.
func (a *attempt) refusedBelow() {
	if a.isStacked() && a.trace.silent() {
		a.release()
	} else {
		a.settle(a.units())
	}
	a.cancel(nil)
}

// neverBegun reports whether an error is that of the Transport right below, whose
// budget refused before anything was sent.
func (a *attempt) neverBegun(err error) bool {
	var refused *budget.RefusedError
	return a.isStacked() && a.trace.silent() && errors.As(err, &refused)
}

func (a *attempt) isStacked() bool {
	_, ok := a.options.Base.(*Transport)
	return ok
}
