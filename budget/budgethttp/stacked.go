package budgethttp

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/quotactl/quotactl/budget"
)

// made is the body of a response that a Transport made itself. By this type another
// Transport above it knows that the response is not from an upstream; a header could be.
type made struct{ *bytes.Reader }

// Close implements io.Closer.
func (made) Close() error { return nil }

// isMade reports whether a response was made by a Transport below this one.
func isMade(resp *http.Response) bool {
	_, ok := resp.Body.(made)
	return ok
}

// refusedBelow finishes a request that a Transport below answered itself. If there are
// others between the two, one of them may have sent it before.
func (a *attempt) refusedBelow() {
	if a.isStacked() && a.trace.silent() {
		a.release()
	} else {
		a.settle(a.units())
	}
	a.cancel(nil)
}

// neverBegun reports whether an error is from the Transport directly below, whose budget
// refused before anything was sent.
func (a *attempt) neverBegun(err error) bool {
	var refused *budget.RefusedError
	return a.isStacked() && a.trace.silent() && errors.As(err, &refused)
}

func (a *attempt) isStacked() bool {
	_, ok := a.options.Base.(*Transport)
	return ok
}
