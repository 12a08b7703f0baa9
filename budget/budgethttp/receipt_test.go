package budgethttp_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A response has the receipt of its charge, and its request the operation that was charged, also
// where the request has options of its own. What a charge before it paid for has none.
func TestReceiptsOfResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Session", "secret") })
		b := uploads(t, inMemory(), feedback.Key{Header: "X-Session"})
		defer func() { must.Do(t, b.Close()) }()
		o := &observer{}
		transport := meter(t, b, budgethttp.Options{Base: base, Observer: o})
		send := func(method, path, session string, own bool) (operation string, of budget.Receipt, found bool) {
			req := must.Get(http.NewRequestWithContext(t.Context(), method, "http://upstream"+path, nil))(t)
			if session != "" {
				req.Header.Set("X-Session", session)
			}
			if own {
				options := transport.Options()
				options.Operation = "update"
				req = req.WithContext(budgethttp.With(req.Context(), options))
			}
			resp := must.Get(transport.RoundTrip(req))(t) //nolint:bodyclose // it is closed below
			must.Do(t, resp.Body.Close())
			of, found = budgethttp.ReceiptOf(resp)
			return transport.Operation(req), of, found
		}
		for i, c := range []struct {
			method, path, session string
			own                   bool
			want                  string
			charged               bool
		}{
			{"GET", "/a", "", false, "read", true},
			{"GET", "/a", "", true, "update", true},
			{"POST", "/upload", "", false, "upload", true},
			{"PUT", "/upload", "secret", false, "update", false},
		} {
			operation, of, found := send(c.method, c.path, c.session, c.own)
			check.Equal(t, operation, c.want, "operation", i)
			check.Equal(t, found, c.charged, "has a receipt", i)
			if found {
				check.Equal(t, of, o.charged[len(o.charged)-1], "receipt", i)
				check.Equal(t, of.Operation, c.want, "operation of the receipt", i)
			}
		}
	})
}

// What the Transport answers itself was not charged, and what did not come through one neither.
func TestResponsesWithoutReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, fullSpec(time.Hour))
		spend(t, b)
		transport := meter(t, b, budgethttp.Options{Base: quiet(t), Operation: "read", Refused: budgethttp.Answer429})
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://upstream", nil))(t)
		resp := must.Get(transport.RoundTrip(req))(t) //nolint:bodyclose // as above
		must.Do(t, resp.Body.Close())
		for name, one := range map[string]*http.Response{"made": resp, "other": {Request: req}, "of no request": {}, "none": nil} {
			of, found := budgethttp.ReceiptOf(one)
			check.Equal(t, of, budget.Receipt{}, name)
			check.Equal(t, found, false, name)
		}
	})
}
