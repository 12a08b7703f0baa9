package budgethttp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

type halves struct{ net.Conn }

func (halves) CloseWrite() error { return io.ErrClosedPipe }

// The context of a connection that was handed over ends with it, and not before: it
// does not stay with the context that it comes from.
func TestUpgradesFreeTheirContext(t *testing.T) {
	type halfCloser interface{ CloseWrite() error }
	ours, theirs := net.Pipe()
	defer theirs.Close() //nolint:errcheck // it is of no interest
	for name, body := range map[string]io.ReadCloser{
		"plain":     ours,
		"half":      halves{ours},
		"read only": io.NopCloser(strings.NewReader("")),
		"none":      nil,
	} {
		t.Run(name, func(t *testing.T) {
			var sent context.Context
			base := roundTrip(func(req *http.Request) (*http.Response, error) {
				sent = req.Context()
				return &http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, Header: http.Header{}, Body: body, Request: req}, nil
			})
			b := open(t, budget.Spec{Costs: map[string]budget.Cost{"read": {Units: 5}}})
			req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://upstream", nil))(t)
			resp, err := meter(t, b, budgethttp.Options{Base: base, Operation: "read"}).RoundTrip(req)
			must.Do(t, err)
			if body != nil {
				if sent.Err() != nil {
					t.Error("it ended with the header")
				}
				_, was := body.(io.Writer)
				_, half := body.(halfCloser)
				if _, is := resp.Body.(io.Writer); is != was {
					t.Errorf("it can be written to: %v", is)
				}
				closer, is := resp.Body.(halfCloser)
				check.Equal(t, is, half, "its half can be closed")
				if is && closer.CloseWrite() != io.ErrClosedPipe { //nolint:errorlint // that very one
					t.Error("another half was closed")
				}
				_ = resp.Body.Close()
			}
			if sent.Err() == nil {
				t.Error("it has not ended")
			}
			want(t, b, 5, 1, 0)
		})
	}
}
